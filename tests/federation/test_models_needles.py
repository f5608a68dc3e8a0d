"""What coordinators tell must not pick out single rows, or run foreign code."""

from dataclasses import replace

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import (
    InProcessFederation,
    Me,
    PartyRefusal,
    check_received,
)
from skprivbn.mixture._em import em
from skprivbn.mixture._noisy_em import PrivateEMTerms, noisy_em, sensitivities
from skprivbn.mixture._seeding import EMTerms, Given
from skprivbn.partition import VerticalPartition
from skprivbn.privacy import DistributedNoise
from skprivbn.privacy._options import check_bounds
from skprivbn.programs import MomentsTerms, moments
from skprivbn.structure import PrivateK2StructureLearner
from skprivbn.structure._voting import VotingTerms, voting
from skprivbn.structure.gaussian._program import NetworkMomentsTerms
from skprivbn.structure.k2._program import private_k2


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


@pytest.mark.parametrize(
    ("module", "name", "parameters"),
    [
        # what a module imports is among its names, too
        ("skprivbn.structure._voting", "import_module", {"name": "this"}),
        ("skprivbn.structure._voting", "BaseEstimator", {}),
        ("skprivbn.structure._voting", "VotingTerms", {}),
        ("os", "system", {"command": "true"}),
    ],
)
def test_a_vote_runs_no_code_but_learners_of_the_package(module, name, parameters):
    blocks = rows_of(np.random.default_rng(0))
    terms = VotingTerms([module, name], parameters)
    with InProcessFederation(blocks, voting, terms, "masking") as federation:
        with pytest.raises(PartyError) as caught:
            federation.run()
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
    with InProcessFederation(far, moments, terms, "masking") as federation:
        total = federation.run()["noisy"]
    assert np.abs(total).max() <= 3 * terms.unit(2) ** 2


def test_other_sums_do_so_too():
    terms = replace(EM, bounds=HAIR, n_components=2, init_params="random")
    first = next(noisy_em(Me({"X": np.full((1, 2), 9.0)}, terms, "a", ("a", "b"))))
    l1, l2 = sensitivities("diag", 2)
    change = first.counts / terms.grid(2)
    assert np.abs(change).sum() <= l1 and np.linalg.norm(change) <= l2


# half of their distance is no number above zero: rows at the lower one would be 0 / 0
NO_WIDTH = np.array([[0.0], [5e-324]])


def test_attack_bounds_without_a_width():
    release = {"bounds": NO_WIDTH, "epsilon": 1.0, "delta": 1e-6}
    told = [
        MomentsTerms("full", **release),
        replace(EM, bounds=NO_WIDTH),
        NetworkMomentsTerms(**release),
    ]
    for terms in told:
        with pytest.raises(ValueError, match="apart"):
            terms.noise(1, 3)
    with pytest.raises(ValueError, match="apart"):
        check_bounds(NO_WIDTH, 1)


@pytest.mark.parametrize(
    "change", [{"max_iter": 1 / 256 - 1}, {"max_iter": -1}, {"n_components": 2.0}]
)
def test_attack_a_fraction_of_a_release(change):
    # noise of a 256th of one release, for which the start alone is made
    assert EM.noise(2, 3).epsilon == 1.0
    with pytest.raises(ValueError, match="must be"):
        PrivateEMTerms.from_payload(EM.to_payload() | change)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_attack_a_start_that_has_no_responsibilities_for_one_row():
    given = Given(means=np.full((2, 1), -1.0), precisions=np.full((2, 1), 1.7e308))
    bounds = np.array([[-1.0], [1.0]])
    terms = replace(EM, bounds=bounds, given=given, n_components=2)
    terms = replace(terms, init_params="random")
    sums = []
    for last in (-0.9, 0.9):
        rows = np.array([[-1.0], [-1.0], [last]])
        first = next(noisy_em(Me({"X": rows}, terms, "a", ("a", "b", "c"))))
        sums.append(first.counts / terms.grid(1))
    assert np.abs(sums[0] - sums[1]).sum() <= sensitivities("diag", 1)[0]


SHAPE = {"n_components": 2, "covariance_type": "spherical"}
EXACT = EMTerms(
    **SHAPE,
    reg_covar=1e-6,
    max_iter=1,
    init_params="given",
    seeds=[0],
    given=Given(),
    lower_bound=-np.inf,
    tol=1e-3,
    covariance_update="exact",
    rotate_keys=False,
    min_rows=1,
)


@pytest.mark.parametrize(
    "program, terms", [(em, EXACT), (noisy_em, replace(EM, **SHAPE))], ids=str
)
def test_attack_weights_for_every_row(program, terms):
    # all of one component but the fourth row of everybody
    weights = np.tile([0.0, 1.0], (10, 1))
    weights[3] = 1.0, 0.0
    given = Given(weights, np.zeros((2, 2)), np.ones(2))
    block, roster = {"X": np.zeros((10, 2))}, ("a", "b", "c")
    with pytest.raises(PartyRefusal):
        next(program(Me(block, replace(terms, given=given), "a", roster)))
    given = replace(given, weights=np.array([0.5, 0.5]))
    next(program(Me(block, replace(terms, given=given), "a", roster)))


@pytest.mark.parametrize("min_rows, told", [(3, True), (4, False)])
def test_attack_a_peer_that_has_the_keys_of_a_few(min_rows, told):
    columns = {"clinic": np.arange(20) % 2, "lab": np.arange(20) % 3}
    keys = {"clinic": [f"k{i}" for i in range(20)], "lab": [f"k{i}" for i in range(3)]}
    keys["lab"] += [f"made up {i}" for i in range(17)]
    partition = VerticalPartition(
        {name: values[:, None] for name, values in columns.items()},
        keys=keys,
        reveal_membership=True,
    )
    terms = PrivateK2StructureLearner()._terms(partition)
    session = partition.federate(private_k2, terms, min_rows=min_rows)
    with session as federation:
        if told:
            assert federation.run()["n_samples"] == 3
        else:
            with pytest.raises(PartyError, match="fewer than min_rows of its records"):
                federation.run()
