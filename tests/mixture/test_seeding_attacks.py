"""What sums of random starts tell somebody who knows what was drawn."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.federation.site import _host
from skprivbn.mixture._em_protocol import EMParty
from skprivbn.mixture._seeding import random_responsibilities
from skprivbn.mixture._start_protocol import sum_and_status
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


def test_attack_sums_of_many_random_starts_are_solved_for_the_rows(hospitals):
    rows, ages = hospitals
    found = solve_for_rows(rows)
    assert abs(np.corrcoef(found, ages)[0, 1]) < 0.5


def test_with_seeds_that_everybody_knows_all_rows_are_found(hospitals, monkeypatch):
    rows, ages = hospitals
    policy = _host.HostPolicy
    monkeypatch.setattr(
        _host, "HostPolicy", lambda *a, **k: policy(*a, **k | {"is_simulated": True})
    )
    found = solve_for_rows(rows)
    # up to centre and unit, which the model tells
    slope, middle = np.polyfit(found, ages, 1)
    np.testing.assert_allclose(slope * found + middle, ages, atol=1e-6)
