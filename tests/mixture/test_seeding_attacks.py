"""What sums of starts tell: of what was drawn, and of who moved."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.federation import Federation
from skprivbn.federation.site import _host
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._em_protocol import EMParty
from skprivbn.mixture._seeding import random_responsibilities
from skprivbn.mixture._start_protocol import StartParty, sum_and_status
from skprivbn.mixture._survey_protocol import survey
from skprivbn.mixture._terms import EMTerms, Given
from tests.federation.site.loopback import open_sites

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


def solve_for_rows(rows):
    """Take the first sums of many starts; return rows that would give these sums."""
    backend, seeds = MaskingBackend(), list(range(N_STARTS))
    terms = EMTerms(
        N_COMPONENTS,
        "spherical",
        reg_covar=1e-6,
        max_iter=0,
        init_params="random",
        seeds=seeds,
        given=Given(),
        lower_bound=-np.inf,
        tol=1e-3,
        covariance_update="exact",
        rotate_keys=False,
        min_rows=20,
        max_sum=backend.max_sum(),
        tell_bounds=False,
    )
    weights, sums = [], []
    with rows.federate(EMParty, terms, backend) as federation:
        survey(federation)
        for seed in seeds:
            total, _ = sum_and_status(federation, "component_sizes", None)
            total, _ = sum_and_status(federation, "start", total)
            federation.call("begin", {"total": total})
            sums += np.asarray(total)[N_COMPONENTS : 2 * N_COMPONENTS].tolist()
            # what every party would draw, by a seed that is among the terms
            drawn = [
                random_responsibilities(
                    N_ROWS,
                    N_COMPONENTS,
                    np.random.RandomState([seed, i] if i else seed),
                )
                for i in range(len(NAMES))
            ]
            weights += np.vstack(drawn).T.tolist()
    return np.linalg.lstsq(np.array(weights), np.array(sums))[0]


def tell_as_simulated(monkeypatch):
    """The twin: sites do as parties of one process do."""
    policy = _host.HostPolicy
    monkeypatch.setattr(
        _host, "HostPolicy", lambda *a, **k: policy(*a, **k | {"is_simulated": True})
    )


def test_attack_sums_of_many_random_starts_are_solved_for_the_rows(hospitals):
    rows, ages = hospitals
    found = solve_for_rows(rows)
    assert abs(np.corrcoef(found, ages)[0, 1]) < 0.5


def test_with_seeds_that_everybody_knows_all_rows_are_found(hospitals, monkeypatch):
    rows, ages = hospitals
    tell_as_simulated(monkeypatch)
    found = solve_for_rows(rows)
    # up to centre and unit, which the model tells
    slope, middle = np.polyfit(found, ages, 1)
    np.testing.assert_allclose(slope * found + middle, ages, atol=1e-6)


def rows_that_moved(rows):
    """Return by what sums of a cluster differ from one round of k-means to the next.

    The coordinator works out the centres as the parties do.
    """
    found, before, add = [], None, Federation.secure_sum
    frames = []

    def watch(self, *asked):
        frames.append((self.centres, self.scale, self.unit, self.middle))
        return sums_of(self, *asked)

    def listen(federation, operation, payload=None):
        nonlocal before
        frames.clear()
        total = add(federation, operation, payload)
        if operation == "cluster_sums":
            centres, scale, unit, middle = frames[0]
            values = np.asarray(total) / unit
            sizes, sums = values[:3], values[3:].reshape(3, -1)
            sums = sums * scale + sizes[:, None] * (centres + middle)
            if before is not None:
                more = np.rint(sizes - before[0])
                found.extend((sums - before[1])[more == 1])
            before = sizes, sums
        return total

    sums_of = StartParty._own_cluster_sums
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StartParty, "_own_cluster_sums", watch)
        patched.setattr(Federation, "secure_sum", listen)
        model = PPEMGaussianMixture(
            3, backend="masking", max_iter=1, n_init=2, random_state=0
        )
        model.fit(rows)
    return np.array(found)


@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
)
def test_attack_sums_of_clusters_differ_by_the_row_that_moved(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(m, 1.0, (100, 2)) for m in (0, 2.5, 5)]).round(3)
    tables = {name: X[i::3].tolist() for i, name in enumerate(NAMES)}
    columns = {"x": '"float"', "y": '"float"'}
    sites = open_sites(tmp_path, tables, columns, ["PPEMGaussianMixture"])
    assert len(rows_that_moved(sites.rows())) == 0
    # the twin
    tell_as_simulated(monkeypatch)
    found = rows_that_moved(sites.rows())
    assert np.abs(X - found[:, None]).max(axis=2).min() < 1e-9
