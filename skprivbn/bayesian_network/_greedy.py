"""The greedy search of Cooper and Herskovits, on any score of families."""

from skprivbn.bayesian_network._local_scores import complete


def add_parents(scores, *arguments):
    """Add parents as :func:`adding_parents` does, with scores at hand."""
    return complete(adding_parents(scores, *arguments), scores)


def adding_parents(scores, node, candidates, max_parents, start=()):
    """Add the best candidate as a parent as long as that raises the score.

    Parameters
    ----------
    scores : LocalScores
    node : int
    candidates : sequence of int
        Of candidates that are as good as each other, the first is taken.
    max_parents : int
    start : sequence of int, default=()
        Parents that are there from the beginning.

    Yields
    ------
    asked : list
        What ``scores.fetch`` takes.

    Returns
    -------
    parents : list of int
        In the order in which they were found.
    score : float or int
        Of the node with these parents.
    """
    parents = list(start)
    while True:
        fits = scores.fits(node, parents)
        left = [v for v in candidates if v not in parents and fits[v]]
        if len(parents) >= max_parents:
            left = []
        yield [(node, parents, left)]
        best = scores.score(node, parents)
        found = scores.added(node, parents, left).tolist() if left else []
        winner = max(range(len(left)), key=found.__getitem__, default=None)
        if winner is None or found[winner] <= best + scores.tolerance:
            return parents, best
        parents.append(left[winner])
