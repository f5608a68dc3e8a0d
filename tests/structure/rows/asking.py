"""Sessions of parties that learn a network, or add up what a test asks for."""

import numpy as np

from skprivbn.federation import InProcessFederation
from skprivbn.structure.rows import _program
from skprivbn.structure.rows._program import RowNetworkTerms, network_of_rows


def terms_for(names, states, **changes):
    """Return terms by which every edge may be there."""
    n, continuous = len(names), changes.get("continuous", [])
    allowed = ~np.eye(n, dtype=bool)
    discrete = [v for v in range(n) if v not in continuous]
    allowed[np.ix_(continuous, discrete)] = False
    fields = {
        "names": list(names),
        "states": states,
        "continuous": continuous,
        "max_parents": 1,
        "min_cell_count": 0,
        "missing": "error",
        "known": None,
        "allowed": allowed,
        "required": np.zeros((n, n), dtype=bool),
        "ordering": list(range(n)),
    }
    return RowNetworkTerms(**fields | changes)


def run(blocks, terms):
    """Run the program in one process; return what it finds."""
    with InProcessFederation(blocks, network_of_rows, terms, "masking") as session:
        return session.run()


def overhear(monkeypatch, *questions):
    """Let the search ask these questions; return where parties' totals are kept.

    First those of numbers of rows and of continuous columns, then the answers.
    """
    told = []

    def learning(terms, n_states, sums, max_cells, n_sites):
        told.append(sums)
        for question in questions:
            told.append((yield question))
        return {"problem": "enough is known"}

    monkeypatch.setattr(_program, "learning", learning)
    return told
