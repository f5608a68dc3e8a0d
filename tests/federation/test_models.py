"""Fitted models at sites: scores are summed, predictions stay, rows change there."""

import csv
import stat
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skprivbn.exceptions import PartitionError, PartyError, PrivacyLeakWarning
from skprivbn.federation import decode
from skprivbn.federation._models import (
    PROTOCOLS,
    announced,
    describe_model,
    rebuild_model,
)
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._block import write_results
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import (
    PrivateGLMMClassifier,
    PrivateGLMMRegressor,
)
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.preprocessing import (
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedOrdinalEncoder,
    FederatedPCA,
    FederatedSimpleImputer,
    FederatedStandardScaler,
)
from skprivbn.programs import (
    KeptTerms,
    ModelTerms,
    MomentsTerms,
    keep_predictions,
    moments,
    score_rows,
)
from skprivbn.structure import (
    CollectiveBayesianNetwork,
    FederatedBayesianNetwork,
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
    VotingStructureLearner,
)
from tests.federation.flare.hospitals import (
    NAMES,
    make_rows,
    outcome,
    site_files,
    write_tables,
)
from tests.federation.hostile import HostileTerms
from tests.federation.site.loopback import audit, connect, make_sites

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)

X, WARD, PARTY, PEOPLE = make_rows()
LABELS = np.array(["surgery", "medicine"])[WARD]
#: the wards of different hospitals are different wards
SERIES = np.char.add(PARTY, LABELS)
CODES = np.column_stack([WARD, outcome(X)])


@pytest.fixture
def federation(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    return connect(make_sites(tmp_path, site_files()), "icu")


def quietly(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def fitted(estimator, rows, **options):
    return quietly(estimator.fit, rows, party=PARTY, **options)


def mixture(n_components=2, **options):
    return PPEMGaussianMixture(
        n_components, backend="masking", random_state=0, **options
    )


@cache
def two_components():
    return fitted(mixture(), X)


def continuous_models():
    return [
        mixture(3, covariance_type=kind, max_iter=3) for kind in ("full", "tied")
    ] + [
        FederatedGaussianBayesianNetwork("bic"),
        FederatedNotearsADMM(max_iter=3),
        FederatedNotearsADMM(
            "mlp", mlp_params={"n_hidden": 2}, max_iter=2, random_state=0
        ),
        VotingStructureLearner(FederatedGaussianBayesianNetwork("bic"), acyclic=True),
    ]


@pytest.mark.parametrize("model", continuous_models(), ids=str)
def test_scores_of_sites_are_those_of_the_joined_rows(federation, model):
    fitted(model, X)
    rows = federation.rows(["a", "b"])
    before = len(model.ledger_.entries)
    assert model.score(rows) == pytest.approx(model.score(X), abs=1e-9)
    assert model.score(HorizontalPartition.from_rows(X, PARTY)) == pytest.approx(
        model.score(X), abs=1e-9
    )
    with pytest.raises(PartitionError, match="sample_weight is not avail"):
        model.score(rows, sample_weight=np.ones(len(X)))
    later = model.ledger_.entries[before:]
    assert [entry.sequence for entry in model.ledger_.entries] == list(
        range(before + len(later))
    )
    sums = [e for e in later if e.operation.startswith("scores of rows")]
    assert {entry.kind for entry in sums} == {"masked"}
    assert "scores of rows" in str(list(model.ledger_.who_learns_what()))
    assert any("made up to fit one row" in note for note in model.ledger_.notes)


def test_scores_of_labels_and_of_columns_beside_the_rows(federation):
    rows = federation.rows(["ward", "died"])
    field = fitted(
        DPCGMLearner(epsilon=5.0, cliques=[(0, 1)], states=[(0, 1), (0, 1)]), CODES
    )
    with pytest.warns(PrivacyLeakWarning, match="budget of the fit does not cover"):
        assert field.score(rows) == pytest.approx(field.score(CODES), abs=1e-9)
    network = quietly(PrivateK2StructureLearner().fit, CODES)
    assert network.score(rows) == pytest.approx(network.score(CODES), abs=1e-9)
    network = quietly(CollectiveBayesianNetwork().fit, CODES)
    assert network.score(rows) == pytest.approx(network.score(CODES), abs=1e-9)
    glmm = fitted(PrivateGLMMClassifier(), X, y=outcome(X), cluster=LABELS)
    numbers = federation.rows(["a", "b"])
    assert glmm.score(numbers, "died", cluster="ward") == pytest.approx(
        glmm.score(X, outcome(X), cluster=LABELS), abs=1e-12
    )
    with pytest.raises(PartitionError, match="no y"):
        glmm.score(numbers)
    dynamic = fitted(FederatedDynotears(max_iter=2), X, series=SERIES)
    blocks = [np.flatnonzero(name == PARTY) for name in NAMES]
    expected = np.mean([dynamic._row_scores(X[rows], SERIES[rows]) for rows in blocks])
    assert dynamic.score(numbers, series="ward") == pytest.approx(expected, abs=1e-9)


def test_a_row_that_cannot_be_makes_the_score_minus_infinity(federation):
    network = quietly(PrivateK2StructureLearner().fit, CODES)
    nodes = network.network_.nodes
    table = dict(network.network_.cpts)
    never = np.zeros_like(table[nodes[0]])
    never[..., 0] = 1.0
    network.network_ = type(network.network_)(
        nodes,
        network.network_.states,
        network.network_.parents,
        table | {nodes[0]: never},
    )
    assert network.score(federation.rows(["ward", "died"])) == -np.inf


def test_columns_of_several_sites_are_scored_but_not_completed(federation):
    table = np.column_stack(list(PEOPLE.values()))
    parties = {"north": [0, 1], "south": [2]}
    model = PrivateK2StructureLearner(parties=parties, max_parents=1).fit(table)
    columns = federation.columns(list(PEOPLE))
    split = VerticalPartition({"north": table[:, :2], "south": table[:, 2:]})
    for given in (columns, split):
        for method in (model.predict, model.predict_proba):
            with pytest.raises(PartitionError, match="needs whole rows"):
                method(given)
    model.fit(columns)
    assert model.score(columns) == pytest.approx(model.score(table), abs=1e-6)
    aligned = federation.columns(list(PEOPLE), keys="person", reveal_membership=True)
    assert model.score(aligned) == pytest.approx(model.score(table), abs=1e-6)
    gaussian = FederatedGaussianBayesianNetwork("bic").fit(columns)
    for given in (columns, aligned):
        assert gaussian.score(given) == pytest.approx(gaussian.score(table), abs=1e-3)
    with pytest.raises(PartitionError, match="needs whole rows"):
        gaussian.predict(columns)


def test_a_score_counts_as_a_fit(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    sites = make_sites(tmp_path, site_files(max_exact_fits=1))
    rows = connect(sites, "icu").rows(["a", "b"])
    model = two_components()
    model.score(rows)
    with pytest.raises(PartyError, match="used up"):
        model.score(rows)


def read_results(tmp_path, name, file):
    with open(tmp_path / name / "results" / file, newline="") as handle:
        return list(csv.DictReader(handle))


def allow_results(**options):
    texts = site_files(**options)
    return {name: 'results = "results"\n' + text for name, text in texts.items()}


def test_predictions_stay_at_the_sites(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    sites = make_sites(tmp_path, allow_results(max_exact_fits=0))
    federation = connect(sites, "icu")
    rows = federation.rows(["a", "b"])
    model = fitted(mixture(3), X)
    labels, chances = model.predict(rows), model.predict_proba(rows)
    assert labels.names == NAMES
    for name in NAMES:
        mine = X[np.flatnonzero(name == PARTY)]
        kept = read_results(tmp_path, name, labels.file)
        assert [row["person"] for row in kept] == [f"p{i}" for i in range(len(mine))]
        assert [int(row["predict"]) for row in kept] == model.predict(mine).tolist()
        kept = read_results(tmp_path, name, chances.file)
        table = [[float(row[f"predict_proba_{k}"]) for k in range(3)] for row in kept]
        np.testing.assert_allclose(table, model.predict_proba(mine), rtol=1e-12)
        path = tmp_path / name / "results" / labels.file
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert audit(tmp_path, name)[-1]["results"] == chances.file
    with pytest.raises(PartitionError, match="do not come here"):
        np.asarray(labels)
    # at the end every site says the same, whatever the results are
    answers = [decode(answer) for answer in federation._relay.session.transcript[1::2]]
    assert answers.count({"ok": True, "payload": {"result": None}}) == 2 * 3


def test_predictions_of_labels_and_networks_stay_too(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    federation = connect(make_sites(tmp_path, allow_results()), "icu")
    network = quietly(PrivateK2StructureLearner().fit, CODES)
    rows = federation.rows(["ward", "died"])
    file = network.predict_proba(rows).file
    kept = read_results(tmp_path, "west", file)
    assert set(kept[0]) == {"person", "ward_0", "ward_1", "died_0", "died_1"}
    linear = fitted(FederatedGaussianBayesianNetwork("bic"), X)
    file = linear.predict(federation.rows(["a", "b"])).file
    kept = read_results(tmp_path, "west", file)
    table = [[float(row["a"]), float(row["b"])] for row in kept]
    np.testing.assert_allclose(table, linear.predict(X[PARTY == "west"]), rtol=1e-12)
    glmm = fitted(PrivateGLMMClassifier(), X, y=outcome(X), cluster=LABELS)
    file = glmm.predict(federation.rows(["a", "b"]), cluster="ward").file
    kept = read_results(tmp_path, "west", file)
    mine = PARTY == "west"
    expected = glmm.predict(X[mine], cluster=LABELS[mine]).tolist()
    assert [int(row["predict"]) for row in kept] == expected
    dynamic = fitted(FederatedDynotears(max_iter=2), X, series=SERIES)
    file = dynamic.predict(federation.rows(["a", "b"]), series="ward").file
    kept = read_results(tmp_path, "west", file)
    table = [[float(row["a"]), float(row["b"])] for row in kept]
    expected = dynamic.predict(X[mine], series=LABELS[mine])
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    # the first of each of two series has no past
    assert np.isnan(expected).sum() == 2 * 2


def test_a_site_without_a_folder_makes_no_predictions(federation):
    model = two_components()
    with pytest.raises(PartyError) as caught:
        model.predict(federation.rows(["a", "b"]))
    assert caught.value.code == "not-allowed"


def test_a_full_folder_takes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("skprivbn.federation.site._block.MAX_FILES", 1)
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    rows = connect(make_sites(tmp_path, allow_results()), "icu").rows(["a", "b"])
    model = two_components()
    model.predict(rows)
    with pytest.raises(PartyError, match="used up"):
        model.predict(rows)


def test_a_prediction_that_fails_is_not_told(tmp_path):
    # a network that does not know a label of these columns
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    federation = connect(make_sites(tmp_path, allow_results()), "icu")
    network = quietly(PrivateK2StructureLearner().fit, np.zeros((20, 2), dtype=int))
    file = network.predict(federation.rows(["ward", "died"])).file
    assert not (tmp_path / "north" / "results" / file).exists()
    with pytest.raises(PartyError, match="do not fit"):
        network.score(federation.rows(["ward", "died"]))


def test_attack_a_transformation_that_overflows_on_one_row(tmp_path):
    # whether it does would tell, at no charge, whether somebody holds such a row
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    rows = connect(make_sites(tmp_path, allow_results()), "icu").rows(["a", "b"])
    scaler = FederatedStandardScaler().fit(X, party=PARTY)
    model = fitted(mixture(), scaler.transform(scaler.transform(X)))
    twice = scaler.transform(scaler.transform(rows))
    model.feature_names_in_ = np.array(twice.feature_names, dtype=object)
    assert (tmp_path / "west" / "results" / model.predict(twice).file).exists()
    scaler.mean_, scaler.scale_ = X[7], np.full(2, 1e-308)
    twice = scaler.transform(scaler.transform(rows))
    with np.errstate(all="ignore"):
        assert not (tmp_path / "west" / "results" / model.predict(twice).file).exists()
        with pytest.raises(PartyError, match="do not fit"):
            model.score(twice)
    said = [e["results"] for e in audit(tmp_path, "west") if "results" in e]
    assert said[1:] == ["failed: ValueError"]


def test_attack_an_overflow_is_not_told_at_a_small_epsilon_either(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    files = site_files(max_exact_fits=0, budget="budget = {epsilon = 1.0}")
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    scaler = FederatedStandardScaler().fit(X, party=PARTY)
    scaler.mean_, scaler.scale_ = X[7], np.full(2, 1e-308)
    twice = scaler.transform(scaler.transform(rows))
    with np.errstate(all="ignore"):
        FederatedStandardScaler(epsilon=1e-3, bounds=(-1, 1)).fit(twice)
        # nor is the number of rows, by the least that the coordinator wants
        told = MomentsTerms(bounds=np.array([[-1.0] * 2, [1.0] * 2]), epsilon=1e-3)
        with rows.federate(moments, told, "masking", min_rows=10**6) as session:
            session.run()


def test_no_label_is_a_formula(tmp_path):
    labels = np.array(["=WEBSERVICE(A2)", "-", "yes", "@SUM(1)"])
    write_results(tmp_path / "made.csv", "predict", labels, ["a"], {})
    with open(tmp_path / "made.csv", newline="") as handle:
        cells = [row[0] for row in csv.reader(handle)][1:]
    assert cells == ["'=WEBSERVICE(A2)", "-", "yes", "'@SUM(1)"]


def test_sites_transform_rows_whenever_they_use_them(federation):
    rows = federation.rows(["a", "b"])
    options = {"covariance_type": "diag", "max_iter": 5}
    pipeline = make_pipeline(
        FederatedStandardScaler(),
        FederatedPCA(1),
        mixture(**options),
    )
    quietly(pipeline.fit, rows)
    local = make_pipeline(
        FederatedStandardScaler(),
        FederatedPCA(1),
        mixture(**options),
    )
    quietly(local.fit, HorizontalPartition.from_rows(X, PARTY))
    np.testing.assert_allclose(pipeline[-1].means_, local[-1].means_, rtol=1e-9)
    assert pipeline.score(rows) == pytest.approx(local.score(X), abs=1e-9)
    assert list(pipeline[-1].feature_names_in_) == ["federatedpca0"]
    bins = FederatedKBinsDiscretizer(3, strategy="uniform", bounds=(-5, 15)).fit(rows)
    moments = FederatedStandardScaler().fit(bins.transform(rows))
    np.testing.assert_allclose(moments.mean_, bins.transform(X).mean(axis=0))
    with pytest.raises(ValueError, match="was fitted to"):
        pipeline[0].transform(federation.rows(["b", "died"]))
    with pytest.raises(PartitionError, match="choose the columns of X first"):
        PrivateGLMMClassifier().fit(bins.transform(rows), y="a")


def test_noise_is_calibrated_to_what_comes_out_of_a_transformation(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    files = site_files(budget="budget = {epsilon = 1.0, delta = 1e-5}")
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    pca = FederatedPCA(1).fit(rows)
    noisy = FederatedStandardScaler(epsilon=0.5, delta=1e-6, bounds=(-20, 20))
    noisy.fit(pca.transform(rows))
    assert noisy.n_features_in_ == 1


def test_models_of_estimators_that_the_file_does_not_name(tmp_path):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    files = {
        name: text.replace('    "FederatedStandardScaler",\n', "").replace(
            '    "PrivateGLMMClassifier",\n', ""
        )
        for name, text in site_files().items()
    }
    rows = connect(make_sites(tmp_path, files), "icu").rows(["a", "b"])
    scaler = FederatedStandardScaler().fit(X, party=PARTY)
    glmm = fitted(PrivateGLMMClassifier(), X, y=outcome(X), cluster=LABELS)
    for attempt in (
        lambda: FederatedPCA().fit(scaler.transform(rows)),
        lambda: glmm.score(rows, "died"),
        # no transformer: an estimator that is allowed otherwise
        lambda: FederatedPCA().fit(
            rows.transformed(describe_model(two_components()), ["a", "b"])
        ),
    ):
        with pytest.raises(PartyError) as caught:
            attempt()
        assert caught.value.code == "not-allowed"


def public_models():
    estimators = [
        *continuous_models(),
        FederatedStandardScaler(),
        FederatedPCA(),
        FederatedKBinsDiscretizer(),
        FederatedSimpleImputer(),
    ]
    for kind in ("diag", "spherical"):
        estimators.append(mixture(covariance_type=kind, max_iter=1))
    models = [describe_model(fitted(e, X)) for e in estimators]
    models.append(
        describe_model(fitted(FederatedDynotears(max_iter=2), X, series=PARTY))
    )
    models.extend(
        describe_model(fitted(glmm(), X, y=outcome(X), cluster=LABELS))
        for glmm in (PrivateGLMMClassifier, PrivateGLMMRegressor)
    )
    models.extend(
        describe_model(quietly(encoder.fit, CODES))
        for encoder in (
            FederatedOrdinalEncoder(),
            FederatedOneHotEncoder(),
            FederatedOneHotEncoder(drop="first"),
        )
    )
    labels = DPCGMLearner(epsilon=5.0, cliques=[(0, 1)], states=[(0, 1), (0, 1)])
    models.append(describe_model(fitted(labels, CODES)))
    for learner in (
        PrivateK2StructureLearner(),
        CollectiveBayesianNetwork(),
        FederatedBayesianNetwork(),
    ):
        models.append(describe_model(quietly(learner.fit, CODES)))
    return models


def test_every_model_can_be_made_again_and_none_with_other_shapes():
    models = public_models()
    # which learn nothing that is applied to rows
    others = {"describe", "FederatedFCI"}
    known = {model["estimator"] for model in models}
    assert known == set(announced(PROTOCOLS)) - others
    for name in others:
        with pytest.raises(PartyRefusal):
            rebuild_model({"estimator": name, "fitted": {}}, 2)
    n_changes = 0
    for model in models:
        rebuilt = rebuild_model(model, 2)
        if hasattr(rebuilt, "transform"):
            rows = CODES if "Encoder" in model["estimator"] else X
            assert rebuilt.transform(rows).shape[0] == len(rows)
        for key, value in model["fitted"].items():
            # an array with an entry for every row would pick out rows
            if not isinstance(value, np.ndarray):
                continue
            n_changes += 1
            wide = np.broadcast_to(value, (len(X), *value.shape)).copy()
            for wrong in (wide, value[..., None], np.full_like(value, np.nan, float)):
                hostile = model | {"fitted": model["fitted"] | {key: wrong}}
                with pytest.raises(PartyRefusal):
                    rebuild_model(hostile, 2)
                    pytest.fail(f"{model['estimator']} takes a wrong {key}")
        with pytest.raises(PartyRefusal):
            rebuild_model(model, 3)
    assert n_changes > 20


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"estimator": "Notears", "fitted": {}},
        {"estimator": "os.system", "fitted": {}},
        {"estimator": "FederatedPCA", "fitted": {}},
        {"estimator": "FederatedPCA", "fitted": {"components": None}},
        [],
        None,
    ],
)
def test_what_is_no_model_is_refused(model):
    with pytest.raises(PartyRefusal) as caught:
        rebuild_model(model, 2)
    assert caught.value.code == "refused"


def test_only_estimators_that_can_be_made_again_are_described():
    class FederatedPCA:
        pass

    with pytest.raises(ValueError, match="cannot apply a FederatedPCA"):
        describe_model(FederatedPCA())


def test_a_score_keeps_nothing_and_what_is_kept_tells_nothing(federation):
    assert {kind for kind, _ in score_rows.rounds()} == {"Sum"}
    assert keep_predictions.rounds() == []
    terms = ModelTerms(describe_model(fitted(FederatedPCA(), X)))
    rows = federation.rows(["a", "b"])
    with pytest.raises(PartyError) as caught:
        rows.federate(score_rows, HostileTerms(terms, method="predict")).__enter__()
    assert caught.value.code == "refused"


@pytest.mark.parametrize("method", ["fit", "_row_scores", "set_params", "__init__"])
def test_no_other_method(tmp_path, method):
    write_tables(tmp_path, X, WARD, PARTY, PEOPLE)
    rows = connect(make_sites(tmp_path, allow_results()), "icu").rows(["a", "b"])
    terms = KeptTerms(describe_model(two_components()), "predict")
    with pytest.raises(PartyError) as caught:
        rows.federate(keep_predictions, HostileTerms(terms, method=method)).__enter__()
    assert caught.value.code == "refused"
    assert not (tmp_path / "north" / "results").exists()
