"""Private K2 between data holders: what a party does, and what the coordinator asks."""

import numpy as np

from skprivbn.crypto.two_party import joint_counts, open_links, resolve_count_backend
from skprivbn.federation import PartyRefusal, operation
from skprivbn.federation._columns import ColumnsParty
from skprivbn.privacy import CountMechanism, distribute
from skprivbn.structure._k2_base import check_codes, check_states, check_table_sizes
from skprivbn.structure._private_k2_protocol import K2Plan, SharedK2

__all__ = ["K2Party", "count_noise", "run_private_k2"]


def count_noise(epsilon, n_features, n_parties):
    """Noise of the released tables: one record counts once in every family."""
    mechanism = CountMechanism.for_budget(epsilon, l1_sensitivity=n_features)
    return distribute(mechanism, n_parties)


class K2Party(ColumnsParty):
    """A holder of columns. Learns the network, and its peers' sizes."""

    def prepare(self):
        """Check the own columns."""
        try:
            codes = check_codes(self.block["X"])
            declared = self.settings["n_states"]
            if declared is not None:
                declared = [declared[v] for v in self.variables]
            self.n_states = check_states(codes, declared, self.variables)
        except ValueError:
            raise PartyRefusal("invalid-data") from None
        if len(self.variables) != codes.shape[1]:
            raise PartyRefusal("invalid-data")
        # a byte per entry and column by column: the memory that grows with records
        largest = max(self.n_states, default=1)
        self.codes = codes.astype(np.min_scalar_type(largest), order="F")

    def schedule(self):
        """Align, learn, hand over: each once."""
        if self.settings["has_keys"]:
            yield "align"
        yield "learn"
        yield "release"

    def keep(self, records):
        """Keep the records that all parties have."""
        self.codes = self.codes[records]

    @operation(
        peers="numbers of records and states; shares, transfers and garbled circuits"
    )
    def learn(self):
        """Search for the parents of every column; open the tables if asked to."""
        settings, talk = self.settings, self.talk()
        plan = yield from self._agree_on_plan(talk)
        backend = resolve_count_backend(
            settings["backend"], **settings["backend_parameters"]
        )
        links = yield from open_links(talk)
        columns = dict(zip(self.variables, self.codes.T))
        search = SharedK2(
            talk,
            links,
            plan,
            columns,
            backend.make_counts(plan.max_counts),
            joint_counts,
        )
        self.parents = yield from search.learn()
        self.counts = {}
        if settings["fit_parameters"]:
            self.counts = yield from search.open_counts(*self._protection(plan))
        self.plan = plan
        self.n_hash_calls = sum(link.n_calls for link in links.values())
        yield from talk.finish()

    def _agree_on_plan(self, talk):
        """Tell the peers this party's numbers of records and states; hear theirs."""
        settings = self.settings
        n_states = dict(zip(self.variables, self.n_states))
        for peer in talk.peers:
            talk.send(peer, {"n_samples": len(self.codes), "n_states": self.n_states})
        for peer in talk.peers:
            shape = yield from talk.receive(peer)
            held = [v for v, owner in enumerate(settings["owners"]) if owner == peer]
            if shape["n_samples"] != len(self.codes):
                raise PartyRefusal("invalid-data")
            n_states.update(zip(held, shape["n_states"]))
        n_states = tuple(n_states[v] for v in range(len(settings["owners"])))
        try:
            check_table_sizes(n_states, settings["ordering"], settings["max_parents"])
        except ValueError:
            raise PartyRefusal("out-of-range") from None
        return K2Plan(
            tuple(settings["owners"]),
            n_states,
            tuple(settings["ordering"]),
            len(self.codes),
            settings["max_parents"],
            settings["criterion"],
            settings["equivalent_sample_size"],
        )

    def _protection(self, plan):
        """What is done to the counts before they are opened: (table, noise)."""
        minimum, epsilon = self.settings["min_cell_count"], self.settings["epsilon"]
        transform = noise = None
        if minimum > 1:
            counts = np.arange(plan.n_samples + 1)
            transform = np.where(counts < minimum, 0, counts)
        if epsilon is not None:
            n_parties = len(self.context.roster)
            noise = count_noise(epsilon, len(plan.owners), n_parties).share
        return transform, noise

    @operation(tells="the network, as all parties know it")
    def release(self):
        """Hand the result over; it is the same at every party."""
        return {
            "n_samples": len(self.codes),
            "n_states": list(self.plan.n_states),
            "n_hash_calls": self.n_hash_calls,
            "parents": [self.parents[v] for v in range(len(self.plan.owners))],
            "counts": [self.counts[v] for v in sorted(self.counts)],
        }


def run_private_k2(federation, progress):
    """Coordinator's side: let the parties talk, take the result."""
    if federation.settings["has_keys"]:
        federation.converse("align")
    federation.converse("learn", progress=progress)
    return federation.call("release", to=federation.first)[federation.first]
