"""Discrete networks of sites whose mechanisms differ."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from skprivbn.exceptions import PartyError
from skprivbn.partition import HorizontalPartition
from skprivbn.structure import FederatedBayesianNetwork, _site_effects
from tests.federation.site.loopback import open_sites


def differing_sites(seed=0, n_sites=6, n_rows=400):
    """a -> b -> c: at each site, b follows a in another way, and so does d."""
    rng, rows = np.random.default_rng(seed), {}
    for k in range(n_sites):
        a = rng.random(n_rows) < 0.4
        b = rng.random(n_rows) < np.where(a, *rng.uniform(0.05, 0.95, 2))
        c = rng.random(n_rows) < np.where(b, 0.8, 0.2)
        d = rng.random(n_rows) < rng.uniform(0.1, 0.9)
        rows[f"site {k}"] = np.column_stack([c, d, b, a]).astype(int)
    return rows


def fit(rows, **options):
    model = FederatedBayesianNetwork(states=[2] * 4, **options)
    return model.fit(HorizontalPartition(rows))


def family_likelihood(X, child, parents):
    """Of maximum-likelihood probabilities, row by row."""
    total = 0.0
    for _, part in pd.DataFrame(X).groupby(list(parents) or (lambda _: 0)):
        counts = part[child].value_counts()
        total += np.sum(counts * np.log(counts / len(part)))
    return total


def test_scores_and_p_values_are_those_of_tables_at_each_site():
    rows = differing_sites()
    model = fit(rows, site_effects="mechanisms")
    pooled, n_sites = np.vstack(list(rows.values())), len(rows)
    score = 0.0
    for child in range(4):
        parents = np.flatnonzero(model.adjacency_matrix_[:, child]).tolist()
        own = sum(family_likelihood(X, child, parents) for X in rows.values())
        common = family_likelihood(pooled, child, parents)
        n_numbers = 2 ** len(parents)
        p = chi2.sf(2 * (own - common), (n_sites - 1) * n_numbers)
        assert model.change_pvalues_[child] == pytest.approx(p, rel=1e-5, abs=1e-300)
        cost = n_numbers / 2 * np.log(len(pooled))
        both = common - cost, own - n_sites * cost
        assert model.changing_mechanisms_[child] == (both[1] > both[0])
        score += max(both)
    assert model.log_score_ == pytest.approx(score, abs=0.01)


def test_mechanisms_that_differ_are_found_and_tell_directions():
    model = fit(differing_sites(), site_effects="mechanisms")
    assert model.parents_ == {"x0": ["x2"], "x1": [], "x2": ["x3"], "x3": []}
    assert model.changing_mechanisms_.tolist() == [False, True, True, False]
    # pooled rows say that d goes with b, and not that b depends on a
    assert fit(differing_sites()).parents_ != model.parents_


def test_sites_that_do_not_differ_have_one_mechanism():
    rng = np.random.default_rng(0)
    rows = {f"site {k}": rng.integers(2, size=(400, 4)) for k in range(4)}
    model = fit(rows, site_effects="mechanisms")
    assert not model.changing_mechanisms_.any()
    assert model.change_pvalues_.min() > 1e-4
    assert not model.adjacency_matrix_.any()
    plain = fit(rows)
    assert not hasattr(plain, "change_pvalues_")


def test_rules_are_kept():
    options = {"tiers": [["x0"], ["x1", "x2", "x3"]]}
    model = fit(differing_sites(), site_effects="mechanisms", search_params=options)
    assert not model.adjacency_matrix_[1:, 0].any()


def test_counts_in_steps_are_those_that_likelihoods_are_of():
    rows = differing_sites()
    model = fit(rows, site_effects="mechanisms", count_params={"min_cell_count": 5})
    assert model.changing_mechanisms_.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"criterion": "bdeu"}, "needs criterion='bic'"),
        ({"method": "ges"}, "needs method='hill_climbing' or 'k2'"),
        ({"search_params": {"n_bootstrap": 2}}, "needs n_bootstrap=0"),
        ({"epsilon": 1.0}, "site_effects is not available with epsilon"),
    ],
)
def test_what_is_not_available_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        fit(differing_sites(), site_effects="mechanisms", **options)


def opposite_columns(folder):
    """At north, b is a; at south, it is the opposite, but for one patient."""
    rng, tables = np.random.default_rng(0), {}
    for name in ("north", "south", "west"):
        a = np.repeat([0, 1], 60)
        tables[name] = np.column_stack([a, a, rng.permutation(a)])
    tables["south"][:, 1] = 1 - tables["south"][:, 0]
    tables["south"][7, 1] = 0
    kinds = dict.fromkeys(("a", "b", "c"), '["0", "1"]')
    tables = {name: rows.astype(str).tolist() for name, rows in tables.items()}
    learner, rules = ["FederatedBayesianNetwork"], "min_cell_count = 1"
    return open_sites(folder, tables, kinds, learner, rules).rows()


def test_attack_likelihoods_of_one_patient(tmp_path, monkeypatch):
    """Tables of all sites have many rows in every cell; a site's own has one.

    Sites that tell counts in steps leave it out; these do not.
    """
    rows = opposite_columns(tmp_path)
    read, keep = {}, _site_effects.AskedLikelihoods._keep

    def curious(self, variables, numbers):
        """Stand in for a party that keeps what it reads."""
        read[variables] = numbers
        keep(self, variables, numbers)

    monkeypatch.setattr(_site_effects.AskedLikelihoods, "_keep", curious)
    model = FederatedBayesianNetwork(site_effects="mechanisms")
    with pytest.raises(PartyError) as caught:
        model.fit(rows)
    assert caught.value.code == "too-few-rows"
    assert not read
    # the twin: all rows are said to count alike
    plain = _site_effects.RowWeights
    monkeypatch.setattr(
        _site_effects,
        "RowWeights",
        lambda total, squares: plain(np.full(len(total), 120.0), None),
    )
    model.fit(rows)
    families = _site_effects.families_within((0, 1))
    told = read[0, 1][families.index((1, (0,)))]
    assert told == pytest.approx(59 * np.log(59 / 60) + np.log(1 / 60), abs=1e-4)
