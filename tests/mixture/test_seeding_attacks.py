"""What sums of starts tell: of what was drawn, and of who moved."""

import numpy as np
import pytest

from skprivbn.crypto import MaskingBackend
from skprivbn.federation import Federation
from skprivbn.federation.site import _host
from skprivbn.mixture import PPEMGaussianMixture, _start_protocol
from skprivbn.mixture._em_protocol import EMParty
from skprivbn.mixture._seeding import few_moved, random_responsibilities
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


def told_clusters(rows, n_components, **options):
    """Return sizes and sums of clusters of all rounds of k-means and of each start.

    The coordinator works out the centres as the parties do.
    """
    told, frames, add = [], [], Federation.secure_sum

    def watched(method):
        def watch(self, *asked):
            frames.append((self.centres, self.scale, self.unit, self.middle))
            return method(self, *asked)

        return watch

    def listen(federation, operation, payload=None):
        frames.clear()
        total = add(federation, operation, payload)
        if operation in ("cluster_sums", "start"):
            centres, scale, unit, middle = frames[0]
            # those of a start are about the middle
            about = middle + (centres if operation == "cluster_sums" else 0)
            values = np.asarray(total)[: n_components + centres.size] / unit
            sizes, sums = np.split(values, [n_components])
            sums = sums.reshape(centres.shape) * scale + sizes[:, None] * about
            told.append((np.rint(sizes), sums))
        return total

    with pytest.MonkeyPatch.context() as patched:
        for name in ("_own_cluster_sums", "_first_statistics"):
            patched.setattr(StartParty, name, watched(getattr(StartParty, name)))
        patched.setattr(Federation, "secure_sum", listen)
        model = PPEMGaussianMixture(
            n_components, backend="masking", max_iter=0, random_state=0, **options
        )
        model.fit(rows)
    return told


def rows_between(told, X):
    """Return the rows by which two clusters differ that have one row more or less."""
    sizes, sums = (np.concatenate(parts) for parts in zip(*told))
    found = (sums[:, None] - sums)[sizes[:, None] - sizes == 1]
    return [row for row in X if np.any(np.abs(found - row).max(axis=1) < 1e-9)]


def open_tables(folder, X, *columns):
    """Let three sites have rows in turn."""
    tables = {name: X[i::3].tolist() for i, name in enumerate(NAMES)}
    kinds = dict.fromkeys(columns, '"float"')
    return open_sites(folder, tables, kinds, ["PPEMGaussianMixture"]).rows()


def lead_to(monkeypatch, *starts):
    """Stand for seeds by which k-means begins at these centres, one start each."""
    left = {}

    def merge(centroids, sizes, n_clusters, seed):
        centres = left.setdefault(seed, starts[len(left) % len(starts)])
        return np.array(centres)

    monkeypatch.setattr(_start_protocol, "merge_centroids", merge)


pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skprivbn.exceptions.PrivacyLeakWarning",
)


def test_attack_sums_of_clusters_differ_by_the_row_that_moved(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(m, 1.0, (100, 2)) for m in (0, 2.5, 5)]).round(3)
    rows = open_tables(tmp_path, X, "x", "y")
    assert rows_between(told_clusters(rows, 3, n_init=2), X) == []
    # the twin
    tell_as_simulated(monkeypatch)
    assert len(rows_between(told_clusters(rows, 3, n_init=2), X)) > 0


def test_attack_a_round_of_the_next_start_differs_by_one_row(tmp_path, monkeypatch):
    X = np.sort(np.random.default_rng(0).normal(60, 10, 300).round(3))
    middle, (low, high) = X.mean(), np.split(X, [100])
    # two clusters part between their centres: where the first start ends, ...
    centres = np.array([low.mean(), high.mean()])
    n_low = np.searchsorted(X, centres.mean())
    # ... and where the second begins, which is one row further
    nudged = centres + X[n_low : n_low + 2].mean() - centres.mean()
    begins = X[99:101].mean() + np.array([-9.0, 9.0])
    starts = [(c - middle)[:, None] for c in (begins, nudged)]
    monkeypatch.setattr(_start_protocol, "MAX_LLOYD_ROUNDS", 1)
    rows = open_tables(tmp_path, X[:, None], "age")

    def found():
        lead_to(monkeypatch, *starts)
        return rows_between(told_clusters(rows, 2, n_init=2), X[:, None])

    assert found() == []
    # the twin: rounds are remembered, what EM starts from is not
    remember = StartParty._remember

    def forget(self, sizes):
        if not self._operation.startswith("start"):
            remember(self, sizes)

    monkeypatch.setattr(StartParty, "_remember", forget)
    assert found() == [X[n_low]]


def test_attack_of_the_rows_that_moved_one_has_an_entry(tmp_path, monkeypatch):
    x = np.sort(np.random.default_rng(0).normal(60, 10, 300).round(3))
    rare = np.full(300, np.nan)
    rare[:60] = rare[-60:] = np.linspace(0.4, 0.6, 60)
    rare[110] = 0.75
    begins = x[99:101].mean() - x.mean() + np.array([-9.0, 9.0])
    rows = open_tables(tmp_path, np.column_stack([x, rare]), "age", "rare")

    def entry_that_moved():
        lead_to(monkeypatch, np.column_stack([begins, np.zeros(2)]))
        (n_before, before), (n_after, after), *_ = told_clusters(rows, 2, missing="em")
        # what is missing counts as the mean, which the model tells
        n_moved, mean = (n_after - n_before)[0], np.nanmean(rare)
        return (after - before)[0, 1] - (n_moved - 1) * mean

    assert entry_that_moved() != pytest.approx(0.75, abs=1e-4)
    # the twin: rows that moved are counted, entries are not
    monkeypatch.setattr(
        _start_protocol, "few_moved", lambda both, least: few_moved(both[::3], least)
    )
    assert entry_that_moved() == pytest.approx(0.75, abs=1e-4)
