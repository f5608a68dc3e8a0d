"""Which options of the learner exclude each other."""

__all__ = ["check_combinations"]


def check_combinations(learner, several, aligned, states):
    """Refuse what cannot be combined, before anything is spent.

    Parameters
    ----------
    learner : DPCGMLearner
        That knows its columns.
    several : bool
        Whether several holders take part.
    aligned : dict
        `individual` and `sample_weight`, None if not given.
    states : dict or None
        Public states, if they are known.
    """
    psgd = learner.method == "psgd"
    if psgd and learner.epsilon is None:
        raise ValueError("method='psgd' is noise on gradients: it needs epsilon")
    if psgd and learner.delta == 0:
        raise ValueError("method='psgd' needs delta > 0: its guarantee cannot be pure")
    cliques = learner.cliques if isinstance(learner.cliques, str) else None
    mst, chosen_privately = cliques == "mst", cliques in ("aim", "mst")
    refused = {
        "method='psgd'": psgd,
        "epsilon=None": learner.epsilon is None,
    }
    for what, chosen in refused.items():
        if chosen and several:
            raise ValueError(
                f"{what} works for one holder of all rows only, not with party= or "
                "a partition"
            )
    given = [name for name, values in aligned.items() if values is not None]
    if psgd and ("sample_weight" in given or learner.tied or chosen_privately):
        raise ValueError(
            "method='psgd' takes fixed, untied cliques (cliques='chain' or a list) and "
            "rows without weights"
        )
    if psgd and learner.contribution == "clip":
        raise ValueError(
            "method='psgd' takes the mean gradient of a person's rows: use "
            "contribution='normalize' with individual="
        )
    if psgd and learner.missing == "skip":
        raise ValueError("method='psgd' needs complete rows, without missing='skip'")
    if learner.missing == "error" and learner.epsilon is not None:
        raise ValueError(
            "missing='error' would tell, without noise, that a row has a gap: with "
            "epsilon use missing='auto', which leaves such rows out, or 'skip'"
        )
    if mst and learner.epsilon is None:
        raise ValueError("cliques='mst' is a private choice; give the cliques")
    if mst and learner.n_features_in_ < 2:
        raise ValueError("cliques='mst' needs at least two columns")
    for name in ("tied", "structural_zeros"):
        if chosen_privately and getattr(learner, name):
            raise ValueError(
                f"{name}= needs cliques='chain', 'tree' or a list: {cliques!r} chooses "
                "its tables itself"
            )
    if learner.workload is not None and cliques != "aim":
        raise ValueError("workload= is for cliques='aim' only")
    if several and states is None:
        raise ValueError(
            "several holders need states=, the public states of every column, or "
            "categories of all columns: finding out which values occur would need "
            "their rows"
        )
