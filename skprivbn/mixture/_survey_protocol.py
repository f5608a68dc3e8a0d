"""What PPEM must know of the numbers before it starts.

A survey finds how many rows there are, around where and how far apart, so that sums
fit the backend. Rows may have gaps: then it is told first how many have an entry, for
each column, and until there is a mixture, one that is missing has mean and variance of
its column.
"""

from functools import reduce

import numpy as np

from skprivbn.exceptions import ProtocolError
from skprivbn.federation import (
    Party,
    PartyRefusal,
    map_rows,
    operation,
    row_blocks,
    sum_over_rows,
)
from skprivbn.mixture._gaps import fill_with_zeros
from skprivbn.mixture._gaussian_steps import Mixture, uniform_frame
from skprivbn.mixture._ranges import DISTANCES, MAGNITUDES, sum_unit
from skprivbn.mixture._terms import EMTerms, check_given

GO_ON, CONVERGED = "go on", "converged"
SPARSE = "sparse"

# The number of rows is summed before it is known: room for so many.
_MAX_ROWS = 2.0**35
# The centre needs few digits; fewer than a ciphertext's noise could change.
_CENTRE_GRID = 2.0**-20


class SurveyParty(Party):
    """A data holder, up to where all know how large the numbers are."""

    terms = EMTerms

    def prepare(self):
        self.X = self.finite_rows(allow_nan=self.terms.has_gaps)
        check_given(self.terms, self.X.shape[1])
        self.n_runs, self.running, self.status = 0, False, GO_ON
        #: starts whose responsibilities were drawn
        self.n_drawn = 0
        #: centres of clusters whose sums are known, sizes of the last ones, and with
        #: how many of them the next ones are compared
        self.told_centres, self.told_sizes, self.n_compared = [], None, 0

    def _survey_operations(self):
        if self.terms.has_gaps:
            yield "entries"
            yield "check_entries"
            if self.status == SPARSE:
                return
        yield "magnitudes"
        yield "centre"
        yield "distances"
        yield "spread"
        yield "settle"

    @property
    def _alone(self):
        return len(self.context.roster) == 1

    @operation(
        tells="how many of its rows have an entry, for each column", parties_only=True
    )
    def entries(self):
        return self.hide(sum_over_rows(self.X, lambda X: np.sum(~np.isnan(X), axis=0)))

    @operation(
        tells="whether every column has entries in enough rows", answers={"status": str}
    )
    def check_entries(self, total):
        self.n_entries = np.rint(self.reveal(total))
        least = 1 if self._alone else self.terms.min_rows
        self.status = SPARSE if self.n_entries.min() < least else GO_ON
        return {"status": self.status}

    @operation(tells="votes for powers of two that bound its features")
    def magnitudes(self):
        return self.hide(MAGNITUDES.votes(_largest(self.X)))

    @operation(tells="its number of rows and sums of its features")
    def centre(self, total):
        self.magnitude = MAGNITUDES.bounds(self.reveal(total))
        sums = sum_over_rows(self.X, lambda X: np.nansum(X / self.magnitude, axis=0))
        return self.hide(np.append(len(self.X), sums) * self._count_unit)

    @property
    def _count_unit(self):
        max_sum = self.terms.max_sum
        return (
            1.0 if np.isinf(max_sum) else 2.0 ** np.floor(np.log2(max_sum / _MAX_ROWS))
        )

    @operation(tells="votes for powers of two that bound distances from the centre")
    def distances(self, total):
        n_rows, *sums = self.reveal(total) / self._count_unit
        self.n_rows = int(np.rint(n_rows))
        if not self.terms.has_gaps:
            self.n_entries = self.n_rows
        mean = np.array(sums) / self.n_entries
        self.middle = np.rint(mean / _CENTRE_GRID) * _CENTRE_GRID * self.magnitude
        self.rows = self.filled = map_rows(self.X, lambda X: X - self.middle)
        if self.terms.has_gaps:
            self.filled = map_rows(self.rows, fill_with_zeros)
        return self.hide(DISTANCES.votes(_largest(self.rows) / self.magnitude))

    @operation(tells="sums of squared distances from the centre")
    def spread(self, total):
        if self.n_rows < self.terms.n_components:
            raise PartyRefusal("too-few-rows")
        self.scale = DISTANCES.bounds(self.reveal(total)) * self.magnitude
        self.unit = sum_unit(self.terms.max_sum, len(self.context.roster), self.n_rows)
        squares = sum_over_rows(
            self.filled, lambda rows: ((rows / self.scale) ** 2).sum(axis=0)
        )
        return self.hide(squares * self.unit)

    @operation()
    def settle(self, total):
        """Take standard deviations as units: no second moment then exceeds `n_rows`."""
        variances = self.reveal(total) / self.unit / self.n_entries
        known = variances > 2.0**-40
        self.scale[known] *= np.sqrt(variances[known])

    def _survey_frame(self):
        return uniform_frame(
            self.terms.covariance_type,
            np.zeros(len(self.scale)),
            self.scale,
            self.terms.n_components,
        )

    def _survey_mixture(self):
        """Return what to expect of a missing entry before there is a mixture."""
        shape = self.terms.n_components, len(self.scale)
        weights = np.full(shape[0], 1 / shape[0])
        variances = np.broadcast_to(self.scale**2, shape)
        return Mixture.from_covariances("diag", weights, np.zeros(shape), variances)


def _largest(X):
    """Return the largest absolute value of each column, 0 if it has no entry."""

    def largest(rows):
        return np.fmax.reduce(np.abs(rows), axis=0, initial=0.0)

    return reduce(np.maximum, map(largest, row_blocks(X)))


def survey(federation):
    """Let the parties find out how many rows there are, around where, how far apart.

    Parameters
    ----------
    federation : Federation
    """
    terms = federation.terms
    if terms.has_gaps:
        total = federation.secure_sum("entries")
        if unanimous(federation.call("check_entries", {"total": total})) == SPARSE:
            raise ValueError(
                f"a column has entries in fewer than min_rows={terms.min_rows} rows of "
                "all parties: leave it out, or lower min_rows"
            )
        federation.ledger.note(
            "rows may have gaps: sizes of clusters and sums of responsibilities are "
            "also told, in the same messages, of the rows with an entry in each column"
        )
    total = federation.secure_sum("magnitudes")
    total = federation.secure_sum("centre", {"total": total})
    total = federation.secure_sum("distances", {"total": total})
    total = federation.secure_sum("spread", {"total": total})
    federation.call("settle", {"total": total})


def unanimous(replies):
    answers = {reply["status"] for reply in replies.values()}
    if len(answers) != 1:
        raise ProtocolError("the parties disagree on how to go on")
    return answers.pop()
