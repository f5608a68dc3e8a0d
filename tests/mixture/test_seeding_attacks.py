"""What sums of starts tell: of what was drawn, and of who moved."""

import numpy as np
import pytest

from skprivbn.crypto import HiddenVector
from skprivbn.exceptions import ProtocolError
from skprivbn.federation import InProcessFederation, decode, runner
from skprivbn.federation.site import _host
from skprivbn.mixture import PPEMGaussianMixture
from tests.crypto.micro_federation import read_without_keys
from tests.federation.site.loopback import open_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
)
NAMES = ("north", "south", "west")
N_ROWS, N_COMPONENTS, N_STARTS = 30, 3, 50


@pytest.fixture
def hospitals(tmp_path):
    """Three plain sites, and their ages."""
    ages = np.random.default_rng(0).normal(60, 10, (3, N_ROWS)).round(2)
    tables = {name: mine[:, None].tolist() for name, mine in zip(NAMES, ages)}
    columns = {"age": '"float"'}
    sites = open_sites(tmp_path, tables, columns, ["PPEMGaussianMixture"])
    return sites.rows(), ages.ravel()


def solve_for_rows(rows, monkeypatch):
    """Read the first sums of many starts, as an insider does; solve for the rows."""
    read, check = [], runner.check_rows

    def watched(total, n_values, what, *words):
        if what.startswith("sums of first responsibilities"):
            read.append(total[:n_values])
        return check(total, n_values, what, *words)

    monkeypatch.setattr(runner, "check_rows", watched)
    PPEMGaussianMixture(
        N_COMPONENTS,
        covariance_type="spherical",
        init_params="random",
        n_init=N_STARTS,
        max_iter=0,
        random_state=0,
    ).fit(rows)
    # every party has read the same
    sums = read[:: len(NAMES)]
    assert len(sums) == N_STARTS
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=N_STARTS)
    seeds[0] = 0
    weights = []
    for seed in seeds:
        # what every party would draw, by a seed that is among the terms
        own = [[seed, i] if i else seed for i in range(len(NAMES))]
        states = [np.random.RandomState(s) for s in own]
        drawn = np.vstack([s.uniform(size=(N_ROWS, N_COMPONENTS)) for s in states])
        weights += (drawn / drawn.sum(axis=1, keepdims=True)).T.tolist()
    firsts = np.concatenate([s[N_COMPONENTS : 2 * N_COMPONENTS] for s in sums])
    return np.linalg.lstsq(np.array(weights), firsts)[0]


def test_attack_sums_of_many_random_starts_are_solved_for_the_rows(
    hospitals, monkeypatch
):
    rows, ages = hospitals
    found = solve_for_rows(rows, monkeypatch)
    assert abs(np.corrcoef(found, ages)[0, 1]) < 0.5


def test_with_seeds_that_everybody_knows_all_rows_are_found(hospitals, monkeypatch):
    rows, ages = hospitals
    policy = _host.HostPolicy
    # the twin: sites do as parties of one process do
    monkeypatch.setattr(
        _host, "HostPolicy", lambda *a, **k: policy(*a, **k | {"is_simulated": True})
    )
    found = solve_for_rows(rows, monkeypatch)
    # up to centre and unit, which the model tells
    slope, middle = np.polyfit(found, ages, 1)
    np.testing.assert_allclose(slope * found + middle, ages, atol=1e-6)


def rows_that_moved(X, backend, monkeypatch):
    """Fit two clusters; return the rows by which sums of two rounds differ.

    The coordinator opens the totals of all steps of k-means as well as it can. Clusters
    of one column are summed about their centres, which it works out as parties do.
    """
    totals, exchange = [], InProcessFederation._exchange

    def listen(self, requests, timeout):
        payload = decode(next(iter(requests.values())))["payload"]
        if "total" in payload:
            totals.append(payload["total"])
        return exchange(self, requests, timeout)

    monkeypatch.setattr(InProcessFederation, "_exchange", listen)
    centres = [-9.0, 9.0] + X[99:101].mean() - X.mean()
    monkeypatch.setattr(
        "skprivbn.mixture._seeding.merge_centroids", lambda *asked: centres[:, None]
    )
    model = PPEMGaussianMixture(2, backend=backend, max_iter=0, random_state=0)
    model.fit(X[:, None], party=np.arange(len(X)) % 3)
    told, scale = [], X.std()
    for payload in totals[2:-1]:
        try:
            opened = read_without_keys(HiddenVector.from_payload(payload))
        except (NotImplementedError, ProtocolError):
            continue
        sizes, steps = opened[:2], opened[2:4] * scale
        told.append((sizes, steps + sizes * (centres + X.mean())))
        centres = centres + steps / sizes
    found = [
        (after - before)[0]
        for n_before, before in told
        for n_after, after in told
        if np.round(n_after - n_before)[0] == 1
    ]
    return [x for x in X if np.any(np.abs(np.array(found) - x) < 1e-6)]


@pytest.mark.parametrize("backend", ["masking", "ckks", "plaintext"])
def test_attack_sums_of_clusters_differ_by_the_row_that_moved(backend, monkeypatch):
    X = np.sort(np.random.default_rng(4).normal(60, 10, 300).round(3))
    moved = rows_that_moved(X, backend, monkeypatch)
    # the twin reads them in the clear
    assert (len(moved) > 0) == (backend == "plaintext")
