"""Pickles of another release are loaded with a warning."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn import exceptions
from sklearn.base import clone

from skprivbn.exceptions import InconsistentVersionWarning
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.utils import _sklearn
from tests.estimators import public_estimators


@pytest.fixture
def at_version(monkeypatch):
    """Return a function that pretends to be another release."""

    def pretend(version):
        monkeypatch.setattr(_sklearn, "__version__", version)

    return pretend


def silently(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return pickle.loads(data)


@pytest.mark.parametrize(
    "estimator", public_estimators(), ids=lambda e: type(e).__name__
)
def test_every_estimator_says_which_release_saved_it(estimator, at_version):
    at_version("1.4.0")
    data = pickle.dumps(estimator)
    silently(data)
    at_version("1.4.7")
    silently(data)
    for other in ("1.5.0", "1.3.9", "2.4.0"):
        at_version(other)
        with pytest.warns(InconsistentVersionWarning, match=f"1.4.0 .* by {other}"):
            pickle.loads(data)


def test_pickles_without_a_version_are_the_first_release_s(at_version):
    state = FederatedStandardScaler().__getstate__()
    del state["_skprivbn_version"]
    at_version("0.1.3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FederatedStandardScaler().__setstate__(state)
    at_version("0.2.0")
    with pytest.warns(InconsistentVersionWarning, match="saved by skprivbn 0.1 "):
        FederatedStandardScaler().__setstate__(state)


def test_the_version_does_not_stay_on_the_estimator():
    X = np.arange(12.0).reshape(6, 2)
    scaler = FederatedStandardScaler().fit(X, party=["a", "b", "c"] * 2)
    again = silently(pickle.dumps(scaler))
    assert vars(again).keys() == vars(scaler).keys()
    assert np.array_equal(again.mean_, scaler.mean_)
    clone(again)


def test_scikit_learn_s_filter_serves():
    assert issubclass(InconsistentVersionWarning, exceptions.InconsistentVersionWarning)


def test_a_repr_links_to_the_page_that_make_doc_has_built(tmp_path, monkeypatch):
    model = PPEMGaussianMixture()
    monkeypatch.setattr(_sklearn, "_BUILT", tmp_path)
    assert model._get_doc_link() == ""
    page = tmp_path / "skprivbn.mixture.PPEMGaussianMixture.html"
    page.touch()
    assert page.as_uri() in model._repr_html_()
