"""Sites whose mechanisms differ."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from skprivbn.exceptions import PartyError
from skprivbn.metrics import skeleton_f1
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedGaussianBayesianNetwork, _site_effects
from skprivbn.structure._site_effects import families
from skprivbn.structure.gaussian._program import NetworkMomentsTerms, network_moments
from tests.federation.site.loopback import open_sites
from tests.federation.test_gate_shares import without_shares


def differing_sites(seed, d=6, n_sites=10, n_rows=100, share=0.5):
    """Linear mechanisms, some of which are drawn anew for every site."""
    rng = np.random.default_rng(seed)
    order, graph = rng.permutation(d), np.zeros((d, d), dtype=bool)
    for i, j in combinations(range(d), 2):
        graph[order[i], order[j]] = rng.random() < 2 / (d - 1)

    def draw():
        return graph * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))

    weights, changes, rows = draw(), rng.random(d) < share, {}
    for k in range(n_sites):
        own = np.where(changes, draw(), weights)
        scale = np.where(changes, np.sqrt(rng.uniform(1, 3, d)), 1.0)
        X = np.zeros((n_rows, d))
        for j in order:
            X[:, j] = X @ own[:, j] + scale[j] * rng.normal(size=n_rows)
        rows[f"site {k}"] = X
    return rows, graph, changes


def fit(rows, **options):
    model = FederatedGaussianBayesianNetwork(**options)
    return model.fit(HorizontalPartition(rows))


def test_mechanisms_that_differ_are_found():
    alike, own, found = [], [], []
    for seed in range(5):
        rows, graph, changes = differing_sites(seed)
        model = fit(rows, site_effects="mechanisms")
        own.append(skeleton_f1(graph, model.adjacency_matrix_))
        alike.append(skeleton_f1(graph, fit(rows).adjacency_matrix_))
        found.append(np.mean(model.changing_mechanisms_ == changes))
    assert np.mean(own) >= 0.95 > np.mean(alike)
    assert np.mean(found) >= 0.8


def test_sites_that_do_not_differ_have_one_mechanism():
    rows, graph, _ = differing_sites(3, share=0.0)
    model = fit(rows, site_effects="mechanisms")
    assert skeleton_f1(graph, model.adjacency_matrix_) >= 0.9
    assert not model.changing_mechanisms_.any()
    assert model.change_pvalues_.min() > 1e-4


def test_p_values_are_those_of_regressions_at_each_site():
    rows, _, _ = differing_sites(0, d=4, n_sites=4)
    model = fit(rows, site_effects="mechanisms")
    for child in range(4):
        parents = np.flatnonzero(model.adjacency_matrix_[:, child])

        def log_likelihood(X, child=child, parents=parents):
            A = np.column_stack([np.ones(len(X)), X[:, parents]])
            rest = X[:, child] - A @ np.linalg.lstsq(A, X[:, child], rcond=None)[0]
            return -len(X) / 2 * np.log(np.mean(rest**2))

        gain = sum(map(log_likelihood, rows.values()))
        gain -= log_likelihood(np.vstack(list(rows.values())))
        p = chi2.sf(2 * gain, 3 * (len(parents) + 2))
        assert model.change_pvalues_[child] == pytest.approx(p, rel=1e-6, abs=1e-300)


def test_the_direction_in_which_fewer_mechanisms_differ_is_chosen():
    rng = np.random.default_rng(0)
    rows = {}
    for k in range(8):  # only the cause has another spread at each site
        cause = rng.normal(scale=1 + k, size=200)
        rows[f"site {k}"] = np.column_stack([cause + rng.normal(size=200), cause])
    model = fit(rows, site_effects="mechanisms")
    assert model.adjacency_matrix_.tolist() == [[False, False], [True, False]]
    assert model.changing_mechanisms_.tolist() == [False, True]


def test_levels_that_differ_are_no_sign_of_noise_that_is_not_normal():
    rng, rows = np.random.default_rng(0), {}
    for k in range(5):
        x, y = rng.normal(size=(2, 200))
        rows[f"site {k}"] = np.column_stack([x, 30 * (x + y)]) + 90 * (-1) ** k
    model = fit(rows, site_effects="levels")
    assert model.method_ == "bic"
    assert model.normality_pvalues_.min() > 0.001
    assert fit(rows).method_ == "lingam"


def test_many_columns_are_searched_by_climbing():
    rows, graph, _ = differing_sites(1, d=16, n_sites=4, n_rows=200)
    model = fit(rows, site_effects="mechanisms")
    assert skeleton_f1(graph, model.adjacency_matrix_) >= 0.8


def test_rules_are_kept():
    rows, graph, _ = differing_sites(0)
    parent, child = np.argwhere(graph)[0].tolist()
    for rules, holds in (
        ({"required_edges": [(child, parent)]}, lambda g: g[child, parent]),
        ({"forbidden_edges": [(parent, child)]}, lambda g: not g[parent, child]),
        ({"tiers": [[3, 4, 5], [0, 1, 2]]}, lambda g: not g[:3, 3:].any()),
    ):
        model = fit(rows, site_effects="mechanisms", search_params=rules)
        assert holds(model.adjacency_matrix_)


def test_researchers_are_told_no_log_likelihood():
    rows, _, _ = differing_sites(0, d=4, n_sites=3)
    terms = NetworkMomentsTerms(max_parents=3)
    partition = HorizontalPartition(rows)
    with partition.federate(network_moments, terms, "masking") as federation:
        found = federation.run()
    assert sorted(found) == [
        *("covariance", "differs", "graph"),
        *("mean", "n_rows", "p_values"),
    ]
    assert found["p_values"].shape == (4,)


def repeated_columns(folder):
    """Three sites: a column repeats another, but for one patient of the first."""
    rng = np.random.default_rng(0)
    tables = {}
    for name in ("north", "south", "west"):
        x, other = rng.normal(size=(2, 60))
        tables[name] = np.column_stack([x, x, other])
    tables["north"][7, 1] += 2.0
    kinds = dict.fromkeys(("a", "b", "c"), '"float"')
    learner = ["FederatedGaussianBayesianNetwork"]
    tables = {name: rows.tolist() for name, rows in tables.items()}
    return open_sites(folder, tables, kinds, learner).rows()


def test_attack_a_column_that_repeats_another_but_for_one_patient(
    tmp_path, monkeypatch
):
    rows, read = repeated_columns(tmp_path), []
    best = _site_effects._best

    def curious(terms, pooled, own, n_sites):
        """Stand in for a party that keeps what it reads."""
        read.append((pooled, own))
        return best(terms, pooled, own, n_sites)

    monkeypatch.setattr(_site_effects, "_best", curious)
    model = FederatedGaussianBayesianNetwork(site_effects="mechanisms")
    with pytest.raises(PartyError) as caught:
        model.fit(rows)
    assert caught.value.code == "too-few-rows"
    assert not read
    # one defence alone: residuals are weighed
    without_shares(monkeypatch)
    with pytest.raises(PartyError, match="log-likelihoods of mechanisms"):
        model.fit(rows)
    # the twin: all rows are said to count alike
    monkeypatch.setattr(
        _site_effects,
        "_weigh_residuals",
        lambda Z, known, lines: np.full((2, sum(map(len, known))), float(len(Z))),
    )
    model.fit(rows)
    pooled, own = read[0]
    names = [tuple(f) for of_size in families(3, 3) for f in of_size.tolist()]
    # two sites say nothing but that b follows from a
    of_one = own[names.index((1, 0))] - 2 * 30 * np.log(1e12)
    variance = np.exp(-of_one / 30) * pooled["covariance"][1, 1]
    assert np.sqrt(60 * variance) == pytest.approx(2.0, rel=0.1)


def test_what_is_not_available_is_said():
    rows, _, _ = differing_sites(0, d=3, n_sites=3, n_rows=40)
    with pytest.raises(ValueError, match="method='pc' is not available with"):
        fit(rows, method="pc", site_effects="mechanisms")
    with pytest.raises(ValueError, match="not available with epsilon"):
        fit(rows, site_effects="levels", epsilon=1.0, bounds=(-5, 5))
    with pytest.raises(TypeError, match="site_effects='levels'"):
        FederatedGaussianBayesianNetwork(centre="party")
