import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from skprivbn.inspection import MixtureDisplay

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(size=(60, 2)), rng.normal(6, 2, size=(60, 2))])


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_ellipses_hold_the_rows_they_should(rows, covariance_type):
    mixture = GaussianMixture(2, covariance_type=covariance_type, random_state=0)
    display = MixtureDisplay.from_estimator(mixture.fit(rows), rows, n_std=(2,))
    labels = mixture.predict(rows)
    for k, ellipse in enumerate(display.ellipses_):
        own = rows[labels == k]
        inside = ellipse.get_patch_transform().inverted().transform(own)
        share = np.mean(np.linalg.norm(inside, axis=1) < 1)
        # two standard deviations hold 86 per cent of a normal distribution's plane
        assert 0.65 < share < 0.99
        np.testing.assert_allclose(ellipse.center, mixture.means_[k])


def test_an_ellipse_follows_the_correlation():
    covariance = np.array([[[2.0, 1.5], [1.5, 2.0]]])
    display = MixtureDisplay([1.0], [[1.0, 2.0]], covariance).plot(n_std=(1,))
    [ellipse] = display.ellipses_
    on_it = ellipse.get_patch_transform().transform(
        np.column_stack([np.cos(np.arange(9)), np.sin(np.arange(9))])
    )
    centred = on_it - [1.0, 2.0]
    distances = np.einsum("nf,fg,ng->n", centred, np.linalg.inv(covariance[0]), centred)
    np.testing.assert_allclose(distances, 1.0)


def test_parties_have_colours_and_names(rows):
    mixture = GaussianMixture(2, random_state=0).fit(rows)
    party = np.array(["north", "south", "west"])[np.arange(len(rows)) % 3]
    display = MixtureDisplay.from_estimator(mixture, rows, party=party)
    assert list(display.scatters_) == ["north", "south", "west"]
    colours = {tuple(s.get_facecolor()[0]) for s in display.scatters_.values()}
    assert len(colours) == 3
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["north", "south", "west"]


def test_two_features_are_drawn_of_several(rows):
    with pytest.raises(NotFittedError):
        MixtureDisplay.from_estimator(GaussianMixture(2))
    wide = pd.DataFrame(np.hstack([rows, rows**2]), columns=list("abcd"))
    mixture = GaussianMixture(2, random_state=0).fit(wide)
    with pytest.raises(ValueError, match="two features of 4: choose"):
        MixtureDisplay.from_estimator(mixture)
    for wrong in (["a"], ["a", "z"], [0, 4]):
        with pytest.raises(ValueError, match="must be two of"):
            MixtureDisplay.from_estimator(mixture, features=wrong)
    named = MixtureDisplay.from_estimator(mixture, wide, features=["d", "a"])
    assert (named.ax_.get_xlabel(), named.ax_.get_ylabel()) == ("d", "a")
    pair = np.ix_([3, 0], [3, 0])
    np.testing.assert_array_equal(named.covariances[1], mixture.covariances_[1][pair])
    np.testing.assert_array_equal(named.means, mixture.means_[:, [3, 0]])
    numbered = MixtureDisplay.from_estimator(mixture, wide, features=[3, 0])
    np.testing.assert_array_equal(numbered.X, named.X)
