"""Terms of a session that a site does not accept, whatever its file allows."""

import numpy as np
import pytest
from sklearn.base import clone

from skprivbn.crypto import PaillierBackend
from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation._models import describe_model
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.mixture._em import em
from skprivbn.mixture._seeding import EMTerms, Given
from skprivbn.partition import VerticalPartition
from skprivbn.programs import KeptTerms, keep_predictions
from skprivbn.structure import CollectiveBayesianNetwork, PrivateK2StructureLearner
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.hostile import HostileTerms
from tests.federation.site.loopback import connect, make_sites

EM = EMTerms(
    n_components=2,
    covariance_type="full",
    reg_covar=1e-6,
    max_iter=10,
    init_params="random",
    seeds=[0],
    given=Given(),
    lower_bound=-np.inf,
    tol=1e-3,
    covariance_update="exact",
    rotate_keys=False,
    min_rows=5,
)


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
def test_a_site_takes_no_part_under_a_key_that_can_be_factored(tmp_path):
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b"])
    weak = PaillierBackend(key_size=512, insecure_test_key=True)
    with pytest.raises(PartyError) as caught:
        PPEMGaussianMixture(2, backend=weak).fit(rows)
    assert caught.value.code == "not-allowed"


@pytest.mark.filterwarnings("ignore::skprivbn.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize(
    "learner", [CollectiveBayesianNetwork(), PrivateK2StructureLearner()]
)
def test_keys_of_counts_are_looked_at_too(learner, weak):
    backend = PaillierBackend(key_size=512 if weak else 2048, insecure_test_key=weak)
    columns = {"a": np.zeros((4, 1)), "b": np.zeros((4, 1))}
    learner = clone(learner).set_params(backend=backend)
    terms = learner._terms(VerticalPartition(columns))
    assert terms.for_tests_only() == weak


def test_nothing_takes_the_place_of_the_rows(tmp_path):
    write_tables(tmp_path, *make_rows())
    rows = connect(make_sites(tmp_path, site_files()), "icu").rows(["a", "b"])
    rows.aligned = {"X": "died"}
    with pytest.raises(PartyError) as caught:
        with rows.federate(em, EM, "masking"):
            pass
    assert caught.value.code == "refused"


def test_values_of_a_column_are_not_told_as_names_of_clusters(tmp_path):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    rows = federation.rows(["a", "b"])
    with pytest.raises(PartitionError, match="cannot be cluster"):
        PrivateGLMMClassifier().fit(rows, y="died", cluster="died")
    # sites refuse it themselves, whatever the researcher's side checks
    rows.schema["died"] = ["yes", "no"]
    with pytest.raises(PartyError) as caught:
        PrivateGLMMClassifier().fit(rows, y="died", cluster="died")
    assert caught.value.code == "unknown-dataset"


@pytest.mark.parametrize("rule", ["min_rows", "max_iter", "n_components"])
def test_no_number_is_no_limit(tmp_path, rule):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    federation._introduction.limits = {}
    terms = HostileTerms(EM, **{rule: float("nan")})
    with pytest.raises(PartyError) as caught:
        federation.rows(["a", "b"]).federate(em, terms).__enter__()
    assert caught.value.code == "refused"


def test_limits_below_those_of_the_site_are_not_allowed(tmp_path):
    write_tables(tmp_path, *make_rows())
    federation = connect(make_sites(tmp_path, site_files()), "icu")
    terms = HostileTerms(EM, min_rows=1)
    with pytest.raises(PartyError) as caught:
        federation.rows(["a", "b"]).federate(em, terms).__enter__()
    assert caught.value.code == "not-allowed"


def test_results_that_stay_answer_no_question(tmp_path):
    X, *beside = make_rows()
    write_tables(tmp_path, X, *beside)
    texts = {n: 'results = "results"\n' + t for n, t in site_files().items()}
    model = PPEMGaussianMixture(2, backend="masking", random_state=0)
    model.fit(X, party=beside[1])
    terms = KeptTerms(describe_model(model), "predict")

    def made(min_rows):
        rows = connect(make_sites(tmp_path, texts), "icu").rows(["a", "b"])
        session = rows.federate(keep_predictions, terms, min_rows=min_rows)
        with session as federation:
            assert federation.run() is None
        return len(list((tmp_path / "west" / "results").glob("*.csv")))

    assert made(min_rows=1) == 1
    # how many rows a site has, and whether an entry is missing, is told neither way
    assert made(min_rows=10**6) == 2
    path = tmp_path / "west" / "stays.csv"
    header, first, *others = path.read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index("a")] = ""
    path.write_text("\n".join([header, ",".join(cells), *others]) + "\n")
    assert made(min_rows=1) == 2


def test_refusals_of_noisy_fits_are_limited(tmp_path):
    # at whatever epsilon: each says something about the data without noise
    write_tables(tmp_path, *make_rows())
    texts = site_files(budget="budget = {epsilon = 1.0}\nmax_refusals = 2")
    rows = connect(make_sites(tmp_path, texts), "icu").rows(["ward"])
    path, codes = tmp_path / "north" / "stays.csv", []
    whole = path.read_text()
    for is_damaged in [False, True, False, True, False]:
        path.write_text("ward,ward\n" if is_damaged else whole)
        model = DPCGMLearner(epsilon=1e-3, cliques=[(0,)], states=[(0, 1)])
        try:
            codes.append(model.fit(rows) and None)
        except PartyError as error:
            codes.append(error.code)
    assert codes == [None, "invalid-data", None, "invalid-data", "budget-exceeded"]
