"""Warnings name the user's line, however deep in the library they are raised."""

import warnings

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler


def test_warnings_point_at_the_line_that_called_fit():
    X = np.random.default_rng(0).normal(size=(60, 2))
    party = np.repeat(["a", "b", "c"], 20)
    mixture = PPEMGaussianMixture(2, max_iter=1, tol=0.0, backend="masking")
    for model in (mixture, make_pipeline(FederatedStandardScaler(), mixture)):
        with (
            config_context(enable_metadata_routing=True),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            model.fit(X, party=party)
        (found,) = (w for w in caught if w.category is ConvergenceWarning)
        assert found.filename == __file__
