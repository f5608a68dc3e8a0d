from dataclasses import make_dataclass
from typing import Any

import numpy as np
import pytest

from skprivbn.federation import Terms
from skprivbn.structure._voting import VotingTerms


@pytest.mark.parametrize("method", ["noise", "models", "shows_rows", "check"])
def test_no_field_hides_what_sites_ask_for(method):
    with pytest.raises(TypeError, match=f"hides the method {method}"):
        make_dataclass("Hiding", [(method, int)], bases=(Terms,), frozen=True)


@pytest.mark.parametrize(
    "value", [{1, 2}, 2**70, object(), {3: 1}, np.array([object()]), [[{0.5}]]]
)
def test_what_cannot_travel_is_an_error_where_terms_are_made(value):
    Free = make_dataclass("Free", [("start", Any)], bases=(Terms,), frozen=True)
    assert Free(np.zeros(3)).to_payload()["start"].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="start of Free cannot travel"):
        Free(value)


def test_votes_do_not_take_for_ever():
    learner = ["skprivbn.structure.admm._notears", "Notears"]
    VotingTerms(learner, {"max_iter": 10_000})
    for name in ("max_iter", "n_restarts", "tabu_length", "n_lags"):
        with pytest.raises(ValueError, match=f"{name}=10001 of the learner"):
            VotingTerms(learner, {name: 10_001})
        payload = VotingTerms(learner, {}).to_payload()
        with pytest.raises(ValueError, match="sites do not work that long"):
            VotingTerms.from_payload(payload | {"options": {name: float("inf")}})
