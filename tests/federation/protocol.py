"""A protocol small enough to see everything it does."""

from dataclasses import dataclass

import numpy as np

from skprivbn.federation import Party, PartyRefusal, Terms, operation


@dataclass(frozen=True)
class MeanTerms(Terms):
    max_rounds: int = 3
    limit: float = np.inf


class MeanParty(Party):
    """Rounds of sums, a question, a conversation and a result."""

    terms = MeanTerms

    def prepare(self):
        self.rows = self.block["X"]
        self.heard = {}

    def schedule(self):
        for _ in range(self.terms.max_rounds):
            chosen = yield (
                "moments",
                "talk",
                "fail",
                "release",
                "scale",
                "session.rotate",
            )
            if chosen == "release":
                return
            if chosen == "moments":
                yield "update"

    @operation(tells="sums of its rows")
    def moments(self):
        return self.hide(np.append(self.rows.sum(axis=0), len(self.rows)))

    @operation(tells="whether to go on", hears="the sum of all rows")
    def update(self, total):
        *sums, count = self.reveal(total)
        self.mean = np.array(sums) / count
        return {"go_on": bool(self.mean[0] < self.terms.limit)}

    @operation(tells="the mean, rounded to integers")
    def release(self):
        return {"mean": np.round(self.mean).astype(int)}

    @operation(tells="a secret number, for its peers only", peers="a greeting")
    def talk(self):
        greetings = {peer: {"from": self.name, "n": 1} for peer in self.peers}
        first = yield greetings
        second = yield {peer: {"n": m["n"] + 1} for peer, m in first.items()}
        self.heard = {peer: message["n"] for peer, message in second.items()}

    @operation(tells="nothing")
    def fail(self, how):
        if how == "refuse":
            raise PartyRefusal("invalid-data")
        if how == "overflow":
            raise OverflowError("the value 31415926 is too large")
        raise RuntimeError("row 31415926 is bad")

    @operation(tells="exact sum of squares", exact=True)
    def scale(self):
        return self.hide((self.rows**2).sum(axis=0))
