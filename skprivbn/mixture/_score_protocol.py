"""The mean log-likelihood of rows that several parties hold: one exact sum."""

import numpy as np

from skprivbn.federation import Party, PartyRefusal, operation
from skprivbn.mixture._gaussian_steps import Mixture, log_likelihood

__all__ = ["ScoreParty"]


class ScoreParty(Party):
    """A data holder whose rows are scored under a public mixture."""

    def prepare(self):
        self.X = np.asarray(self.block["X"], dtype=np.float64)
        if not np.all(np.isfinite(self.X)):
            raise PartyRefusal("invalid-data")

    def schedule(self):
        yield "log_likelihood"

    @operation(tells="log-likelihood and number of its rows", exact=True)
    def log_likelihood(self):
        mixture = Mixture.from_covariances(**self.settings)
        total = log_likelihood(self.X, mixture).sum()
        return {"vector": self.hide(np.array([total, len(self.X)]))}
