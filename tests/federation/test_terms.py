from dataclasses import make_dataclass

import pytest

from skprivbn.federation import Terms
from skprivbn.structure._voting import VotingTerms


@pytest.mark.parametrize("method", ["rounds", "n_parameters", "memory", "check"])
def test_no_field_hides_what_sites_ask_for(method):
    with pytest.raises(TypeError, match=f"hides the method {method}"):
        make_dataclass("Hiding", [(method, int)], bases=(Terms,), frozen=True)


def test_votes_are_counted_as_parameters():
    terms = VotingTerms(["skprivbn.structure.admm._notears", "Notears"], {})
    assert terms.n_parameters(3) == 9 + 10
    assert terms.memory(3) == (3, 9)
