"""What coordinators tell must not pick out single rows, or run foreign code."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector, MaskingBackend
from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import (
    HostPolicy,
    InProcessFederation,
    Party,
    PartyRefusal,
    Terms,
    check_received,
    decode,
    encode,
    operation,
)
from skprivbn.federation.site._rules import find_noise
from skprivbn.mixed_model import PrivateGLMM
from skprivbn.mixed_model._protocol import GLMMParty
from skprivbn.mixed_model._survey import take_survey
from skprivbn.mixture._dp_protocol import (
    INTEGER_UNIT,
    PrivateEMParty,
    PrivateEMTerms,
    sensitivities,
)
from skprivbn.mixture._em_protocol import EMParty
from skprivbn.mixture._terms import Given
from skprivbn.partition import VerticalPartition
from skprivbn.preprocessing._histogram import (
    MAX_LEVELS,
    HistogramParty,
    HistogramTerms,
    find_quantiles,
)
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._options import check_bounds
from skprivbn.protocols import MomentsParty, MomentsTerms
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure._voting import VotingParty, VotingTerms
from skprivbn.structure.gaussian._moments import RowGrid
from skprivbn.structure.gaussian._moments_protocol import (
    HOLDOUT,
    GaussianMomentsParty,
    GaussianMomentsTerms,
)
from skprivbn.structure.k2._protocol import K2Party
from tests.federation.hostile import HostileTerms, other_total


def rows_of(rng, n_parties=3):
    return {f"p{i}": {"X": rng.normal(size=(6, 2))} for i in range(n_parties)}


@pytest.mark.parametrize("value", [np.ones((6, 2)), np.ones(1), 1.0, [1.0, 1.0]])
def test_only_the_right_shape_is_accepted(value):
    with pytest.raises(PartyRefusal):
        check_received(value, (2,))


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(PartyRefusal):
        check_received(np.array([1.0, np.inf]), (2,))
    assert check_received(np.array([1.0, 2.0]), (2,)).tolist() == [1, 2]


def squares_about(mean):
    """Have squares summed about another mean than that of the rows."""
    blocks = rows_of(np.random.default_rng(0))
    terms = MomentsTerms("diagonal")
    with InProcessFederation(blocks, MomentsParty, terms, "masking") as federation:
        total = federation.secure_sum("sums")
        n, absolute = total[0], total[3:]
        forged = other_total(total, np.concatenate([[n], n * mean, absolute]))
        return federation.secure_sum("squares", {"total": forged})


def test_attack_squares_about_another_mean():
    with pytest.raises(PartyError, match="not signed or sealed"):
        squares_about(np.array([50.0, 50.0]))


def test_without_tags_squares_are_about_what_the_coordinator_says(no_tags):
    assert np.all(squares_about(np.array([50.0, 50.0])) > 1e12)


def test_attack_a_unit_for_every_row():
    # infinite units for all rows but one would leave the squares of that one
    blocks = rows_of(np.random.default_rng(0))
    unit = np.full((6, 2), np.inf)
    unit[4] = 1.0
    terms = MomentsTerms("diagonal")
    with InProcessFederation(blocks, MomentsParty, terms, "masking") as federation:
        federation.secure_sum("sums")
        with pytest.raises(PartyError):
            federation.secure_sum("squares", {"mean": np.zeros(2), "unit": unit})


def test_attack_a_cluster_that_only_seems_to_be_shared():
    # tables of clusters with one holder stay there: holders are counted by the
    # parties themselves, whatever the coordinator says
    rng = np.random.default_rng(0)
    blocks = rows_of(rng)
    for name, block in blocks.items():
        block["y"] = rng.integers(0, 2, 6)
        block["cluster"] = np.array(["common"] * 3 + [f"only {name}"] * 3)
    model = PrivateGLMM(min_rows=3)
    model.n_features_in_ = 2
    terms = model._make_terms(["cluster"])
    with InProcessFederation(blocks, GLMMParty, terms, "masking") as federation:
        survey = take_survey(federation, 2)
        assert survey.census.n_holders[0].tolist() == [3, 1, 1, 1]
        # the holders of each cluster stand behind its rows, and these behind squares
        forged = np.array(survey.total)
        forged[2 + 4 : 2 + 8] = 3.0
        with pytest.raises(PartyError):
            federation.call("regress", {"total": other_total(survey.total, forged)})
    with InProcessFederation(blocks, GLMMParty, terms, "masking") as federation:
        total = take_survey(federation, 2).total
        federation.secure_sum("regress", {"total": total})
        for host in federation._hosts.values():
            party = host._party
            assert party.known.n_rows[0].tolist() == [9, 3, 3, 3]
            assert party.known.n_holders[0].tolist() == [3, 1, 1, 1]
            assert party.integral.opened.tolist() == [True, False, False, False]


def test_attack_thresholds_of_the_coordinators_choice():
    blocks = rows_of(np.random.default_rng(0))
    terms = HistogramTerms(2, bounds=np.array([[-5.0, -5.0], [5.0, 5.0]]))
    federation = InProcessFederation(blocks, HistogramParty, terms, "masking")
    with federation, pytest.raises(PartyError):
        federation.secure_sum("counts", {"thresholds": np.zeros((2, 515))})
    many = HostileTerms(terms, n_levels=MAX_LEVELS + 1)
    with pytest.raises(PartyError, match="refuses"):
        InProcessFederation(blocks, HistogramParty, many, "masking").__enter__()


@pytest.mark.parametrize("backend", ["masking", "plaintext"])
def test_counts_below_thresholds_are_for_the_parties(backend):
    """Of cells that hold single rows, the coordinator is not told."""
    blocks = rows_of(np.random.default_rng(0))
    federation = InProcessFederation(blocks, HistogramParty, HistogramTerms(), backend)
    with federation:
        total = federation.secure_sum("counts")
        seen = MaskingBackend().open(HiddenVector.from_payload(total))
        assert np.count_nonzero((seen >= 0) & (seen <= 18)) <= 1


@pytest.mark.parametrize("min_rows", [1, 3, 8])
def test_quantiles_have_rows_between_them(min_rows):
    rng = np.random.default_rng(0)
    rows = np.append(rng.normal(size=29), 1000.0)[:, None]
    blocks = {f"p{i}": {"X": rows[i::3]} for i in range(3)}
    terms = HistogramTerms(11, min_rows=min_rows)
    with InProcessFederation(blocks, HistogramParty, terms, "masking") as federation:
        (found,) = find_quantiles(federation, np.linspace(0, 1, 11))
    edges = np.unique(found)
    assert len(edges) > 2
    # the outlier is an edge only if one row may be
    assert (edges[-1] > 900) == (min_rows == 1)
    inner = [-np.inf, *edges[1:-1], np.inf]
    assert np.histogram(rows, inner)[0].min() >= min_rows


def values_found(min_rows):
    """Return how many of 30 values are found by asking for 257 quantiles of them."""
    rows = np.random.default_rng(0).normal(size=(30, 1))
    blocks = {f"p{i}": {"X": rows[i::3]} for i in range(3)}
    terms = HistogramTerms(MAX_LEVELS, min_rows=min_rows)
    with InProcessFederation(blocks, HistogramParty, terms, "masking") as federation:
        (found,) = find_quantiles(federation, np.linspace(0, 1, MAX_LEVELS))
    return sum(np.abs(found - value).min() < 1e-3 for value in rows.ravel())


def test_attack_more_quantiles_than_rows():
    """The twin: without rows between them, they are the column."""
    assert values_found(min_rows=5) <= 30 / 5
    assert values_found(min_rows=1) == 30


def test_attack_one_party_makes_the_result_up(monkeypatch):
    blocks = rows_of(np.random.default_rng(0))
    terms = HistogramTerms()

    class Lying(InProcessFederation):
        def _exchange(self, requests, timeout):
            replies = super()._exchange(requests, timeout)
            payload = decode(replies["p0"])["payload"]
            if "quantiles" in payload:
                made_up = {"quantiles": payload["quantiles"] + 1}
                replies["p0"] = encode({"ok": True, "payload": made_up})
            return replies

    with Lying(blocks, HistogramParty, terms, "masking") as federation:
        with pytest.raises(ProtocolError, match="disagree"):
            find_quantiles(federation, np.linspace(0, 1, 2))
    # the twin: nobody compares
    monkeypatch.setattr(
        "skprivbn.federation._federation.check_same",
        lambda replies, operation, rtol: next(iter(replies.values())),
    )
    with Lying(blocks, HistogramParty, terms, "masking") as federation:
        found = find_quantiles(federation, np.linspace(0, 1, 2))
    lowest = np.vstack([block["X"] for block in blocks.values()]).min(axis=0)
    np.testing.assert_allclose(found[:, 0], lowest + 1, atol=1e-3)


class Gossip(Party):
    """Shows a row to the peers."""

    def schedule(self):
        yield "whisper"

    @operation(peers="a row", peers_kind="raw rows")
    def whisper(self):
        yield dict.fromkeys(self.peers, {"row": self.block["X"][0]})


@pytest.mark.parametrize("allow", [False, True])
def test_rows_for_peers_are_rows(allow):
    blocks = rows_of(np.random.default_rng(0))
    policy = HostPolicy(allow_rows=allow)
    federation = InProcessFederation(blocks, Gossip, Terms(), "masking", policy=policy)
    with federation:
        if allow:
            federation.converse("whisper")
        else:
            with pytest.raises(PartyError, match="refuses"):
                federation.converse("whisper")


class Adder(Party):
    """Adds a vector with the peers alone."""

    def schedule(self):
        yield "add"
        yield "tell"

    @operation(peers="shares")
    def add(self):
        own = np.array([len(self.block["X"]), -(2**40)])
        self.total = yield from self.add_among_peers(own)

    @operation()
    def tell(self):
        return {"total": self.total}


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
def test_peers_add_without_the_coordinator(n_parties):
    blocks = rows_of(np.random.default_rng(0), n_parties)
    with InProcessFederation(blocks, Adder, Terms(), "masking") as federation:
        federation.converse("add")
        for reply in federation.call("tell").values():
            assert reply["total"].tolist() == [6 * n_parties, -(2**40) * n_parties]


@pytest.mark.parametrize(
    ("module", "name", "parameters"),
    [
        # what a module imports is among its names, too
        ("skprivbn.structure._voting", "import_module", {"name": "this"}),
        ("skprivbn.structure._voting", "BaseEstimator", {}),
        ("skprivbn.structure._voting", "VotingParty", {}),
        ("os", "system", {"command": "true"}),
    ],
)
def test_a_vote_runs_no_code_but_learners_of_the_package(module, name, parameters):
    blocks = rows_of(np.random.default_rng(0))
    terms = VotingTerms([module, name], parameters)
    with pytest.raises(PartyError) as caught:
        InProcessFederation(blocks, VotingParty, terms, "masking").__enter__()
    assert caught.value.code == "refused"


EM = PrivateEMTerms(
    n_components=256,
    covariance_type="diag",
    reg_covar=1e-6,
    max_iter=1,
    init_params="kmeans",
    seeds=[0],
    given=Given(),
    epsilon=1.0,
    delta=1e-6,
    bounds=np.array([[-1.0, -1.0], [1.0, 1.0]]),
    min_honest=None,
)

# no number lies between these: their middle is one of them, and twice as far from the
# other as half of their distance
HAIR = np.array([[1.0, 1.0], [np.nextafter(1, 2), 4.0]])


def test_sums_stay_within_the_sensitivity_for_bounds_a_hair_apart(monkeypatch):
    monkeypatch.setattr(
        DistributedNoise, "share", lambda self, shape: np.zeros(shape, dtype=int)
    )
    terms = MomentsTerms("full", HAIR, epsilon=1.0, delta=1e-6)
    far = {f"p{i}": {"X": np.full((1, 2), 9.0)} for i in range(3)}
    with InProcessFederation(far, MomentsParty, terms, "masking") as federation:
        total = federation.secure_sum("noisy_moments")
    assert np.abs(total).max() <= 3 * terms.unit(2) ** 2


def test_other_sums_do_so_too():
    grid = RowGrid(*HAIR)
    sums = grid.sums(np.full((1, 2), 9.0))
    assert np.linalg.norm(sums) <= grid.l2_sensitivity
    assert np.abs(sums).sum() <= grid.l1_sensitivity
    terms = replace(EM, bounds=HAIR, n_components=2, init_params="random")
    context = SimpleNamespace(name="a", roster=("a", "b", "c"))
    party = PrivateEMParty({"X": np.full((1, 2), 9.0)}, terms, context)
    assert np.abs(party.rows).max() <= 1


# half of their distance is no number above zero: rows at the lower one would be 0 / 0
NO_WIDTH = np.array([[0.0], [5e-324]])


def test_attack_bounds_without_a_width():
    release = {"bounds": NO_WIDTH, "epsilon": 1.0, "delta": 1e-6}
    told = {
        MomentsParty: MomentsTerms("full", **release),
        HistogramParty: HistogramTerms(2, **release),
        PrivateEMParty: replace(EM, bounds=NO_WIDTH),
        GaussianMomentsParty: GaussianMomentsTerms(**release),
    }
    for party_class, terms in told.items():
        with pytest.raises(PartyRefusal):
            find_noise(party_class, terms, 1, 3)
    with pytest.raises(ValueError, match="apart"):
        check_bounds(NO_WIDTH, 1)


@pytest.mark.parametrize(
    "change", [{"max_iter": 1 / 256 - 1}, {"max_iter": -1}, {"n_components": 2.0}]
)
def test_attack_a_fraction_of_a_release(change):
    # noise of a 256th of one release, for which the start alone is made
    assert find_noise(PrivateEMParty, EM, 2, 3).epsilon == 1.0
    with pytest.raises(ValueError, match="must be"):
        PrivateEMTerms.from_payload(EM.to_payload() | change)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_attack_a_start_that_has_no_responsibilities_for_one_row(monkeypatch):
    monkeypatch.setattr(
        DistributedNoise, "share", lambda self, shape: np.zeros(shape, dtype=int)
    )
    given = Given(means=np.full((2, 1), -1.0), precisions=np.full((2, 1), 1.7e308))
    bounds = np.array([[-1.0], [1.0]])
    terms = replace(EM, bounds=bounds, given=given, n_components=2)
    terms = replace(terms, init_params="random")
    context = SimpleNamespace(name="a", roster=("a", "b", "c"))
    sums = []
    for last in (-0.9, 0.9):
        rows = np.array([[-1.0], [-1.0], [last]])
        party = PrivateEMParty({"X": rows}, terms, context)
        party.hide = lambda vector: vector
        sums.append(party.noisy_statistics() / INTEGER_UNIT / party.grid)
    assert np.abs(sums[0] - sums[1]).sum() <= sensitivities("diag", 1)[0]


@pytest.mark.parametrize("party_class", [EMParty, PrivateEMParty])
def test_attack_weights_for_every_row(party_class):
    # all of one component but the fourth row of everybody
    weights = np.tile([0.0, 1.0], (10, 1))
    weights[3] = 1.0, 0.0
    given = Given(weights, np.zeros((2, 2)), np.ones(2))
    terms = replace(EM, n_components=2, covariance_type="spherical", given=given)
    context = SimpleNamespace(name="a", roster=("a", "b", "c"))
    with pytest.raises(PartyRefusal):
        party_class({"X": np.zeros((10, 2))}, terms, context)
    given = replace(given, weights=np.array([0.5, 0.5]))
    party_class({"X": np.zeros((10, 2))}, replace(terms, given=given), context)


def test_attack_bounds_for_every_row():
    # all rows but the first would be clipped to a constant
    bounds = np.zeros((2, 10, 1))
    bounds[:, 0, 0] = -9, 9
    with pytest.raises(PartyRefusal):
        HistogramParty({"X": np.ones((10, 1))}, HistogramTerms(bounds=bounds), None)


@pytest.mark.parametrize("holdout, fine", [(HOLDOUT, True), (1 / 12, False)])
def test_attack_one_row_held_out(holdout, fine):
    # of the party with 12 rows one, of the others none
    blocks = {f"p{i}": {"X": np.ones((n, 2))} for i, n in enumerate((10, 11, 12))}
    terms = HostileTerms(GaussianMomentsTerms(), holdout=holdout)
    federation = InProcessFederation(blocks, GaussianMomentsParty, terms, "masking")
    if fine:
        with federation:
            assert federation.secure_sum("moments")[6] == 9
    else:
        with pytest.raises(PartyError, match="refuses"):
            federation.__enter__()


@pytest.mark.parametrize("min_rows, told", [(3, True), (4, False)])
def test_attack_a_peer_that_has_the_keys_of_a_few(min_rows, told):
    columns = {"clinic": np.arange(20) % 2, "lab": np.arange(20) % 3}
    keys = {"clinic": [f"k{i}" for i in range(20)], "lab": [f"k{i}" for i in range(3)]}
    keys["lab"] += [f"made up {i}" for i in range(17)]
    partition = VerticalPartition(
        {name: values[:, None] for name, values in columns.items()}, keys=keys
    )
    terms = PrivateK2StructureLearner()._terms(partition)
    session = partition.federate(K2Party, terms, min_rows=min_rows)
    with session as federation:
        if told:
            federation.converse("align")
        else:
            with pytest.raises(PartyError, match="fewer rows"):
                federation.converse("align")
