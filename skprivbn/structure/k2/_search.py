"""The greedy search of Cooper and Herskovits on pooled columns."""

from skprivbn.structure.k2._scores import family_counts, score_terms

__all__ = ["k2_search"]


def k2_search(
    codes, n_states, ordering, max_parents, criterion="k2", equivalent_sample_size=10.0
):
    """Find the parents of every variable, one after another.

    Parameters
    ----------
    codes : ndarray of int, shape (n_samples, n_features)
    n_states : sequence of int
    ordering : sequence of int
        Parents come from earlier in the ordering.
    max_parents : int
    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic"}, default="k2"
    equivalent_sample_size : float, default=10.0
        For ``"bdeu"``.

    Returns
    -------
    parents : dict of int to list of int
        In the order in which they were found.
    scores : dict of int to int
        Scores of the families found, as integers with 24 fractional bits.
    """

    def score(family):
        counts = family_counts(codes, family, n_states)
        n_configurations = counts[0].size
        terms = score_terms(
            criterion,
            len(codes),
            n_states[family[0]],
            n_configurations if criterion == "bdeu" else 1,
            equivalent_sample_size,
        )
        return terms.score(counts)

    parents, scores = {}, {}
    for position, node in enumerate(ordering):
        family, best = [node], score([node])
        while len(family) <= max_parents:
            gains = {
                candidate: score([*family, candidate])
                for candidate in ordering[:position]
                if candidate not in family
            }
            # the first of equals, and only if it is better than what there is
            winner = max(gains, key=gains.get, default=None)
            if winner is None or gains[winner] <= best:
                break
            family.append(winner)
            best = gains[winner]
        parents[node], scores[node] = family[1:], best
    return parents, scores
