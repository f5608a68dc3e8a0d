"""The holder of all rows: counts them, and draws the noise alone."""

from skprivbn.federation import Ledger
from skprivbn.graphical_model._adaptive import distances
from skprivbn.graphical_model._counting import count_tables
from skprivbn.graphical_model._layout import TableLayout


class OneHolder:
    """All rows in one place; answers as several holders would, with OpenDP's noise.

    Parameters
    ----------
    rows : tuple
        Codes, persons and weights, as from ``check_rows``.
    sizes : sequence of int
        Number of states of each column.
    contribution : Contribution
        What one person may add.
    noise : CountMechanism or None
        None adds nothing.
    units : tuple of int, default=(1, 1, 1)
        Counts per record in one-way tables, distances and chosen tables.
    """

    n_holders = 1

    def __init__(self, rows, sizes, contribution, noise, units=(1, 1, 1)):
        self.rows, self.sizes, self.contribution = rows, sizes, contribution
        self.noise, self.units = noise, units

    def count(self, layout):
        """Return exact counts."""
        codes, persons, weight = self.rows
        return count_tables(codes, layout, self.contribution, persons, weight)

    def tables(self, layout, unit=1):
        """Return noisy tables, counts multiplied by `unit`."""
        return self._release(unit * self.count(layout))

    def one_way(self):
        """Return noisy tables of all columns."""
        singles = [(i,) for i in range(len(self.sizes))]
        return self.tables(TableLayout(singles, self.sizes), self.units[0])

    def distances(self, cliques, expected):
        """Return noisy distances of tables to expected ones."""
        layout = TableLayout(cliques, self.sizes)
        exact = distances(layout.split(self.count(layout)), expected)
        return self._release(self.units[1] * exact)

    def chosen(self, cliques):
        """Return noisy tables of some cliques."""
        return self.tables(TableLayout(cliques, self.sizes), self.units[2])

    def _release(self, counts):
        return counts if self.noise is None else self.noise.release(counts)


def single_holder_ledger(parties, epsilon=None, release=None):
    """Ledger of a fit without messages: what the result tells whoever sees it.

    Parameters
    ----------
    parties : tuple of str
    epsilon : float, default=None
    release : Release, default=None
        What noise covers.

    Returns
    -------
    ledger : Ledger
    """
    ledger = Ledger(parties=parties)
    ledger.note("one holder: no message is sent, the noise is drawn by OpenDP")
    if epsilon is None:
        ledger.learns("whoever sees the model", "exact tables", "plaintext aggregate")
    else:
        ledger.learns(
            "whoever sees the model",
            "what is left of the rows after noise",
            "noisy release",
            epsilon=epsilon,
        )
    if release is not None:
        ledger.releases.append(release)
    return ledger
