"""The headline estimators on shipped data, split over parties.

Run by ``make demo``. For each it prints scores next to those of the same model on
pooled rows, the cost in bytes and rounds, and who learnt what.
"""

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.bayesian_network import BayesianNetwork, CollectiveBayesianNetwork
from skprivbn.datasets import (
    load_adult,
    load_asia,
    load_parkinsons,
    load_sachs,
    make_linear_sem,
    split_horizontal,
)
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.federation import KINDS
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.metrics import kl_divergence, structural_hamming_distance
from skprivbn.mixed_model import PrivateGLMM
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    K2StructureLearner,
    PrivateK2StructureLearner,
)

ASIA = load_asia()
SITES = {
    "clinic": ["asia", "smoke", "bronc", "dysp"],
    "lab": ["tub", "lung", "either", "xray"],
}


def mixture():
    """Five clinics describe voice recordings by a mixture of two Gaussians."""
    X, _ = load_parkinsons(return_X_y=True)
    party = split_horizontal(X, n_parties=5, random_state=0)
    scaler = FederatedStandardScaler().fit(X, party=party)
    pca = FederatedPCA(n_components=2).fit(scaler.transform(X), party=party)
    Z = pca.transform(scaler.transform(X))
    model = PPEMGaussianMixture(n_components=2, random_state=0).fit(Z, party=party)
    pooled = make_pipeline(
        StandardScaler(), PCA(2), GaussianMixture(n_components=2, random_state=0)
    ).fit(X)
    scores = {
        "encrypted sums over five clinics": f"{model.score(Z):.6f}",
        "GaussianMixture on pooled rows": f"{pooled.score(X):.6f}",
    }
    return "mean log-likelihood per recording", scores, model.ledger_


def one_sum():
    """Ten laboratories find a network of 20 variables with a single secure sum."""
    X, weights = make_linear_sem(200, 20, random_state=0)
    return _structure(FederatedGaussianBayesianNetwork(), X, weights != 0)


def notears_admm():
    """Ten laboratories agree on the protein network of Sachs et al. in rounds."""
    sachs = load_sachs()
    return _structure(FederatedNotearsADMM(), sachs.data, sachs.adjacency_matrix)


def _structure(learner, X, truth):
    party = split_horizontal(X, n_parties=10, random_state=0)
    learner.fit(X, party=party)
    scores = {"ten laboratories": learner.adjacency_matrix_}
    ledger = learner.ledger_
    mine = party == party[0]
    scores["one of them alone"] = learner.fit(X[mine]).adjacency_matrix_
    scores["all rows pooled"] = learner.fit(X).adjacency_matrix_
    distances = {
        name: str(structural_hamming_distance(truth, adjacency))
        for name, adjacency in scores.items()
    }
    measure = f"structural Hamming distance to the truth of {truth.sum()} edges"
    return measure, distances, ledger


def private_k2():
    """A clinic and a lab find who depends on whom, on secret shares of counts."""
    X = _asia_rows(2000)
    order = ASIA.topological_order
    private = PrivateK2StructureLearner(SITES, ordering=order).fit(X)
    pooled = K2StructureLearner(ordering=order).fit(X)
    same = private.network_.edges == pooled.network_.edges
    scores = {
        "private": f"{private.score(X):.6f}",
        "K2 on pooled columns": f"{pooled.score(X):.6f}",
        "same structure": str(same),
    }
    return "mean log-likelihood per record", scores, private.ledger_


def collective():
    """The same two sites join their own networks by links across sites."""
    X = _asia_rows(6000)
    scores = {}
    for disclosure in ("private_counts", "rows"):
        model = CollectiveBayesianNetwork(
            SITES,
            ordering=ASIA.topological_order,
            disclosure=disclosure,
            random_state=0,
        ).fit(X)
        shown = f"{model.communicated_fraction_:.0%} of the rows shown"
        scores[f"{disclosure}, {shown}"] = f"{kl_divergence(ASIA, model.network_):.5f}"
        if disclosure == "private_counts":
            ledger = model.ledger_
    pooled = BayesianNetwork.from_data(X, ASIA.parents, states=ASIA.states, alpha=1.0)
    scores["true structure, pooled columns"] = f"{kl_divergence(ASIA, pooled):.5f}"
    return "Kullback-Leibler distance from the truth", scores, ledger


def _asia_rows(n_rows):
    return pd.DataFrame(ASIA.sample(n_rows, random_state=0), columns=ASIA.nodes)


def mixed_model():
    """Four hospitals fit a logistic model with effects of 30 wards they share."""
    rng = np.random.default_rng(0)
    ward = rng.integers(30, size=1500)
    X = rng.normal(size=(1500, 2))
    logit = 0.3 + X @ [1.0, -0.5] + rng.normal(scale=0.8, size=30)[ward]
    y = rng.uniform(size=1500) < 1 / (1 + np.exp(-logit))
    party = split_horizontal(X, n_parties=4, random_state=0)
    model = PrivateGLMM().fit(X, y, cluster=ward, party=party)
    pooled = PrivateGLMM(backend="plaintext").fit(X, y, cluster=ward)
    scores = {
        name: f"{fit.coef_.ravel().round(4)}, {fit.random_effect_scale_:.4f}"
        for name, fit in [("four hospitals", model), ("all rows pooled", pooled)]
    }
    return "slopes (truth 1, -0.5), scale of effects (0.8)", scores, model.ledger_


def private_field():
    """Four offices publish a model of census rows with differential privacy."""
    train, test = (load_adult(subset=s, discretized=True) for s in ("train", "test"))
    X, X_test = (np.column_stack([part.data, part.target]) for part in (train, test))
    sizes = [len(states) for states in train.categories.values()]
    party = split_horizontal(X, n_parties=4, random_state=0)
    scores = {}
    for epsilon in (1.0, 0.1):
        model = DPCGMLearner("tree", epsilon=epsilon, states=sizes).fit(X, party=party)
        scores[f"noisy tables, epsilon = {epsilon}"] = f"{model.score(X_test):.3f}"
    exact = DPCGMLearner("tree", method="non_private", states=sizes).fit(X)
    scores["exact tables of pooled rows"] = f"{exact.score(X_test):.3f}"
    scores["knowing nothing (uniform)"] = f"{-np.log(sizes).sum():.3f}"
    return "mean log-likelihood per row not seen in the fit", scores, model.ledger_


def show(demonstration):
    """Run a demonstration and print its scores, its cost and its ledger."""
    print(f"\n{demonstration.__doc__}\n{'=' * len(demonstration.__doc__)}")
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Baselines put all rows in one place on purpose.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        measure, scores, ledger = demonstration()
    print(f"{measure}:")
    for name, score in scores.items():
        print(f"  {name:<34} {score}")
    print(
        f"cost: {ledger.total_bytes / 1e3:.0f} kB in {ledger.n_rounds} rounds; "
        f"{time.perf_counter() - start:.1f} s with the baselines"
    )
    for kind, n_bytes in ledger.bytes_by_kind().items():
        print(f"  {n_bytes / 1e3:10.1f} kB {kind}: {KINDS[kind]}")
    print("who learnt what, beyond messages they cannot read:")
    hidden = {KINDS[kind] for kind in ("public", "sealed", "ciphertext", "masked")}
    for who, what, _, seen_as, *_ in ledger.who_learns_what():
        if seen_as not in hidden:
            print(f"  {who}: {what} [{seen_as}]")


if __name__ == "__main__":
    for demonstration in (
        private_k2,
        one_sum,
        notears_admm,
        mixture,
        mixed_model,
        private_field,
        collective,
    ):
        show(demonstration)
