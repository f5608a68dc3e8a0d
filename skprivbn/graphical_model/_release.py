"""Releasing the tables: by one holder, or by several that trust no curator.

Each holder counts its own rows, adds its share of the noise and hides the result;
only the noisy sum is ever known to anybody.
"""

import numpy as np

from skprivbn.bayesian_network._labels import MISSING, encode
from skprivbn.federation import (
    Party,
    PartyRefusal,
    declare_noise,
    operation,
)
from skprivbn.federation._old_settings import check_noise
from skprivbn.graphical_model._bins import to_labels
from skprivbn.graphical_model._counting import (
    Contribution,
    count_tables,
    sensitivities,
)
from skprivbn.graphical_model._layout import TableLayout
from skprivbn.privacy import CountMechanism, DistributedNoise

__all__ = [
    "TablesParty",
    "check_rows",
    "open_sum",
    "release_tables",
    "tables_settings",
]


def check_rows(block, nodes, states, contribution, missing, bins=None):
    """Return codes, individuals and weights of a holder's rows, or raise ValueError.

    Parameters
    ----------
    block : dict
        "X", and perhaps "individual" and "sample_weight".
    nodes : sequence of str
        Names of the columns.
    states : dict of str to sequence
        Public labels.
    contribution : Contribution
        What one person may add.
    missing : {"error", "skip"}
        Whether entries may be missing.
    bins : dict of str to sequence of numbers, default=None
        Edges of continuous columns.
    """
    codes = encode(to_labels(block["X"], nodes, bins), nodes, states)
    if missing == "error" and (codes == MISSING).any():
        column = nodes[(codes == MISSING).any(axis=0).argmax()]
        raise ValueError(
            f"column {column!r} has missing entries (NaN or None). With "
            "missing='skip' a row is left out of the tables that need its missing "
            "entries"
        )
    individual, weight = block.get("individual"), block.get("sample_weight")
    if (individual is None) != (contribution.kind == "record"):
        raise ValueError(
            "individual= must come with contribution='normalize' or 'clip', and these "
            "need individual="
        )
    if weight is not None:
        weight = _check_weight(weight, contribution)
    return codes, individual, weight


def _check_weight(weight, contribution):
    if contribution.kind == "normalize":
        raise ValueError("sample_weight cannot be combined with 'normalize'")
    weight = np.asarray(weight)
    integers = weight.astype(np.int64)
    if np.any(integers != weight) or np.any(integers < 0):
        raise ValueError("sample_weight must hold non-negative integers")
    if np.any(integers > contribution.max_weight):
        raise ValueError(
            f"sample_weight exceeds max_weight={contribution.max_weight}, the public "
            "bound to which the noise is calibrated"
        )
    return integers


def tables_settings(layout, nodes, states, contribution, missing, noise, bins=None):
    """Public parameters of the protocol, in a form that travels."""
    null_codes = contribution.null_codes
    return {
        "cliques": [list(clique) for clique in layout.cliques],
        "ties": layout.ties.tolist(),
        "nodes": list(nodes),
        "states": [list(states[node]) for node in nodes],
        "contribution": contribution.kind,
        "max_records": contribution.max_records,
        "max_weight": contribution.max_weight,
        "null_codes": None if null_codes is None else list(null_codes),
        "missing": missing,
        "bins": {node: list(edges) for node, edges in (bins or {}).items()},
        "noise": {
            "kind": noise.kind,
            "epsilon": noise.epsilon,
            "delta": noise.delta,
            "scale": noise.scale,
            "sensitivity": noise.sensitivity,
            "n_parties": noise.n_parties,
            "min_honest": noise.min_honest,
        },
    }


class TablesParty(Party):
    """A data holder: counts its rows, adds its share of noise, hides the sum."""

    @classmethod
    def privacy_noise(cls, settings, n_features, n_parties):
        """Return the noise of the tables, calibrated anew."""
        given = settings["noise"]
        contribution = Contribution(
            settings["contribution"], settings["max_records"], settings["max_weight"]
        )
        mechanism = CountMechanism.for_budget(
            given["epsilon"],
            given["delta"],
            *sensitivities(settings["ties"], contribution),
        )
        return check_noise(given, mechanism, n_parties)

    @classmethod
    def survives_losses(cls, settings):
        """Tell whether there is one sum only; more than `min_honest` parties stay."""
        return cls is TablesParty

    def prepare(self):
        """Read the public parameters; rows are looked at only when asked."""
        self.rows, settings = None, self.settings
        states = dict(zip(settings["nodes"], map(tuple, settings["states"])))
        sizes = [len(states[node]) for node in settings["nodes"]]
        null = settings["null_codes"]
        self.states = states
        self.layout = TableLayout(settings["cliques"], sizes, settings["ties"])
        self.contribution = Contribution(
            settings["contribution"],
            settings["max_records"],
            settings["max_weight"],
            None if null is None else tuple(null),
        )
        self.noise = DistributedNoise(**settings["noise"])
        if len(self.context.roster) != self.noise.n_parties:
            raise PartyRefusal("too-few-parties")

    def schedule(self):
        """One sum; where only key holders can read it, they hand it over."""
        yield "tables"
        yield "release"

    @operation(
        tells="its contingency tables plus its share of the noise", kind="noisy release"
    )
    def tables(self):
        """Hide noisy counts."""
        return self.hide_noisy(self.count(self.layout))

    def count(self, layout):
        """Count own rows; those that do not fit the public parameters are refused."""
        if self.rows is None:
            try:
                self.rows = check_rows(
                    self.block,
                    self.settings["nodes"],
                    self.states,
                    self.contribution,
                    self.settings["missing"],
                    self.settings["bins"],
                )
            except ValueError:
                raise PartyRefusal("invalid-data") from None
        codes, individual, weight = self.rows
        return count_tables(codes, layout, self.contribution, individual, weight)

    def hide_noisy(self, counts):
        """Add a fresh share of the noise to integers and hide them."""
        return self.hide(counts + self.noise.share(counts.shape))

    @operation(
        tells="the noisy sum of all tables, as integers",
        kind="noisy release",
        hears="the encrypted sum of all tables",
        hears_kind="ciphertext",
    )
    def release(self, total):
        """Decrypt, and round: full-precision decryptions could betray the key."""
        return {"tables": np.rint(self.reveal(total)).astype(np.int64)}


def release_tables(federation, noise):
    """Coordinator's side: add what it cannot read, get the noisy integers.

    Returns
    -------
    values : ndarray of int64
        Sum over parties of counts and noise shares.
    """
    noise.check_survivors(len(federation.active))
    values = open_sum(federation, "tables")
    declare_noise(federation.ledger, noise, "contingency tables of all rows")
    return values


def open_sum(federation, operation, payload=None, last=True):
    """Sum noisy tables and read the sum, if need be through a key holder.

    All key holders hear of a sum that is not the last: the next one is bound to what
    they were told.

    Returns
    -------
    values : ndarray of int64
    """
    total = federation.secure_sum(operation, payload)
    if isinstance(total, dict):
        readers = federation.first if last else None
        reply = federation.call("release", {"total": total}, to=readers)
        total = reply[federation.first]["tables"]
    return np.rint(total).astype(np.int64)
