"""The headline estimators on shipped data, split over parties.

Run by ``make demo``. For each it prints scores next to those of the same model on
pooled rows, the cost in bytes and rounds, and who learnt what; ``demo/index.html``
shows the same with pictures.
"""

import argparse
import inspect
import textwrap
import time
import warnings
from pathlib import Path
from string import ascii_uppercase

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from demo_page import Result, page_of
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.datasets import (
    load_adult,
    load_asia,
    load_parkinsons,
    make_linear_sem,
    split_horizontal,
)
from skprivbn.exceptions import PrivacyLeakWarning
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import DAGDisplay, MixtureDisplay, PrivacyUtilityDisplay
from skprivbn.metrics import kl_divergence, structural_hamming_distance
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    K2StructureLearner,
    PrivateK2StructureLearner,
)

FOLDER = Path(__file__).parents[1] / "demo"
ASIA = load_asia()
SITES = {
    "clinic": ["asia", "smoke", "bronc", "dysp"],
    "lab": ["tub", "lung", "either", "xray"],
}


def private_k2():
    """A clinic and a lab find who depends on whom, on secret shares of counts."""
    X = patients(20_000)
    order = ASIA.topological_order
    private = PrivateK2StructureLearner(SITES, ordering=order).fit(X)
    pooled = K2StructureLearner(ordering=order).fit(X)
    scores = {
        "mean log-likelihood of a record": f"{private.score(X):.6f}",
        "the same, joined columns": f"{pooled.score(X):.6f}",
    }
    return Result(
        private,
        "wrong or missing links, of 8",
        *map(wrong_links, (private.network_, pooled.network_, clinic_alone(X))),
        scores,
        DAGDisplay.from_estimator(private, truth=ASIA).figure_,
        "The network of the columns of clinic and lab, learnt without joining tables. "
        "K2 on the joined table misses the same weak link.",
    )


def one_sum():
    """Ten laboratories find a network of 20 variables from three secure sums."""
    X, weights = make_linear_sem(200, 20, random_state=0)
    return learn_structure(FederatedGaussianBayesianNetwork(), X, weights != 0)


def notears_admm():
    """Ten laboratories agree on a network of 10 variables in rounds, by NOTEARS."""
    X, weights = make_linear_sem(200, 10, random_state=0)
    return learn_structure(FederatedNotearsADMM(), X, weights != 0)


def learn_structure(learner, X, truth):
    """Learn from ten laboratories, from one of them, and from pooled rows."""
    party = spread(X, "laboratory", 10)
    with warnings.catch_warnings():
        # One laboratory has hardly more rows than columns, which is what is shown.
        warnings.filterwarnings("ignore", "[0-9]+ rows of [0-9]+ variables")
        learner.fit(X, party=party)
        pooled = type(learner)().fit(X)
        alone = type(learner)().fit(X[party == party[0]])
    distances = [
        str(structural_hamming_distance(truth, model.adjacency_matrix_))
        for model in (learner, pooled, alone)
    ]
    return Result(
        learner,
        f"wrong or missing links, of {truth.sum()}",
        *distances,
        {},
        DAGDisplay.from_network(learner.network_, truth=truth).figure_,
        "The network of ten laboratories. Wrong and missing edges would be marked.",
    )


def mixture():
    """Five clinics describe voice recordings by a mixture of two Gaussians."""
    X, _ = load_parkinsons(return_X_y=True)
    party = spread(X, "clinic", 5)
    scaler = FederatedStandardScaler().fit(X, party=party)
    pca = FederatedPCA(n_components=2).fit(scaler.transform(X), party=party)
    Z = pca.transform(scaler.transform(X))
    model = PPEMGaussianMixture(n_components=2, backend="ckks", random_state=0)
    model.fit(Z, party=party)
    pooled = make_pipeline(
        StandardScaler(), PCA(2), GaussianMixture(n_components=2, random_state=0)
    ).fit(X)
    # One clinic alone, on the same two components; it is judged by all recordings.
    alone = GaussianMixture(n_components=2, random_state=0).fit(Z[party == party[0]])
    display = MixtureDisplay.from_estimator(model, Z, party=party)
    display.ax_.set(xlabel="first component", ylabel="second component")
    return Result(
        model,
        "mean log-likelihood of a recording",
        *(
            f"{score:.4f}"
            for score in (model.score(Z), pooled.score(X), alone.score(Z))
        ),
        {},
        display.figure_,
        "Recordings by clinic, and the mixture of all of them: ellipses of one and two "
        "standard deviations. Scaling and projection are learnt by secure sums, too.",
    )


def mixed_model():
    """Four hospitals fit a logistic model with effects of 30 wards they share."""
    rng = np.random.default_rng(0)
    ward = rng.integers(30, size=1500)
    effects = rng.normal(scale=0.8, size=30)
    X = rng.normal(size=(1500, 2))
    logit = 0.3 + X @ [1.0, -0.5] + effects[ward]
    y = rng.uniform(size=1500) < 1 / (1 + np.exp(-logit))
    party = spread(X, "hospital", 4)
    model = PrivateGLMMClassifier().fit(X, y, cluster=ward, party=party)
    pooled = PrivateGLMMClassifier(backend="plaintext").fit(X, y, cluster=ward)
    own = party == party[0]
    alone = PrivateGLMMClassifier(backend="plaintext")
    alone.fit(X[own], y[own], cluster=ward[own])
    fits = {"four hospitals": model, "all rows pooled": pooled}
    slopes = [
        ", ".join(f"{slope:.2f}" for slope in fit.coef_.ravel())
        for fit in (model, pooled, alone)
    ]
    scores = {
        f"scale of effects (truth 0.8), {name}": f"{fit.random_effect_scale_:.4f}"
        for name, fit in fits.items()
    }
    figure, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
    styles = [{"s": 22, "color": "#0072B2"}, {"s": 70, "color": "none", "ec": "k"}]
    for (name, fit), style in zip(fits.items(), styles):
        ax.scatter(effects, fit.random_effects_, label=name, **style)
    ax.axline((0, 0), slope=1, color="#999999", linewidth=1)
    ax.set(xlabel="true effect of a ward", ylabel="estimate")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return Result(
        model,
        "slopes, truth 1 and -0.5",
        *slopes,
        scores,
        figure,
        "Effects of 30 wards: every dot of the federated fit is in its pooled ring. "
        "Both are shrunk towards zero, as usual for random effects.",
    )


def private_field():
    """Four offices publish a model of census rows with differential privacy."""
    train, test = (load_adult(subset=s, discretized=True) for s in ("train", "test"))
    X, X_test = (np.column_stack([part.data, part.target]) for part in (train, test))
    sizes = [len(states) for states in train.categories.values()]
    party = spread(X, "office", 4)
    private = {}
    alone = DPCGMLearner("tree", epsilon=1.0, states=sizes).fit(X[party == party[0]])
    for epsilon in (0.01, 0.1, 1.0):
        model = DPCGMLearner("tree", epsilon=epsilon, states=sizes).fit(X, party=party)
        private[epsilon] = model.score(X_test)
    exact = DPCGMLearner("tree", epsilon=None, states=sizes).fit(X)
    exact = exact.score(X_test)
    scores = {
        f"noisy tables, epsilon = {epsilon}": f"{score:.3f}"
        for epsilon, score in private.items()
    }
    scores["knowing nothing (uniform)"] = f"{-np.log(sizes).sum():.3f}"
    curve = list(private), list(private.values()), np.zeros(len(private))
    display = PrivacyUtilityDisplay(
        {"noisy tables": curve},
        baselines={"exact tables, not private": exact},
        metric="log-likelihood of a new row",
    ).plot(plt.subplots(figsize=(5.6, 4.0), layout="constrained")[1])
    display.ax_.legend(loc="lower right", frameon=False)
    return Result(
        model,
        "mean log-likelihood of a new row",
        f"{private[1.0]:.2f} (epsilon 1)",
        f"{exact:.2f} (exact)",
        f"{alone.score(X_test):.2f} (epsilon 1)",
        scores,
        display.figure_,
        "Accuracy by epsilon: a smaller epsilon protects a person better, with more "
        "noise.",
    )


def collective():
    """The same two sites join their own networks by links across sites."""
    X = patients(6000)
    models = {
        disclosure: CollectiveBayesianNetwork(
            SITES,
            ordering=ASIA.topological_order,
            disclosure=disclosure,
            random_state=0,
        ).fit(X)
        for disclosure in ("private_counts", "rows")
    }
    scores = {
        f"distance from the truth, {model.communicated_fraction_:.0%} of rows shown": (
            f"{kl_divergence(ASIA, model.network_):.5f}"
        )
        for model in models.values()
    }
    known = BayesianNetwork.from_data(X, ASIA.parents, states=ASIA.states, alpha=1.0)
    scores["the same, true links and joined columns"] = (
        f"{kl_divergence(ASIA, known):.5f}"
    )
    pooled = K2StructureLearner(ordering=ASIA.topological_order).fit(X)
    model = models["private_counts"]
    return Result(
        model,
        "wrong or missing links, of 8",
        *map(wrong_links, (model.network_, pooled.network_, clinic_alone(X))),
        scores,
        DAGDisplay.from_estimator(model, truth=ASIA).figure_,
        "Each site learns the links between its own columns; the centre adds those "
        "between sites.",
    )


def clinic_alone(X):
    """Return the network that the clinic finds in its own columns."""
    own = [ASIA.nodes[i] for i in ASIA.topological_order]
    own = [name for name in own if name in SITES["clinic"]]
    return K2StructureLearner(ordering=own).fit(X[own]).network_


def wrong_links(network):
    """Count links of the chest clinic that are missing, and others."""
    return str(len(set(network.edges) ^ set(ASIA.edges)))


def patients(n_rows):
    """Draw patients of the chest clinic of the Asia network."""
    return pd.DataFrame(ASIA.sample(n_rows, random_state=0), columns=ASIA.nodes)


def spread(X, holder, n_parties):
    """Deal rows to "clinic A", "clinic B", ..."""
    party = split_horizontal(X, n_parties=n_parties, random_state=0)
    names = [f"{holder} {letter}" for letter in ascii_uppercase[:n_parties]]
    return np.array(names)[np.unique_inverse(party).inverse_indices]


def run(demonstration):
    """Run a demonstration, and add what can be said of any."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Baselines put all rows in one place on purpose.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        result = demonstration()
    result.title = demonstration.__doc__.rstrip(".")
    result.code = inspect.getsource(demonstration)
    result.seconds = time.perf_counter() - start
    return result


def show(result):
    """Print scores, cost and who learnt what."""
    print(f"      {result.measure}:")
    for name, score in (result.compared | result.scores).items():
        print(f"        {name:<48} {score}")
    print(f"      cost: {result.cost}; {result.seconds:.1f} s with the baselines")
    print("      who could read what:")
    for (who, words), facts in result.readers().items():
        line = f"- {who}, {words}: {'; '.join(facts)}"
        lines = textwrap.wrap(line, 80, max_lines=3, placeholder=" ... (on the page)")
        print(textwrap.indent("\n  ".join(lines), " " * 8))
    print(flush=True)


def main(folder):
    """Run all demonstrations and write the page."""
    demonstrations = [private_k2, one_sum, mixture, mixed_model, private_field]
    demonstrations += [collective, notears_admm]
    results = []
    print(
        "Seven fits, less than a minute. All parties are simulated in this process.\n"
    )
    for number, demonstration in enumerate(demonstrations, start=1):
        title = demonstration.__doc__.rstrip(".")
        print(f"[{number}/{len(demonstrations)}] {title} ...", flush=True)
        results.append(run(demonstration))
        show(results[-1])
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "index.html"
    target.write_text(page_of(results), encoding="utf-8")
    print(f"The same with pictures: {target.resolve().as_uri()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the page")
    main(parser.parse_args().folder)
