"""Small fixed inputs, and every estimator of the package fitted to them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from skprivbn.partition import HorizontalPartition, VerticalPartition

#: rows that predictions are kept of
N_KEPT = 5


@dataclass(frozen=True)
class Data:
    """What goes into a fit, and what the fitted estimator is asked about."""

    rows: tuple
    metadata: dict = field(default_factory=dict)
    #: rows or columns of several holders, to score
    partition: Any = None
    #: metadata of predictions
    asked: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One estimator with its parameters, its data, and the methods to call."""

    name: str
    family: str
    estimator: str
    data: Data
    parameters: dict
    methods: tuple
    noisy: bool
    rtol: float

    def make(self, current_name, import_module):
        """Return the estimator, by the names of today."""
        family = import_module(f"skprivbn.{self.family}")
        found = getattr(family, current_name(self.estimator))
        return found(
            **{
                current_name(parameter, self.estimator): value
                for parameter, value in self.parameters.items()
            }
        )

    def answer(self, estimator, method):
        """Return what a fitted estimator answers."""
        X = self.data.rows[0]
        if method == "score of a partition":
            return estimator.score(self.data.partition)
        if method == "transform of a partition":
            kept = []
            partition = estimator.transform(self.data.partition)
            partition.map_rows(lambda rows: kept.append(rows[:N_KEPT]) or rows)
            return kept
        if method == "sample":
            return estimator.sample(N_KEPT)
        if method == "partial_fit":
            estimator.partial_fit(X)
            return estimator.network_
        if method == "inverse_transform":
            return estimator.inverse_transform(estimator.transform(X[:N_KEPT]))
        if method == "score":
            return estimator.score(*self.data.rows, **self.data.asked)
        asked = {name: values[:N_KEPT] for name, values in self.data.asked.items()}
        return getattr(estimator, method)(X[:N_KEPT], **asked)


def blobs():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]])
    X = np.vstack([centre + rng.normal(size=(30, 2)) for centre in centres])
    party = np.array(["north", "south", "west"])[rng.integers(3, size=len(X))]
    order = rng.permutation(len(X))
    X, party = X[order], party[order]
    return rows_of(X, party)


def blobs_with_gaps():
    (X,), party = BLOBS.rows, BLOBS.metadata["party"]
    X = X.copy()
    X[::4, 0] = X[1::5, 1] = np.nan
    return rows_of(X, party)


def rows_of(X, party, **aligned):
    partition = HorizontalPartition.from_rows(X, party, **aligned)
    return Data((X,), {"party": party, **aligned}, partition)


def linear_rows(n_rows=150):
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(n_rows, 4))
    X = noise.copy()
    X[:, 1] += 1.5 * X[:, 0]
    X[:, 2] -= 1.2 * X[:, 0]
    X[:, 3] += 1.1 * X[:, 1] + 0.9 * X[:, 2]
    return X + [1.0, -2.0, 0.5, 3.0]


def sem():
    X = linear_rows()
    return rows_of(X, np.array(["a", "b", "c"])[np.arange(len(X)) % 3])


def sem_columns():
    frame = pd.DataFrame(linear_rows(60), columns=["u", "v", "w", "z"])
    blocks = {"left": frame[["u", "w"]], "right": frame[["v", "z"]]}
    return Data((frame,), {}, VerticalPartition(blocks, order=list(frame.columns)))


def time_series():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    for t in range(1, len(X)):
        X[t] += 0.6 * X[t - 1] * (t % 50 > 0)
        X[t, 1] += 1.2 * X[t, 0]
    series = np.repeat([0, 1, 2], 50)
    party = np.array(["a", "b", "c"])[series]
    data = rows_of(X, party, series=series)
    return Data(data.rows, data.metadata, data.partition, {"series": series})


def table(n_rows=120):
    rng = np.random.default_rng(3)
    first = rng.integers(2, size=n_rows)
    second = np.where(rng.random(n_rows) < 0.8, first, 1 - first)
    third = rng.integers(3, size=n_rows)
    fourth = np.where(rng.random(n_rows) < 0.8, (second + third) % 2, third)
    return np.column_stack([first, second, third, fourth])


def discrete_columns():
    X = table()
    blocks = {"hospital": X[:, :2], "lab": X[:, 2:]}
    columns = {"hospital": ["x0", "x1"], "lab": ["x2", "x3"]}
    return Data((X,), {}, VerticalPartition(blocks, columns))


def labelled_columns():
    frame = pd.DataFrame(table(), columns=["age", "sick", "ward", "test"])
    frame["ward"] = frame["ward"].map(["east", "north", "west"].__getitem__)
    return Data((frame,))


def discrete_rows():
    X = table(300)
    party = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    return rows_of(X, party)


def one_holder():
    return Data((table(300),))


def people():
    X = table(300)
    party = np.array(["a", "b", "c"])[np.arange(len(X)) % 100 % 3]
    return rows_of(X, party, individual=np.arange(len(X)) % 100)


def centres():
    rng = np.random.default_rng(4)
    X, cluster = rng.normal(size=(240, 2)), np.arange(240) % 8
    log_odds = X @ [1.0, -0.5] + rng.normal(size=8)[cluster]
    y = (rng.random(240) < 1 / (1 + np.exp(-log_odds))).astype(int)
    party = np.array(["a", "b", "c"])[rng.integers(3, size=240)]
    party[cluster == 7] = "a"
    metadata = {"cluster": cluster, "party": party}
    partition = HorizontalPartition.from_rows(X, party, y=y, cluster=cluster)
    return Data((X, y), metadata, partition, {"cluster": cluster})


def amounts():
    data = centres()
    (X, y), metadata = data.rows, data.metadata
    y = X @ [1.0, -0.5] + 0.3 * metadata["cluster"] + y
    partition = HorizontalPartition.from_rows(X, metadata["party"], y=y, **data.asked)
    return Data((X, y), metadata, partition, data.asked)


def classes():
    data = centres()
    return Data(data.rows)


BLOBS, SEM, SEM_COLUMNS, SERIES = blobs(), sem(), sem_columns(), time_series()
COLUMNS, LABELS, TABLE, ONE_HOLDER = (
    discrete_columns(),
    labelled_columns(),
    discrete_rows(),
    one_holder(),
)
PEOPLE, CENTRES, AMOUNTS, CLASSES = people(), centres(), amounts(), classes()
CASES = {}


def add(
    family,
    estimator,
    options,
    data,
    methods=(),
    /,
    *,
    noisy=False,
    rtol=1e-9,
    **parameters,
):
    """Enter a case; `options` tells it from the others of the same estimator."""
    name = f"{estimator}: {options}"
    rtol = 1e-6 if parameters.get("backend") == "ckks" else rtol
    assert name not in CASES
    CASES[name] = Case(
        name, family, estimator, data, parameters, tuple(methods), noisy, rtol
    )


def add_mixtures():
    asked = ("predict", "predict_proba", "score_samples", "score", "bic", "aic")

    def mixture(options, methods=(), data=BLOBS, *, noisy=False, **parameters):
        parameters = {
            "n_components": 3,
            "backend": "masking",
            "max_iter": 6,
            "random_state": 0,
            **parameters,
        }
        add(
            "mixture",
            "PPEMGaussianMixture",
            options,
            data,
            methods,
            noisy=noisy,
            **parameters,
        )

    for covariance_type in ("full", "tied", "diag", "spherical"):
        mixture(
            covariance_type,
            [*asked, "sample", "score of a partition"],
            covariance_type=covariance_type,
        )
    for start in ("k-means++", "random", "random_from_data", "local_em"):
        mixture(f"start {start}", init_params=start)
    mixture("start given", means_init=[[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]])
    mixture("two starts", n_init=2, tol=1e-2)
    mixture("paper's covariances", covariance_update="paper")
    mixture("new keys", key_rotation="iteration")
    mixture("told bounds", verbose=2)
    mixture("gaps", asked, blobs_with_gaps(), missing="em", n_components=2)
    mixture("plaintext", ["score of a partition"], backend="plaintext")
    mixture("ckks", ["score of a partition"], backend="ckks")
    mixture("ckks, diagonal", backend="ckks", covariance_type="diag", max_iter=2)
    mixture("paillier", backend="paillier", max_iter=1, init_params="random")
    private = {"epsilon": 5.0, "bounds": (-6.0, 9.0), "noisy": True, "max_iter": 3}
    mixture("laplace", ["predict"], **private)
    mixture("gaussian", ["predict"], delta=1e-5, min_honest=2, **private)
    mixture("noise, public start", init_params="random", **private)


def add_graphs_from_rows():
    asked = ("predict", "score", "score of a partition")
    for search in ("equal_variance", "bic", "ges", "notears", "golem", "pc", "auto"):
        add(
            "structure",
            "FederatedGaussianBayesianNetwork",
            search,
            SEM,
            asked,
            search=search,
            random_state=0,
        )

    def gaussian(options, data=SEM, methods=asked, **parameters):
        add(
            "structure",
            "FederatedGaussianBayesianNetwork",
            options,
            data,
            methods,
            **parameters,
        )

    gaussian("sigmoids", basis="sigmoid")
    gaussian("polynomials", basis="polynomial")
    gaussian("centred parties", centre="party")
    gaussian("ckks", backend="ckks")
    gaussian("plaintext", backend="plaintext")
    gaussian(
        "columns",
        SEM_COLUMNS,
        parties={"left": ["u", "w"], "right": ["v", "z"]},
    )
    private = {"epsilon": 3.0, "bounds": (-9.0, 9.0), "noisy": True}
    gaussian("laplace", methods=(), **private)
    gaussian("gaussian", methods=(), delta=1e-5, **private)

    def admm(options, methods=asked, **parameters):
        add("structure", "FederatedNotearsADMM", options, SEM, methods, **parameters)

    admm("linear")
    admm("exponential", acyclicity="expm", max_iter=30)
    admm("networks", model="mlp", n_hidden=3, max_iter=8, random_state=0)
    admm("ckks", backend="ckks", max_iter=6)
    admm("plaintext", backend="plaintext")
    admm("laplace", methods=(), **private)
    add(
        "structure",
        "FederatedDynotears",
        "one lag",
        SERIES,
        ["predict", "score", "score of a partition"],
    )
    add("structure", "FederatedDynotears", "two lags", SERIES, n_lags=2, max_iter=30)
    add("structure", "Notears", "pooled", Data(SEM.rows), ["predict", "score"])
    for method in ("hill_climbing", "ges", "k2"):
        add(
            "structure",
            "FederatedBayesianNetwork",
            method,
            TABLE,
            asked,
            method=method,
            criterion="bdeu",
        )
    add("structure", "VotingStructureLearner", "vote", SEM, asked)
    add("structure", "VotingStructureLearner", "acyclic", SEM, asked, acyclic=True)


def add_graphs_from_columns():
    asked = ("predict", "predict_proba", "score_samples", "score")
    halves = {"hospital": [0, 1], "lab": [2, 3]}
    thirds = {"hospital": [0], "lab": [1, 3], "register": [2]}
    for criterion in ("k2", "stirling", "bdeu", "bic"):
        add(
            "structure",
            "K2StructureLearner",
            criterion,
            ONE_HOLDER,
            asked,
            criterion=criterion,
        )
    add(
        "structure",
        "K2StructureLearner",
        "labels",
        LABELS,
        asked,
        ordering=[2, 0, 1, 3],
    )

    def private_k2(options, data=COLUMNS, methods=asked, **parameters):
        parameters = {"parties": halves, "max_parents": 2, **parameters}
        add(
            "structure",
            "PrivateK2StructureLearner",
            options,
            data,
            methods,
            **parameters,
        )

    private_k2("two parties", methods=[*asked, "score of a partition"])
    private_k2("three parties", parties=thirds)
    private_k2("stirling", criterion="stirling")
    private_k2("labels", LABELS)
    private_k2("paillier", backend="paillier", max_parents=1)
    private_k2("graph only", methods=(), fit_parameters=False)
    private_k2("small cells", min_cell_count=3)

    def collective(options, data=COLUMNS, methods=asked, **parameters):
        parameters = {"parties": halves, **parameters}
        add(
            "bayesian_network",
            "CollectiveBayesianNetwork",
            options,
            data,
            methods,
            **parameters,
        )

    collective("bic", methods=[*asked, "score of a partition", "partial_fit"])
    collective("independence tests", search="cheng_bell_liu")
    collective("three parties", parties=thirds)
    collective("ordered", ordering=[0, 1, 2, 3], post_process=False)
    collective("labels", LABELS)
    graph = {"x0": [], "x1": ["x0"], "x2": [], "x3": ["x1", "x2"]}
    collective("known graph", structure=graph)
    collective("paillier", structure=graph, backend="paillier")
    rows = {"disclosure": "rows", "fraction": 0.5, "random_state": 0}
    for selection in ("random", "mixed", "low_likelihood"):
        collective(
            f"rows, {selection}",
            methods=[*asked, "partial_fit"],
            selection=selection,
            **rows,
        )


def add_fields():
    asked = ("predict", "score_samples", "score")

    def field_of(options, data=TABLE, methods=asked, **parameters):
        parameters = {"cliques": "chain", "states": [2, 2, 3, 3], **parameters}
        add("graphical_model", "DPCGMLearner", options, data, methods, **parameters)

    # iterations end within a tolerance, after steps that differ between processors
    exact = {"epsilon": None, "rtol": 1e-7}
    field_of("exact chain", ONE_HOLDER, **exact)
    field_of("exact tree", ONE_HOLDER, cliques="tree", **exact)
    field_of("exact triangle", ONE_HOLDER, cliques=[(0, 1), (1, 2, 3)], **exact)
    field_of("exact loop", ONE_HOLDER, inference="loopy", **exact)
    for method in ("auto", "cgm", "naive"):
        field_of(f"{method}, one holder", ONE_HOLDER, noisy=True, method=method)
    field_of("gaussian, one holder", ONE_HOLDER, noisy=True, delta=1e-6)
    field_of("one holder, tree", ONE_HOLDER, (), noisy=True, cliques="mst")
    field_of(
        "gradients",
        ONE_HOLDER,
        noisy=True,
        method="psgd",
        delta=1e-5,
        psgd_params={"n_steps": 10},
    )
    field_of("laplace", methods=[*asked, "score of a partition"], noisy=True)
    field_of("gaussian", noisy=True, delta=1e-6, min_honest=3)
    field_of("ckks", noisy=True, backend="ckks")
    # the tree itself is chosen under noise
    field_of("tree", methods=(), noisy=True, cliques="mst", delta=1e-6, epsilon=50.0)
    field_of("people, shared", PEOPLE, noisy=True, contribution="normalize")
    field_of("people, cut", PEOPLE, noisy=True, contribution="clip", max_records=2)


def add_the_rest():
    asked = (
        "decision_function",
        "predict_proba",
        "predict",
        "score",
        "score of a partition",
    )

    def mixed(options, methods=asked, **parameters):
        add("mixed_model", "PrivateGLMM", options, CENTRES, methods, **parameters)

    mixed("quadrature")
    mixed("shared effects", release_effects="shared", clusters=list(range(8)))
    mixed("plaintext", backend="plaintext")
    mixed("ckks", backend="ckks", max_iter=4)
    mixed(
        "metropolis",
        e_step="metropolis",
        n_draws=100,
        n_burn_in=20,
        max_iter=4,
        random_state=0,
    )
    name, asked = "PrivateGLMMRegressor", ("predict", "score")
    add("mixed_model", name, "linear", AMOUNTS, asked)
    add("mixed_model", name, "maximum likelihood", AMOUNTS, asked, reml=False)
    both = ("transform", "inverse_transform", "transform of a partition")
    private = {"epsilon": 5.0, "bounds": (-6.0, 9.0), "noisy": True}
    family = "preprocessing"
    for backend in ("masking", "ckks", "paillier", "plaintext"):
        name = "FederatedStandardScaler"
        add(family, name, backend, BLOBS, both, backend=backend)
    add(family, "FederatedStandardScaler", "laplace", BLOBS, both, **private)
    add(family, "FederatedPCA", "all", BLOBS, both)
    add(family, "FederatedPCA", "whitened", BLOBS, both, n_components=1, whiten=True)
    add(family, "FederatedPCA", "laplace", BLOBS, both, **private)
    for strategy in ("quantile", "uniform"):
        name = "FederatedKBinsDiscretizer"
        add(family, name, strategy, BLOBS, both, n_bins=3, strategy=strategy)
    add(family, "FederatedKBinsDiscretizer", "laplace", BLOBS, both, **private)
    name = "FederatedKBinsDiscretizer"
    bins = {"n_bins": [2, 4], "encode": "onehot-dense"}
    add(family, name, "one column a bin", BLOBS, both, **bins)
    name = "FederatedSimpleImputer"
    filled = ("transform", "transform of a partition")
    for strategy in ("mean", "median", "most_frequent"):
        data = TABLE if strategy == "most_frequent" else BLOBS
        add(family, name, strategy, data, filled, strategy=strategy)
    add(family, name, "laplace", BLOBS, filled, **private)
    for name in ("FederatedOrdinalEncoder", "FederatedOneHotEncoder"):
        add(family, name, "auto", TABLE, both)
        declared = [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
        add(family, name, "declared", TABLE, both, categories=declared)
    search = {
        "estimator": LogisticRegression(),
        "param_grid": {"C": [0.1, 1.0]},
        "score_bounds": (-5.0, 0.0),
        "noisy": True,
    }
    # who wins is noise: attributes of the winner are the same for all candidates
    add("privacy", "PrivateSearchCV", "noisy scores", CLASSES, ["score"], **search)
    add(
        "privacy",
        "PrivateSearchCV",
        "noisy maximum",
        CLASSES,
        ["predict"],
        method="report_noisy_max",
        **search,
    )


add_mixtures()
add_graphs_from_rows()
add_graphs_from_columns()
add_fields()
add_the_rest()
