"""The guide's table of what estimators do with remote rows and columns, tried out."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import PROTOCOLS, announced
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
)
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteResults, RemoteRows
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedDynotears,
    FederatedFCI,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    K2StructureLearner,
    Notears,
    PrivateK2StructureLearner,
    VotingStructureLearner,
)
from tests.federation.flare.hospitals import (
    make_rows,
    own_columns,
    site_files,
    write_tables,
)
from tests.federation.site.loopback import connect, make_sites

pytestmark = [
    pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

GUIDE = Path(__file__).parents[2] / "doc" / "flare.rst"
NUMBERS = ["a", "b"]
#: an estimator, its columns of rows, and what goes with them
CASES = [
    (CollectiveBayesianNetwork(), ["ward", "died"], {}),
    (
        DPCGMLearner(epsilon=1.0, cliques=[(0, 1)], states=[(0, 1)] * 2),
        ["ward", "died"],
        {},
    ),
    (FederatedBayesianNetwork(), ["ward", "died"], {}),
    (FederatedDynotears(max_iter=2), NUMBERS, {"series": "ward"}),
    (FederatedFCI(), NUMBERS, {}),
    (FederatedGaussianBayesianNetwork("bic"), NUMBERS, {}),
    (FederatedKBinsDiscretizer(3), NUMBERS, {}),
    (FederatedNotearsADMM(max_iter=2), NUMBERS, {}),
    (FederatedPCA(), NUMBERS, {}),
    (FederatedStandardScaler(), NUMBERS, {}),
    (FederatedSimpleImputer(), NUMBERS, {}),
    (FederatedOrdinalEncoder(), ["ward"], {}),
    (FederatedOneHotEncoder(), ["ward"], {}),
    (
        PPEMGaussianMixture(2, max_iter=2, backend="masking", random_state=0),
        NUMBERS,
        {},
    ),
    (PrivateGLMMClassifier(), NUMBERS, {"y": "died", "cluster": "ward"}),
    (PrivateGLMMClassifier(), NUMBERS, {"y": "died", "cluster": "ward"}),
    (PrivateGLMMRegressor(), ["a"], {"y": "b", "cluster": "ward"}),
    (PrivateK2StructureLearner(max_parents=1), ["ward", "died"], {}),
    (
        VotingStructureLearner(FederatedGaussianBayesianNetwork("bic"), acyclic=True),
        NUMBERS,
        {},
    ),
]
#: what comes out of a method
RESULTS = {
    "score": float,
    "predict": RemoteResults,
    "predict_proba": RemoteResults,
    "transform": RemoteRows,
}


def read_table():
    """Return {estimator: {method: kinds of handles}}."""
    text = GUIDE.read_text(encoding="utf-8").partition(".. list-table:: Which")[2]
    head, *rows = re.split(r"\n   \* - ", text.split("\n\n")[1].rstrip())
    methods = re.findall(r"``(\w+)``", head or rows.pop(0))
    table = {}
    for row in rows:
        name, *cells = re.split(r"\n     -", row)
        cells = [set(re.findall(r"\w+", cell)) for cell in cells]
        table[re.search(r"\.(\w+)`", name)[1]] = dict(zip(methods, cells, strict=True))
    return table


TABLE = read_table()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    write_tables(folder, *make_rows())
    texts = site_files(max_exact_fits=1000, budget="budget = {epsilon = 99.0}")
    texts = {name: 'results = "results"\n' + text for name, text in texts.items()}
    return connect(make_sites(folder, texts), "icu")


def test_the_table_lists_all_estimators_of_sites():
    names = {type(estimator).__name__ for estimator, *_ in CASES}
    assert TABLE.keys() == announced(PROTOCOLS).keys() - {"describe"} == names


@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize(
    "estimator, names, beside", CASES, ids=[type(e).__name__ for e, *_ in CASES]
)
def test_estimators_do_what_the_table_says(federation, estimator, names, beside, kind):
    said = TABLE[type(estimator).__name__]
    model = clone(estimator)
    if kind == "rows":
        handle = federation.rows(names)
    else:
        handle = own_columns(federation, ["smoker", "asthma", "cough"])
        if isinstance(model, DPCGMLearner):
            model.set_params(states=[(0, 1)] * 3)
    if kind in said["fit"]:
        model.fit(handle, **beside)
    else:
        with pytest.raises(PartitionError, match="needs (rows|columns) held by"):
            model.fit(handle, **beside)
        if kind == "columns":
            model.fit(federation.rows(names), **beside)
        else:
            # what learns from columns only: one party's
            _, ward, _, _ = make_rows()
            model.fit(np.column_stack([ward, np.roll(ward, 1)]))
    for method, result in RESULTS.items():
        bound = getattr(model, method, None)
        allowed = said["predict" if method == "predict_proba" else method]
        if bound is None:
            assert not allowed or method == "predict_proba"
            continue
        wanted = inspect.signature(bound).parameters
        options = {k: v for k, v in beside.items() if k in wanted}
        if kind in allowed:
            assert isinstance(bound(handle, **options), result)
        else:
            with pytest.raises(PartitionError, match=f"{method} needs (whole )?rows"):
                bound(handle, **options)


@pytest.mark.parametrize("learner", [K2StructureLearner(), Notears()], ids=str)
def test_what_learns_on_one_desk_says_so(federation, learner):
    rows = federation.rows(["ward", "died"])
    with pytest.raises(PartitionError, match="stay at the sites"):
        learner.fit(rows)
