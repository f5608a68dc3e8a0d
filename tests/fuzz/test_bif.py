"""Any network survives a BIF file, and no text does more than be refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivbn.bayesian_network import BayesianNetwork
from tests.fuzz.profiles import fuzzed

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
labels = st.one_of(
    names,
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def networks(draw):
    nodes = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    states, parents, cpts = {}, {}, {}
    for position, node in enumerate(nodes):
        states[node] = tuple(
            draw(st.lists(labels, min_size=1, max_size=3, unique_by=(str, hash)))
        )
        known = draw(st.permutations(nodes[:position]))
        parents[node] = tuple(known[: draw(st.integers(0, 2))])
        shape = [len(states[u]) for u in (*parents[node], node)]
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        cpts[node] = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    return BayesianNetwork(nodes, states, parents, cpts)


SMALL = """
network small { property author "x; y" ; }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 2 ] { yes, no }; property label_types str str ; }
probability ( rain ) { table 0.25, 0.75; }
probability ( wet | rain ) { (yes) 0.9, 0.1; default 1e-1, 9e-1; }
"""
TOKENS = [*'{}()[];,|"\\', " ", "\n", "//", "/*", "*/", "nan", "inf", "-1", "1e999"]
TOKENS += SMALL.split()


def read_or_refuse(text):
    """Read; a text that is accepted describes a proper network."""
    try:
        network = BayesianNetwork.from_bif(text)
    except ValueError as error:
        assert str(error)
        return
    for table in network.cpts.values():
        np.testing.assert_allclose(table.sum(axis=-1), 1.0, atol=1e-5)
    assert BayesianNetwork.from_bif(network.to_bif()) == network


@fuzzed(2)
@given(networks())
def test_round_trip(network):
    back = BayesianNetwork.from_bif(network.to_bif())
    assert back == network
    for node in network.nodes:
        assert [*map(type, back.states[node])] == [*map(type, network.states[node])]


@fuzzed(4)
@given(st.one_of(st.text(), st.lists(st.sampled_from(TOKENS)).map(" ".join)))
def test_any_text_is_read_or_refused(text):
    read_or_refuse(text)


@fuzzed(8)
@given(st.data())
def test_damaged_files_are_read_or_refused(data):
    words = SMALL.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(words) - 1))
        words[position] = data.draw(st.one_of(st.sampled_from(TOKENS), st.text()))
    read_or_refuse(" ".join(words))


def test_a_short_text_cannot_ask_for_a_huge_table():
    parents = [f"x{i}" for i in range(60)]
    text = "\n".join(
        f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}"
        for name in [*parents, "y"]
    )
    text += f"probability ( y | {', '.join(parents)} ) {{ default 0.5, 0.5; }}"
    with pytest.raises(ValueError, match="'y' has 60 parents"):
        BayesianNetwork.from_bif(text)
