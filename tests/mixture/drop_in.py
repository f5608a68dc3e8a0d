"""scikit-learn's tests of mixtures, with ours in the place of ``GaussianMixture``.

A plugin of pytest: ``N_PARTIES=3 MIN_ROWS=1 python -m pytest -p tests.mixture.drop_in
--pyargs sklearn.mixture.tests.test_gaussian_mixture``. The tests are those of the
installed scikit-learn, none of them is copied. Their failures are explained in the
guide, ``doc/sklearn_mixture_tests.csv``; ``test_ppem_drop_in.py`` compares the two.
"""

import os

import numpy as np
import sklearn.mixture

from skprivbn.mixture import PPEMGaussianMixture

N_PARTIES = int(os.environ.get("N_PARTIES", "1"))
MIN_ROWS = int(os.environ.get("MIN_ROWS", "5"))


class GaussianMixture(PPEMGaussianMixture):
    """Ours under their name, which is part of messages, and with rows dealt out."""

    def __init__(
        self,
        n_components=1,
        *,
        backend="plaintext",
        min_rows=MIN_ROWS,
        **parameters,
    ):
        super().__init__(n_components, backend=backend, min_rows=min_rows, **parameters)

    @classmethod
    def _get_param_names(cls):
        return PPEMGaussianMixture._get_param_names()

    def fit(self, X, y=None, *, party=None, individual=None):
        """Deal the rows out, unless something is wrong with them."""
        if N_PARTIES > 1 and party is None and np.ndim(X) == 2:
            party = np.arange(len(X)) % N_PARTIES
        return super().fit(X, y, party=party, individual=individual)


def pytest_configure(config):
    """Put it there as a plugin only: whoever just imports this changes nothing."""
    sklearn.mixture.GaussianMixture = GaussianMixture
