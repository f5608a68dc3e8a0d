"""FCI over parties beside causal-learn on pooled rows, one graph after another.

Run with ``python benchmarks/study_hidden_causes.py`` (about two minutes of CPU).

Random models of eight columns with two hidden causes. Skeletons and partial ancestral
graphs are compared where both are given true answers, by d-separation, and where
both test rows: G-squared of two or three states, or partial correlations. Where tests
contradict each other, as some of hundreds do, both depend on which they come to first:
models of which both were told no wrong answer are counted apart.
"""

import argparse
from itertools import product

import numpy as np
from _record import record

from skprivbn.bayesian_network._dag import ARROW, CIRCLE, TAIL
from skprivbn.structure import FederatedFCI
from skprivbn.structure._fci import fci

N_COLUMNS, N_HIDDEN = 8, 2
#: our marks, in the order of theirs: -1 (tail), 0 (no edge), 1 (arrow), 2 (circle)
_MARKS = np.array([TAIL, 0, ARROW, CIRCLE])


def random_graph(seed):
    """Return a generator, an order of causes first, edges, and columns seen."""
    rng, n = np.random.default_rng(seed), N_COLUMNS + N_HIDDEN
    order, graph = rng.permutation(n), np.zeros((n, n), dtype=bool)
    for place, i in enumerate(order):
        graph[i, order[place + 1 :]] = rng.random(n - place - 1) < 2.2 / (n - 1)
    hidden, seen = order[:N_HIDDEN], np.sort(order[N_HIDDEN:])
    graph[:, hidden] = False
    for cause in hidden:
        graph[cause, rng.choice(seen, 2, replace=False)] = True
    return rng, order, graph, seen


def discrete_rows(seed, n_rows):
    """Draw rows of columns with two or three states; return their numbers, too."""
    rng, order, graph, seen = random_graph(seed)
    n_states, X = rng.integers(2, 4, len(graph)), np.zeros((n_rows, len(graph)), int)
    for v in order:
        parents = np.flatnonzero(graph[:, v])
        sizes = tuple(n_states[parents])
        given = np.ravel_multi_index(X[:, parents].T, sizes) if sizes else 0
        shares = rng.dirichlet(np.full(n_states[v], 0.6), int(np.prod(sizes)))
        below = shares.cumsum(axis=1)[given][..., :-1] < rng.random((n_rows, 1))
        X[:, v] = below.sum(axis=-1)
    return X[:, seen], n_states[seen].tolist()


def normal_rows(seed, n_rows):
    """Draw rows of linear effects with normal noise."""
    rng, order, graph, seen = random_graph(seed)
    weights = graph * rng.uniform(0.5, 1.5, graph.shape)
    weights *= rng.choice([-1, 1], graph.shape)
    X = np.zeros((n_rows, len(graph)))
    for v in order:
        X[:, v] = X @ weights[:, v] + rng.normal(size=n_rows)
    return X[:, seen], None


def true_answers(seed):
    """Return whether columns are independent given others, read off the graph."""
    import networkx as nx

    _, _, graph, seen = random_graph(seed)
    network = nx.from_numpy_array(graph, create_using=nx.DiGraph)

    def independent(x, y, given):
        given = {seen[v] for v in given}
        return nx.is_d_separator(network, {seen[x]}, {seen[y]}, given)

    return independent


def tested_answers(X, test, level, truth, wrong):
    """Return whether columns are independent, by tests; keep wrong answers."""
    from causallearn.utils.cit import CIT

    p_value, known = CIT(X, test), {}

    def independent(x, y, given):
        key = min(x, y), max(x, y), tuple(sorted(given))
        if key not in known:
            known[key] = bool(p_value(*key) > level)
            if known[key] != truth(*key):
                wrong.append(key)
        return known[key]

    return independent


def pooled_marks(independent):
    """Return the graph that causal-learn finds, with our marks."""
    from causallearn.search.ConstraintBased import FCI
    from causallearn.utils.cit import CIT_Base

    class Answers(CIT_Base):
        """Answers that are given, as p values."""

        def __init__(self, data, method, **options):
            self.method, self.data = method, data

        def __call__(self, x, y, given=()):
            return float(independent(int(x), int(y), tuple(map(int, given or ()))))

    X, FCI.CIT = np.random.default_rng(0).normal(size=(50, N_COLUMNS)), Answers
    graph, _ = FCI.fci(X, "fisherz", show_progress=False)
    return _MARKS[graph.graph.T + 1]


def compare(answers, n_models, n_rows=0, level=0.01):
    """Return how many graphs are equal, over models."""
    graphs, all_right, spreads = [], [], []
    for seed in range(n_models):
        truth, wrong = true_answers(seed), []
        if answers == "true":
            ours = spread = fci(truth, N_COLUMNS)
            theirs = pooled_marks(truth)
        else:
            draw = discrete_rows if answers == "G-squared" else normal_rows
            X, states = draw(seed, n_rows)
            test = "fisherz" if states is None else "gsq"
            learner = FederatedFCI(level, states=states)
            ours = learner.fit(X, party=np.arange(n_rows) % 3).pag_.marks
            shares = [0.6, 0.2, 0.1, 0.05, 0.05]
            party = np.random.default_rng(seed).choice(5, n_rows, p=shares)
            spread = learner.fit(X, party=party).pag_.marks
            tests = tested_answers(X, test, level, truth, wrong)
            theirs = pooled_marks(tests)
            if not np.array_equal(fci(tests, N_COLUMNS), ours):
                raise AssertionError("the tests of both packages do not agree")
        graphs.append((ours, theirs))
        all_right.append(not wrong)
        spreads.append(np.array_equal(ours, spread))
    same = [np.array_equal(ours, theirs) for ours, theirs in graphs]
    return {
        "answers": answers,
        "rows": n_rows,
        "level": level,
        "models": n_models,
        "skeletons equal": sum(np.array_equal(a != 0, b != 0) for a, b in graphs),
        "PAGs equal": sum(same),
        "no wrong answer": sum(all_right),
        "of these equal": int(np.sum(np.array(same) & all_right)),
        "equal however spread": sum(spreads),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=20, help="in each setting")
    n_models = parser.parse_args().models
    rows = [compare("true", 5 * n_models)]
    for answers, (n_rows, level) in product(
        ("G-squared", "partial correlations"),
        ((2000, 0.01), (50_000, 0.01), (50_000, 1e-5)),
    ):
        rows.append(compare(answers, n_models, n_rows, level))
        print(rows[-1], flush=True)
    record("hidden_causes", rows, columns=N_COLUMNS, hidden=N_HIDDEN)


if __name__ == "__main__":
    main()
