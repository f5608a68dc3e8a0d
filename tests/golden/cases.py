"""Every estimator of the package, in every variant that asks parties otherwise."""

from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression

from skprivbn.crypto import MaskingBackend
from skprivbn.partition import HorizontalPartition
from tests.golden.data import (
    AMOUNTS,
    BLOBS,
    BLOBS_OF_PEOPLE,
    BLOBS_WITH_GAPS,
    CENTRES,
    CLASSES,
    COLUMNS,
    COLUMNS_WITH_KEYS,
    COUNTS,
    CROSSED,
    GAPPED,
    LABELS,
    MIXED,
    ONE_HOLDER,
    PATIENTS,
    PEOPLE,
    SEM,
    SEM_COLUMNS,
    SEM_UNITS,
    SEM_WITH_KEYS,
    SERIES,
    TABLE,
    WEIGHTED,
    Data,
)

#: rows that predictions are kept of
N_KEPT = 5
#: names of cases that are no estimators'
FUNCTIONS = {"describe"}


class Description:
    """``HorizontalPartition.describe``, called as estimators are."""

    def __init__(self, **options):
        self.options = options

    def fit(self, X, party):
        summary = HorizontalPartition.from_rows(X, party).describe(**self.options)
        self.columns_, self.tables_ = summary.columns, summary.tables
        self.ledger_, self.privacy_spent_ = summary.ledger, summary.privacy_spent


@dataclass(frozen=True)
class Case:
    """One estimator with its parameters, its data, and the methods to call."""

    name: str
    family: str
    estimator: str
    data: Data
    parameters: dict
    methods: tuple
    noisy: bool | str
    rtol: float

    def make(self, current_name, import_module):
        """Return the estimator, by the names of today."""
        if self.estimator in FUNCTIONS:
            return Description(**self.parameters)
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
        X = self.data.rows[0] if self.data.shown is None else self.data.shown
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
            return estimator.score(X, *self.data.rows[1:], **self.data.asked)
        asked = {name: values[:N_KEPT] for name, values in self.data.asked.items()}
        return getattr(estimator, method)(X[:N_KEPT], **asked)


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
    """Enter a case; `options` tells it from the others of the same estimator.

    What is `noisy` is computed with noise of zero; where that leaves choices that are
    random, `noisy="shape"` keeps what no choice can change.
    """
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
    gaps = {"data": BLOBS_WITH_GAPS, "missing": "em", "n_components": 2}
    mixture("gaps", asked, **gaps)
    mixture("gaps, diagonal", covariance_type="diag", **gaps)
    mixture("gaps, ckks", backend="ckks", **gaps | {"max_iter": 2})
    mixture("paper's start", init_params="paper")
    mixture("small components", n_components=4, min_rows=8)
    mixture("signed sums", backend=MaskingBackend(signed=True), max_iter=2)
    mixture("plaintext", ["score of a partition"], backend="plaintext")
    mixture("ckks", ["score of a partition"], backend="ckks")
    mixture("ckks, diagonal", backend="ckks", covariance_type="diag", max_iter=2)
    mixture("paillier", backend="paillier", max_iter=1, init_params="random")
    private = {"epsilon": 5.0, "bounds": (-6.0, 9.0), "noisy": True, "max_iter": 3}
    mixture("laplace", ["predict"], **private)
    mixture("gaussian", ["predict"], delta=1e-5, min_honest=2, **private)
    mixture("noise, public start", init_params="random", **private)
    mixture("noise, diagonal", covariance_type="diag", **private)
    mixture("noise on people", data=BLOBS_OF_PEOPLE, **private)
    mixture("noise, ckks", backend="ckks", **private | {"max_iter": 2})


def add_graphs_from_rows():
    asked = ("predict", "score", "score of a partition")
    for method in ("equal_variance", "bic", "ges", "notears", "golem", "pc"):
        add(
            "structure",
            "FederatedGaussianBayesianNetwork",
            method,
            SEM,
            asked,
            method=method,
            random_state=0,
        )

    def gaussian(options, data=SEM, methods=asked, **parameters):
        add(
            "structure",
            "FederatedGaussianBayesianNetwork",
            options,
            data,
            methods,
            **{"method": "equal_variance"} | parameters,
        )

    gaussian("default", method="auto")
    gaussian("default, other units", SEM_UNITS, method="auto")

    add("structure", "FederatedFCI", "default", SEM, ())
    gaussian("lingam", method="lingam")
    gaussian("mechanisms", site_effects="mechanisms", method="auto")
    gaussian("sigmoids", basis="sigmoid")
    gaussian("polynomials", basis="polynomial")
    gaussian("centred parties", site_effects="levels")
    gaussian("ckks", backend="ckks")
    gaussian("plaintext", backend="plaintext")
    gaussian(
        "columns",
        SEM_COLUMNS,
        parties={"left": ["u", "w"], "right": ["v", "z"]},
    )
    gaussian("paillier", backend="paillier")
    gaussian("bootstrap", method="bic", n_bootstrap=5, random_state=0)
    gaussian("keys", SEM_WITH_KEYS, method="bic")
    private = {"epsilon": 3.0, "bounds": (-9.0, 9.0), "noisy": True}
    gaussian("laplace", methods=(), **private)
    gaussian("gaussian", methods=(), delta=1e-5, **private)
    gaussian("noise on people", BLOBS_OF_PEOPLE, (), **private)
    gaussian("noise, ckks", methods=(), backend="ckks", **private)

    def admm(options, methods=asked, **parameters):
        add("structure", "FederatedNotearsADMM", options, SEM, methods, **parameters)

    admm("linear")
    admm("exponential", admm_params={"acyclicity": "expm"}, max_iter=30)
    networks = {"method": "mlp", "mlp_params": {"n_hidden": 3}, "random_state": 0}
    # steps of an optimiser within each party
    admm("networks", max_iter=8, rtol=1e-7, **networks)
    admm("networks, ckks", (), backend="ckks", max_iter=3, **networks)
    admm("ckks", backend="ckks", max_iter=7)
    admm("paillier", backend="paillier", max_iter=3)
    admm("plaintext", backend="plaintext")
    admm("laplace", methods=(), **private)
    admm("gaussian", methods=(), delta=1e-5, **private)
    add(
        "structure",
        "FederatedDynotears",
        "one lag",
        SERIES,
        ["predict", "score", "score of a partition"],
    )
    add("structure", "FederatedDynotears", "two lags", SERIES, n_lags=2, max_iter=30)
    ckks = {"backend": "ckks", "max_iter": 5}
    add("structure", "FederatedDynotears", "ckks", SERIES, **ckks)
    add("structure", "Notears", "pooled", Data(SEM.rows), ["predict", "score"])

    def tables(options, data=TABLE, methods=asked, **parameters):
        name = "FederatedBayesianNetwork"
        add("structure", name, options, data, methods, **parameters)

    for method in ("hill_climbing", "ges", "k2"):
        ordered = {"ordering": [0, 1, 2, 3]} if method == "k2" else None
        tables(method, method=method, criterion="bdeu", search_params=ordered)
    graph = {"x0": [], "x1": ["x0"], "x2": [], "x3": ["x1", "x2"]}
    tables("known graph", structure=graph)
    tables("ckks", backend="ckks")
    tables("paillier", backend="paillier", structure=graph)
    tables("small cells", count_params={"min_cell_count": 4})
    tables("bootstrap", search_params={"n_bootstrap": 5}, random_state=0)
    tables("gaps left out", GAPPED, missing="skip")
    tables("gaps", GAPPED, missing="em", count_params={"max_iter": 5})
    tables(
        "numbers and labels", MIXED, states={"dose": "continuous", "days": "continuous"}
    )
    states = {f"x{i}": list(range(n)) for i, n in enumerate((2, 2, 3, 3))}
    private = {"states": states, "epsilon": 20.0, "noisy": True}
    tables("laplace", methods=(), **private)
    tables("gaussian", methods=(), delta=1e-5, **private)
    tables("noise, known graph", methods=(), structure=graph, **private)
    tables("noise on people", PEOPLE, (), **private)
    add("structure", "VotingStructureLearner", "vote", SEM, asked)
    add("structure", "VotingStructureLearner", "acyclic", SEM, asked, acyclic=True)
    add("structure", "VotingStructureLearner", "ckks", SEM, backend="ckks")


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
            ordering=[0, 1, 2, 3],
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
        parameters["ordering"] = [0, 1, 2, 3]
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
    private_k2("keys", COLUMNS_WITH_KEYS, parties=None)
    private_k2("bdeu", criterion="bdeu")
    private_k2("paper's score", criterion="wright_yang")
    noise = {"epsilon": 50.0, "states": [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]}
    private_k2("laplace", methods=(), noisy=True, **noise)
    private_k2("gaussian", methods=(), noisy=True, delta=1e-5, **noise)
    private_k2("noise, three parties", methods=(), noisy=True, parties=thirds, **noise)

    def collective(options, data=COLUMNS, methods=asked, **parameters):
        parameters = {"parties": halves, **parameters}
        add(
            "structure",
            "CollectiveBayesianNetwork",
            options,
            data,
            methods,
            **parameters,
        )

    collective("bic", methods=[*asked, "score of a partition", "partial_fit"])
    collective("independence tests", method="cheng_bell_liu")
    collective("three parties", parties=thirds)
    collective("ordered", ordering=[0, 1, 2, 3], search_params={"post_process": False})
    collective("labels", LABELS)
    collective("keys", COLUMNS_WITH_KEYS, parties=None)
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
    exact, noisy = {"epsilon": None, "rtol": 1e-7}, {"noisy": True, "rtol": 1e-7}
    field_of("exact chain", ONE_HOLDER, **exact)
    # 6e-7 apart on two processors
    field_of("exact tree", ONE_HOLDER, cliques="tree", **exact | {"rtol": 1e-6})
    field_of("exact triangle", ONE_HOLDER, cliques=[(0, 1), (1, 2, 3)], **exact)
    field_of("exact loop", ONE_HOLDER, method_params={"inference": "loopy"}, **exact)
    for method in ("auto", "cgm", "naive"):
        field_of(f"{method}, one holder", ONE_HOLDER, **noisy, method=method)
    field_of("gaussian, one holder", ONE_HOLDER, **noisy, delta=1e-6)
    field_of("one holder, tree", ONE_HOLDER, (), **noisy, cliques="mst")
    # potentials near zero end 4e-7 apart on two processors
    adaptive = noisy | {"cliques": "aim", "rtol": 1e-6}
    field_of("one holder, adaptive", ONE_HOLDER, (), **adaptive)
    gradients = {"method": "psgd", "delta": 1e-5, "method_params": {"n_steps": 10}}
    # batches are drawn at random
    field_of("gradients", ONE_HOLDER, noisy="shape", **gradients)
    field_of("laplace", methods=[*asked, "score of a partition"], **noisy)
    field_of("gaussian", **noisy, delta=1e-6, min_honest=3)
    field_of("ckks", **noisy, backend="ckks")
    field_of("paillier", **noisy, backend="paillier")
    field_of("adaptive", methods=(), **noisy, cliques="aim")
    field_of("adaptive, gaussian", methods=(), **adaptive, delta=1e-6)
    field_of("adaptive, ckks", methods=(), **noisy, cliques="aim", backend="ckks")
    field_of("people, shared", PEOPLE, **noisy, contribution="normalize")
    field_of(
        "people, cut",
        PEOPLE,
        **noisy,
        contribution={"kind": "clip", "max_records": 2},
    )
    halves = {"hospital": [0, 1], "lab": [2, 3]}
    columns = {"parties": halves, "data": COLUMNS, "methods": (), **noisy}
    field_of("columns", **columns)
    field_of("columns, adaptive", cliques="aim", epsilon=3.0, **columns)
    field_of("columns, gaussian", delta=1e-6, **columns)
    keys = {"data": COLUMNS_WITH_KEYS, "parties": None}
    field_of("columns, keys", **columns | keys)


def add_mixed_models_and_steps():
    asked = (
        "decision_function",
        "predict_proba",
        "predict",
        "score",
        "score of a partition",
    )

    def mixed(options, methods=asked, data=CENTRES, **parameters):
        # steps of an optimiser end within a tolerance
        name = "PrivateGLMMClassifier"
        add("mixed_model", name, options, data, methods, rtol=1e-7, **parameters)

    mixed("quadrature")
    mixed("laplace", quadrature_params={"n_nodes": 1})
    mixed("slopes", slopes=[0], max_iter=20)
    mixed("probit", link="probit")
    mixed("shared effects", release_effects="shared", clusters=list(range(8)))
    mixed("plaintext", backend="plaintext")
    mixed("ckks", backend="ckks", max_iter=4)
    mixed("paillier", (), backend="paillier", max_iter=1)
    chains = {"n_draws": 100, "n_burn_in": 20, "random_state": 0}
    metropolis = {"method": "metropolis", "metropolis_params": chains, "max_iter": 4}
    mixed("metropolis", **metropolis)
    mixed("metropolis, ckks", (), backend="ckks", **metropolis | {"max_iter": 2})

    asked = ("predict", "score")

    def regressor(options, data=AMOUNTS, methods=asked, **parameters):
        name = "PrivateGLMMRegressor"
        add("mixed_model", name, options, data, methods, rtol=1e-7, **parameters)

    regressor("linear")
    regressor("maximum likelihood", reml=False)
    regressor("slopes", slopes=[0])
    regressor("weights", WEIGHTED, ())
    regressor("crossed", CROSSED, (), effect_params={"crossed": True})
    regressor("small clusters pooled", small_clusters="pool", min_rows=25)
    regressor("ckks", backend="ckks")
    regressor("paillier", backend="paillier")
    regressor("poisson", COUNTS, family="poisson")
    laplace = {"family": "poisson", "quadrature_params": {"n_nodes": 1}}
    regressor("poisson, laplace", COUNTS, **laplace)
    regressor("poisson, ckks", COUNTS, (), family="poisson", backend="ckks", max_iter=3)
    both = ("transform", "inverse_transform", "transform of a partition")
    private = {"epsilon": 5.0, "bounds": (-6.0, 9.0), "noisy": True}
    people = {"data": BLOBS_OF_PEOPLE, **private}

    def step(name, options, data=BLOBS, methods=both, **parameters):
        add("preprocessing", f"Federated{name}", options, data, methods, **parameters)

    for backend in ("masking", "ckks", "paillier", "plaintext"):
        step("StandardScaler", backend, backend=backend)
    step("StandardScaler", "signed sums", backend=MaskingBackend(signed=True))
    step("StandardScaler", "recovery", backend=MaskingBackend(recovery=True))
    step("PCA", "all")
    step("PCA", "whitened", n_components=1, whiten=True)
    for backend in ("ckks", "paillier"):
        step("PCA", backend, backend=backend)
        step("KBinsDiscretizer", backend, n_bins=3, backend=backend)
    for strategy in ("quantile", "uniform"):
        step("KBinsDiscretizer", strategy, n_bins=3, strategy=strategy)
    step("KBinsDiscretizer", "one column a bin", n_bins=[2, 4], encode="onehot-dense")
    step("KBinsDiscretizer", "groups", n_bins=3, min_rows=10)
    for name in ("StandardScaler", "PCA", "KBinsDiscretizer"):
        step(name, "laplace", **private)
        step(name, "gaussian", delta=1e-5, min_honest=2, **private)
        step(name, "noise on people", **people)
    filled = ("transform", "transform of a partition")
    for strategy in ("mean", "median", "most_frequent"):
        data = TABLE if strategy == "most_frequent" else BLOBS
        step("SimpleImputer", strategy, data, filled, strategy=strategy)
        data = GAPPED if strategy == "most_frequent" else BLOBS_WITH_GAPS
        step("SimpleImputer", f"{strategy} of gaps", data, filled, strategy=strategy)
        if strategy != "most_frequent":
            options = {"strategy": strategy, **private}
            name = f"{strategy}, laplace"
            step("SimpleImputer", name, BLOBS_WITH_GAPS, filled, **options)
    step("SimpleImputer", "ckks", BLOBS_WITH_GAPS, filled, backend="ckks")
    for name in ("OrdinalEncoder", "OneHotEncoder"):
        step(name, "auto", TABLE)
        declared = [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
        step(name, "declared", TABLE, categories=declared)


def add_summaries():
    def describe(options, **parameters):
        states = {"ward": ["east", "west"], "sick": [0, 1]}
        parameters = {"states": states, "tables": [("ward", "sick")], **parameters}
        add("partition", "describe", options, PATIENTS, (), **parameters)

    describe("exact")
    describe("small groups", min_rows=20, min_cell_count=40)
    describe("ckks", backend="ckks")
    private = {"epsilon": 9.0, "bounds": (-10.0, 10.0), "noisy": True}
    describe("laplace", **private)
    describe("gaussian", delta=1e-5, **private)


def add_searches():
    search = {
        "estimator": LogisticRegression(),
        "param_grid": {"C": [0.1, 1.0]},
        "score_bounds": (-5.0, 0.0),
        "noisy": "shape",
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
add_mixed_models_and_steps()
add_summaries()
add_searches()
