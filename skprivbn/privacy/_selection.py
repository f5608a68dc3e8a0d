"""Two ways to choose the best of several candidates without telling too much.

Both have `bounds`, `rho` (cost as zCDP, if any) and `release`, which takes the
candidates' exact sums and gives the winner's index and columns for ``cv_results_``.
"""

import numpy as np

from skprivbn.privacy._mechanisms import add_discrete_laplace
from skprivbn.privacy._scores import STEPS


class NoisyRanking:
    """Release every candidate's score with noise; rank by the noisy sums."""

    def __init__(self, scores):
        self.scores, self.bounds = scores, scores.bounds
        self.rho = scores.mechanism.rho

    def release(self, totals, weight):
        means, stds, sums = self.scores.release(totals, weight)
        order = np.argsort(-sums, kind="stable")
        rank = np.empty(sums.size, dtype=np.int32)
        rank[order] = np.arange(1, sums.size + 1)
        return int(order[0]), {
            "mean_test_score": means,
            "std_test_score": stds,
            "rank_test_score": rank,
        }


class NoisyMax:
    """Release only which candidate's noisy sum is the largest."""

    rho = None

    def __init__(self, epsilon, bounds, max_weight):
        self.epsilon, self.bounds, self.max_weight = epsilon, bounds, max_weight

    def release(self, totals, weight):
        # one row moves one sum up and another down, each by half of the steps: the
        # winner's lead changes by twice that, whatever the number of candidates
        lead = self.max_weight * STEPS
        best = int(np.argmax(add_discrete_laplace(totals, lead, self.epsilon)))
        rank = np.full(len(totals), 2, dtype=np.int32)
        rank[best] = 1
        return best, {"rank_test_score": rank}
