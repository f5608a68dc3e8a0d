import gzip
import re
import tracemalloc
from pathlib import Path
from time import process_time

import numpy as np
import pgmpy
import pytest
from pgmpy.readwrite import BIFReader

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import load_alarm, load_asia, load_child, load_insurance

SMALL = """
network small { property author "x; y" ; }
// a comment
variable rain { type discrete [ 2 ] { yes, no }; }
variable wet { type discrete [ 2 ] { yes, no }; property position (1, 2) ; }
probability ( rain ) { table 0.25, 0.75; }
probability ( wet | rain ) {
  (yes) 0.9, 0.1; /* a comment
  on two lines */
  (no) 1e-1, 9e-1;
}
"""


@pytest.mark.parametrize(
    "load",
    [load_asia, load_alarm, load_child, load_insurance],
    ids=lambda f: f.__name__,
)
def test_round_trip_of_published_networks(load):
    network = load()
    assert BayesianNetwork.from_bif(network.to_bif()) == network


def test_round_trip_keeps_every_digit_and_every_type():
    rng = np.random.default_rng(0)
    nodes = ["plain", 'with "quotes" \\', "a b, {c} | [d] (e); //", "naïve"]
    states = [(0, 1, 2), (True, False), (0.1, 1e-300, "0.1x", 5), ("", " ", "table")]
    parents = [(), ("plain",), ("plain", 'with "quotes" \\'), ("plain",)]
    shapes = [(3,), (3, 2), (3, 2, 4), (3, 3)]
    cpts = [rng.dirichlet(np.ones(s[-1]), size=s[:-1]) for s in shapes]
    network = BayesianNetwork(nodes, states, parents, cpts)
    back = BayesianNetwork.from_bif(network.to_bif())
    assert back == network
    assert [type(s) for s in back.states[nodes[2]]] == [float, float, str, int]


def test_pgmpy_reads_what_we_write():
    network = load_asia()
    model = BIFReader(string=network.to_bif()).get_model()
    for cpd in model.get_cpds():
        names = [*network.parents[cpd.variable], cpd.variable]
        ours = network.cpts[cpd.variable]
        for index in np.ndindex(ours.shape):
            labels = {v: network.states[v][k] for v, k in zip(names, index)}
            assert cpd.get_value(**labels) == ours[index]


def test_types_of_labels_are_one_word_that_all_readers_take():
    """The grammar of pyAgrum has one identifier or one number after the name."""
    network = BayesianNetwork(
        ["a", "b"], [2, 3], {"b": ["a"]}, [[1, 0], [[1, 0, 0]] * 2]
    )
    text = network.to_bif()
    properties = re.findall("property.*", text)
    assert properties == [
        f"property label_types {t} ;" for t in ("int_int", "int_int_int")
    ]
    assert BIFReader(string=text).get_model().get_cpds("b").get_value(a="1", b="0") == 1
    assert BayesianNetwork.from_bif(text) == network
    # as release 0.2 wrote them
    assert BayesianNetwork.from_bif(text.replace("int_", "int ")) == network


def test_files_are_written_and_read(tmp_path):
    network, path = load_asia(), tmp_path / "asia.bif"
    assert network.to_bif(path) == path.read_text()
    assert BayesianNetwork.from_bif(path) == network
    assert BayesianNetwork.from_bif(str(path)) == network
    with pytest.raises(FileNotFoundError, match="none.bif"):
        BayesianNetwork.from_bif("none.bif")


def test_blanks_separate_as_commas_do():
    blanks = SMALL.replace("yes, no", "yes no").replace("0.25, 0.75", "0.25 0.75")
    assert BayesianNetwork.from_bif(blanks) == BayesianNetwork.from_bif(SMALL)


def test_comments_properties_and_default_rows():
    network = BayesianNetwork.from_bif(SMALL)
    assert network.nodes == ("rain", "wet")
    assert network.cpts["wet"].tolist() == [[0.9, 0.1], [0.1, 0.9]]
    defaulted = BayesianNetwork.from_bif(SMALL.replace("(no)", "default"))
    assert defaulted == network


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(no) 1e-1, 9e-1;", "", "no probabilities for ('no',)"),
        ("(no)", "(maybe)", "line 10: 'maybe' is not a state of 'rain'"),
        ("(no)", "(yes)", "given twice"),
        ("(no)", "(no, no)", "has 1 parents"),
        ("(no)", "table", "one row per configuration"),
        ("(no)", "nonsense", "expected a row of probabilities"),
        ("0.25, 0.75", "0.25", "expected 2 probabilities, got 1"),
        ("0.25, 0.75", "0.25, 0.7x", "expected probabilities"),
        ("0.25, 0.75", "0.25, 0.7", "must sum to 1"),
        ("wet | rain", "wet | snow", "'snow' must be declared"),
        ("variable wet", "variable rain", "declared twice"),
        ("probability ( rain )", "probability ( wet )", "given twice"),
        ("[ 2 ]", "[ 3 ]", "3 states are announced, 2 are listed"),
        ("discrete", "continuous", "only variables of type discrete"),
        ("{ yes, no }", "{ yes, yes }", "listed twice"),
        ("network small", "netwrk small", "expected network, variable or probability"),
        ("property position (1, 2) ;", "property label_types int ;", "do not fit"),
        (
            "probability ( rain ) { table 0.25, 0.75; }",
            "",
            "no probabilities for 'rain'",
        ),
    ],
)
def test_errors_say_what_is_wrong(old, new, message):
    text = SMALL.replace(old, new)
    assert text != SMALL
    with pytest.raises(ValueError, match=re.escape(message)):
        BayesianNetwork.from_bif(text)


def test_every_truncation_is_an_error():
    text = SMALL.strip()
    for end in range(len(text)):
        with pytest.raises(ValueError):
            BayesianNetwork.from_bif(text[:end])


def test_an_open_quotation_mark_is_found():
    with pytest.raises(ValueError, match="line 2: a quotation mark is not closed"):
        BayesianNetwork.from_bif('network unknown {}\nvariable "x { }')


@pytest.mark.parametrize("n", [1, 500_000])
@pytest.mark.parametrize("opened", ["/* ", "rain /* ", "/* rain /*"])
def test_an_open_comment_is_found_at_its_first_line(opened, n):
    # each of half a million used to be looked for up to the end of the text
    with pytest.raises(ValueError, match="line 2: a comment is not closed"):
        BayesianNetwork.from_bif("network unknown {}\n" + opened * n)


def test_a_comment_is_never_read_as_words():
    # not even if what follows cannot be read
    text = "network unknown {}\n" + "// variable rain\n" * 3
    with pytest.raises(ValueError, match="line 5: a quotation mark is not closed"):
        BayesianNetwork.from_bif(text + '"')
    assert BayesianNetwork.from_bif(SMALL + "// open /* \n/* // */") is not None


def defaults(n_parents, n_children, n_states=2):
    """Return a short text of tables that default rows stand for."""
    labels = ", ".join(f"s{k}" for k in range(n_states))
    row = ", ".join([repr(1 / n_states)] * n_states)
    parents = [f"u{i}" for i in range(n_parents)]
    given = dict.fromkeys(parents, "")
    given |= {f"v{i}": f"| {', '.join(parents)}" for i in range(n_children)}
    declared = [
        f"variable {v} {{ type discrete [ {n_states} ] {{ {labels} }}; }}"
        for v in given
    ]
    rows = [f"probability ( {v} {u} ) {{ default {row}; }}" for v, u in given.items()]
    return "\n".join(declared + rows)


@pytest.mark.parametrize(
    "size, message",
    [
        ((19, 1), "default rows .* 'v0' stand for 1048.* at most 1000000"),
        # none of the tables is too large for itself
        ((16, 20), "default rows .* 'v7' stand for 1048.* at most 1000000"),
        ((40, 1), "40 parents and a table of 2199023255552 entries"),
        ((40, 1, 1), "40 parents and a table of 1 entries; at most 31 parents"),
        ((3, 1, 100), "3 parents and a table of 100000000 entries"),
    ],
)
def test_default_rows_of_a_short_text_do_not_fill_the_memory(size, message):
    text = defaults(*size)
    assert len(text) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message):
            BayesianNetwork.from_bif(text)
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_default_rows_beside_others():
    text = defaults(12, 2).replace(
        "default 0.5, 0.5; }", "(s0) 1, 0; default 0.5, 0.5; }"
    )
    text = re.sub(r"(probability \( u\d+  \) \{ )\(s0\) 1, 0; ", r"\1", text)
    text = text.replace("(s0) 1, 0", f"({', '.join(['s1', *['s0'] * 11])}) 1, 0")
    cpt = BayesianNetwork.from_bif(text).cpts["v1"]
    expected = np.full((2,) * 13, 0.5)
    expected[(1,) + (0,) * 11] = [1, 0]
    np.testing.assert_array_equal(cpt, expected)


@pytest.mark.parametrize("text", ["", "network unknown { }", " // nothing"])
def test_a_network_without_variables_is_refused(text):
    with pytest.raises(ValueError, match="declares no variable"):
        BayesianNetwork.from_bif(text)


PGMPYS = sorted((Path(pgmpy.__file__).parent / "utils/example_models").glob("*.bif.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PGMPYS, ids=lambda path: path.name)
def test_networks_of_pgmpy_are_read_written_and_asked(path):
    """Those that come with the installed pgmpy; the largest has 1041 nodes."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    start = process_time()
    network = BayesianNetwork.from_bif(text)
    assert BayesianNetwork.from_bif(network.to_bif()) == network
    last = network.nodes[network.topological_order[-1]]
    # the second question is for all nodes at once, where that is not too much
    for _ in range(2):
        try:
            assert network.query(last).sum() == pytest.approx(1)
        except ValueError as error:
            assert "too densely connected" in str(error)
    assert process_time() - start < 30
