"""Warnings name the user's line, however deep in the library they are raised."""

import warnings

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedStandardScaler


def test_warnings_point_at_the_line_that_called_fit():
    X = np.random.default_rng(0).normal(size=(60, 2))
    party = np.repeat(["a", "b", "c"], 20)
    mixture = PPEMGaussianMixture(2, max_iter=1, tol=0.0, backend="masking")
    pipeline = make_pipeline(FederatedStandardScaler(), mixture)
    search = GridSearchCV(mixture, {"n_components": [2]}, cv=2, refit=False)
    for model in (mixture, pipeline, search):
        with (
            config_context(enable_metadata_routing=True),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            model.fit(X, party=party)
        places = [w.filename for w in caught if w.category is ConvergenceWarning]
        assert places
        assert set(places) == {__file__}
