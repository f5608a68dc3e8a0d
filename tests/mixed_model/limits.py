"""Fits in one process as at sites that let sums be about so many rows at least."""

import numpy as np

from skprivbn.federation import HostPolicy, InProcessFederation, Program

__all__ = ["fit_with_limit", "listen"]


def listen(one, heard):
    """Return a program that does what another does, and keeps the totals."""

    def watched(me):
        rounds, answer = one.function(me), None
        while True:
            try:
                step = rounds.send(answer)
            except StopIteration as stop:
                return stop.value
            try:
                answer = yield step
            except Exception as refusal:
                step = rounds.throw(refusal)
                answer = yield step
            heard[step.what] = answer

    return Program(watched, one.terms)


def fit_with_limit(model, columns, party, min_rows, factors=("cluster",)):
    """Return what parties read of each sum, the last one of its kind.

    Parameters
    ----------
    model : estimator
    columns : dict of str to ndarray
        Under the names by which parties keep them.
    party : ndarray
    min_rows : int
        Which all parties want.
    factors : sequence of str
        Names of columns of clusters.
    """
    model.n_features_in_ = columns["X"].shape[1]
    terms = model._make_terms(list(factors), "offset" in columns)
    blocks = {
        str(name): {key: values[party == name] for key, values in columns.items()}
        for name in np.unique(party)
    }
    which = -1 if terms.target == "numbers" else 0
    heard, policy = {}, HostPolicy(min_rows=min_rows)
    watched = listen(model.protocols[which], heard)
    with InProcessFederation(
        blocks, watched, terms, "masking", policy=policy
    ) as federation:
        heard["result"] = federation.run()
    return heard
