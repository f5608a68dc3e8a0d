import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skprivbn.inspection._report_words as words
from skprivbn.crypto import CKKSBackend
from skprivbn.crypto._registry import named_parameters
from skprivbn.federation import KINDS, InProcessFederation, Ledger, declare_noise
from skprivbn.federation._ledger import TOPICS
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.inspection import privacy_report
from skprivbn.inspection._style import STYLE, size, tag
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import VerticalPartition
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._composition import PrivacyCost
from skprivbn.structure import PrivateK2StructureLearner

VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """Reads a page; complains about elements that are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.texts = [], [], {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append((name, dict(attributes).get("id")))

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, data):
        for _, name in self.open:
            if name:
                self.texts[name] = self.texts.get(name, "") + " " + data

    def text(self, name):
        return " ".join(self.texts[name].split())


class Learner(BaseEstimator):
    """As fitted as its ledger."""

    def __init__(self, backend=None, accountant=None):
        self.backend = backend
        self.accountant = accountant

    def fit(self, ledger, cost):
        self.ledger_ = ledger
        if cost is not None:
            self.privacy_spent_ = PrivacyCost(*cost)
        return self


def fitted(ledger, cost=None, **parameters):
    return Learner(**parameters).fit(ledger, cost)


def read(estimator, **options):
    return Page(privacy_report(estimator, **options))


rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2)) + 40 * (np.arange(60)[:, None] % 2)
HOSPITALS = np.array(["St. Mary's", "North & West", "South"])[np.arange(60) // 2 % 3]
CODES = rng.integers(0, 2, size=(90, 4))


def fits():
    yield "ckks", PPEMGaussianMixture(2, backend="ckks", max_iter=3, random_state=0)
    yield "masks", PPEMGaussianMixture(2, backend="masking", max_iter=3, random_state=0)
    yield "scaler", FederatedStandardScaler()
    yield "noisy scaler", FederatedStandardScaler(epsilon=1.0, bounds=(-5, 50))


@pytest.fixture(scope="module", params=[name for name, _ in fits()] + ["k2", "tables"])
def model(request):
    if request.param == "k2":
        parties = {"hospital": [0, 1], "lab": [2, 3]}
        return PrivateK2StructureLearner(parties=parties).fit(CODES)
    if request.param == "tables":
        learner = DPCGMLearner(epsilon=1.0, states=[2] * 4)
        return learner.fit(CODES, party=np.repeat(["a", "b", "c"], 30))
    return dict(fits())[request.param].fit(X, party=HOSPITALS)


def test_real_fits_are_reported_in_full(model):
    page, ledger = read(model, title="A study"), model.ledger_
    for party in ledger.parties:
        assert party in page.text("header")
    learnt = page.text("learnt")
    for fact in ledger.facts():
        assert words.plain(fact.what, fact.is_total) in learnt
        assert fact.who.lower() in learnt.lower()
    everything = " ".join(page.text(name) for name in page.texts)
    for note in ledger.notes_on(*set(TOPICS) - {"colluders", "connection"}):
        assert words.plain(note.text).lower() in everything.lower()
    assert ledger.transcript_hash in page.text("evidence")
    assert f"{ledger.n_rounds} rounds" in page.text("evidence")
    assert "This was a simulation" in page.text("header")
    # The drawing of the messages comes right after the short answers.
    assert list(page.texts).index("messages") == list(page.texts).index("short") + 1
    assert "coordinator" in page.text("messages")
    assert "assumed to follow the protocol" in page.text("limits")
    assert "not audited" in page.text("limits")


def test_pages_load_nothing_and_run_nothing(model):
    text = privacy_report(model)
    page = Page(text)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "base", "form"}
    for _, attributes in page.elements:
        assert not {"href", "src", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"(?i)https?:|//\w|url\(|@import|javascript:", text)
    assert ("default-src 'none'") in text
    # Every id once, and charts say in words what they show.
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name, attributes in page.elements:
        if name == "svg" and attributes.get("role") == "img":
            assert attributes["aria-label"]


def test_no_data_and_nothing_learnt(model):
    text = privacy_report(model)
    learnt = [*X[:, 0], *np.ravel(getattr(model, "means_", []))]
    learnt += [*np.ravel(getattr(model, "mean_", []))]
    assert learnt
    for value in learnt:
        assert f"{value:.4f}" not in text
    assert not re.search(r"0x[0-9a-f]{6,}|object at|BEGIN ", text)
    # The only long string of digits is the hash.
    assert re.findall(r"[0-9a-f]{32,}", text) == [model.ledger_.transcript_hash]


def test_noise_and_its_absence_are_told_apart(model):
    page = read(model)
    if hasattr(model, "privacy_spent_"):
        assert "epsilon = 1" in page.text("short")
        # e / (1 + e) = 0.7311, rounded up
        assert "at most 73.2 %" in page.text("short")
        assert "Colluding parties know their noise" in page.text("short")
        assert "The noise protects one row" in page.text("limits")
    else:
        assert "it carries no noise" in page.text("short")
        assert "budget" not in page.texts
        assert "may tell about a person" in page.text("limits")


@pytest.mark.filterwarnings("ignore")
def test_every_release_is_said_with_its_noise_and_whom_it_hides():
    X, person = np.zeros((40, 2)), np.arange(40) // 4
    options = {"epsilon": 1.0, "delta": 1e-6, "bounds": (0, 1)}
    rows = FederatedStandardScaler(**options).fit(X, party=person % 3)
    budget = read(rows).text("budget")
    assert "Discrete Gaussian, sigma" in budget
    assert "one row, added or removed" in budget
    assert "Epsilon at delta = 1e-06: 1." in budget
    (release,) = rows.ledger_.releases
    # less delta, more epsilon
    assert release.epsilon_at(1e-9) > release.epsilon_at(1e-6) == 1.0
    persons = FederatedStandardScaler(**options)
    persons.fit(X, party=person % 3, individual=person)
    page = read(persons)
    assert "one person with all their rows" in page.text("budget")
    assert "The noise protects one person" in page.text("limits")
    field = DPCGMLearner("mst", states=[2, 2], epsilon=1.0).fit(X.astype(int))
    assert "Discrete Laplace, scale" in read(field).text("budget")


def test_to_a_file(tmp_path):
    model = fitted(Ledger(parties=("Zürich", "Łódź")))
    assert privacy_report(model, tmp_path / "report.html") is None
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Zürich" in page
    assert "Łódź" in page
    assert page.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</title></style><h1>All is well</h1>",
        "' onmouseover='alert(1)",
        "&lt;b&gt;",
        "]]><!--",
    ],
)
def test_every_text_is_escaped(name):
    ledger = Ledger(parties=(name, "other"))
    ledger.n_rounds = 1
    ledger.record(name, name, "coordinator", b"...", "masked", f"its column {name}")
    ledger.record(name, name, "other", b"...", "sealed", f"a message about {name}")
    ledger.learns(name, f"the mean of {name}")
    ledger.note(f"clusters {name} are small")
    ledger.note(name, "broken by")
    ledger.note(f"party {name} was lost at sums (timeout)", "lost", name)
    page = read(fitted(ledger), title=name)
    kinds = {element for element, _ in page.elements}
    assert not kinds & {"script", "img", "b"}
    assert sum(element == "h1" for element, _ in page.elements) == 1
    assert not any("onmouseover" in attributes for _, attributes in page.elements)
    for section in ("header", "short", "messages", "learnt", "how"):
        assert name in page.text(section)


def test_names_cannot_turn_the_text_around():
    page = privacy_report(fitted(Ledger(parties=("a\u202eb", "c\x00d"))))
    assert "\u202e" not in page
    assert "\x00" not in page
    assert page.count("\N{REPLACEMENT CHARACTER}") >= 2


def answer(estimator, question):
    """Return the words between a question and the next mark on the page."""
    text = read(estimator).text("short").partition(question)[2]
    return re.split("protected|mind this|exposed", text)[0]


def test_exposed_rows_and_single_parties_come_first():
    ledger = Ledger(parties=("north", "south"))
    ledger.n_rounds = 1
    ledger.record("a", "north", "coordinator", b".", "masked", "its sums")
    researcher = "What did the researcher read?"
    assert "Nothing readable" in answer(fitted(ledger), researcher)
    ledger.learns("coordinator", "its sums", is_total=True)
    said = answer(fitted(ledger), researcher)
    assert "Exact totals over all parties: its sums" in said
    assert "single parties" not in said
    page = read(fitted(ledger))
    assert "added up over all parties: sums" in page.text("learnt")
    assert "by subtracting" in answer(fitted(ledger), "by whom?")
    ledger.record("b", "north", "coordinator", b".", "plaintext aggregate", "its mean")
    said = answer(fitted(ledger), researcher)
    assert said.startswith(" Exact figures of single parties: its mean.")
    ledger.record("c", "north", "south", b".", "raw rows", "some rows")
    assert "Yes: rows of data were read by each party" in read(fitted(ledger)).text(
        "short"
    )
    assert "nothing protects" in answer(fitted(ledger), "by whom?")
    assert "Rows of data: some rows" in answer(fitted(ledger), "other parties read?")
    learnt = read(fitted(ledger)).text("learnt")
    forms = [words.KIND_WORDS[k][0] for k in ("plaintext aggregate", "masked")]
    assert learnt.index(forms[0]) < learnt.index(forms[1])


MEMBERSHIP = "Did anybody learn who is in the other's file?"


def test_membership_is_the_first_question(model):
    assert read(model).text("short").partition("?")[0].endswith(MEMBERSHIP[:-1])
    said = answer(model, MEMBERSHIP)
    if isinstance(model, PrivateK2StructureLearner):
        assert "It was known before" in said
    elif hasattr(model, "privacy_spent_"):
        assert "noise hides" in said
    else:
        assert "membership test" in said


def test_parties_that_compare_keys_learn_whom_they_share():
    ledger = Ledger(parties=("bank", "insurer"))
    ledger.learns("all parties", "which records all of them have", "membership")
    assert "which of its records all parties have" in answer(fitted(ledger), MEMBERSHIP)
    pd = pytest.importorskip("pandas")
    codes = pd.DataFrame({"x": [0, 1] * 3}, index=[1, 2, 3, 4, 5, 6])
    columns = {"bank": codes, "insurer": codes[::-1].rename(columns={"x": "z"})}
    keys = {name: frame.index.astype(str) for name, frame in columns.items()}
    parts = VerticalPartition(columns, keys=keys, reveal_membership=True)
    aligned = PrivateK2StructureLearner(ordering=["x", "z"]).fit(parts)
    assert "which of its records all parties have" in answer(aligned, MEMBERSHIP)


def test_exact_values_beside_noise_are_a_membership_test():
    ledger = Ledger(parties=("a", "b"))
    ledger.learns("coordinator", "a count")
    assert "membership test" in answer(fitted(ledger, (1.0, 0.0)), MEMBERSHIP)


def test_parties_read_noisy_totals_and_the_result_too():
    ledger = Ledger(parties=("a", "b"))
    ledger.record("sum", "a", "coordinator", b".", "public", "the result")
    ledger.learns("coordinator", "tables", "noisy release", epsilon=1.0)
    said = answer(fitted(ledger, (1.0, 0.0)), "other parties read?")
    assert "With noise: tables. Results and settings: the finished model." in said
    alone = fitted(Ledger(parties=("a",)))
    assert "one party" in answer(alone, "other parties read?")


@pytest.mark.parametrize(
    "epsilon, verdict",
    [
        (0.5, "strong"),
        (4.0, "moderate"),
        (5.0, "moderate"),
        (5.1, "weak"),
        (30, "weak"),
    ],
)
def test_large_epsilon_is_not_called_protection(epsilon, verdict):
    short = read(fitted(Ledger(parties=("a",)), (epsilon, 1e-6))).text("short")
    assert f"epsilon = {epsilon:g}, delta = 1e-06, usually called {verdict}" in short
    assert ("hides hardly anything" in short) == (verdict == "weak")


@pytest.mark.parametrize(
    "epsilon, percent",
    [(1.0, "73.2"), (5.0, "99.4"), (10.0, "99.996"), (15.0, "99.99997"), (99.0, "100")],
)
def test_how_often_a_guess_is_right_is_not_rounded_to_certainty(epsilon, percent):
    short = read(fitted(Ledger(parties=("a",)), (epsilon, 0.0))).text("short")
    assert f"is right at most {percent} % of the time" in short


@pytest.mark.parametrize("delta, is_large", [(1e-2, True), (1e-3, False)])
def test_a_delta_above_one_over_the_rows_is_pointed_out(delta, is_large):
    X = np.random.default_rng(0).uniform(-1, 1, size=(300, 1))
    scaler = FederatedStandardScaler(epsilon=4.0, delta=delta, bounds=(-1, 1))
    short = read(scaler.fit(X, party=np.arange(300) % 3)).text("short")
    assert ("one over the number of rows" in short) == is_large


def test_exact_values_beside_the_noise_are_pointed_out():
    ledger = Ledger(parties=("a", "b"))
    assert "exact values" not in read(fitted(ledger, (1.0, 0.0))).text("short")
    ledger.note("epsilon covers the tables", "epsilon")
    page = read(fitted(ledger, (1.0, 0.0)))
    assert "not for everything" in page.text("short")
    assert "Noise does not cover everything" in answer(
        fitted(ledger, (1.0, 0.0)), MEMBERSHIP
    )
    assert "Epsilon covers the tables" in page.text("budget")
    ledger.learns("coordinator", "a count")
    assert "exact values" in read(fitted(ledger, (1.0, 0.0))).text("short")


def test_infinite_and_zero_epsilon():
    unused = fitted(Ledger(parties=("a", "b")), (0.0, 0.0))
    assert "No rows were used" in answer(unused, MEMBERSHIP)
    ledger = Ledger(parties=())
    assert "no noise" in read(fitted(ledger, (np.inf, 0.0))).text("short")
    assert "No rows were used" in read(fitted(ledger, (0.0, 0.0))).text("short")


def test_budget_of_the_accountant():
    accountant = PrivacyAccountant(epsilon=3.0)
    accountant.spend(epsilon=1.0, what="earlier")
    cost = accountant.spend(epsilon=0.5, what="this")
    budget = read(fitted(Ledger(), cost, accountant=accountant)).text("budget")
    assert "This calculation epsilon = 0.5" in budget
    assert "epsilon = 3 for these data; spent so far 1.5 in 2 release(s)" in budget
    assert "left 1.5" in budget


def test_epsilon_left_with_colluders():
    class Noise:
        kind, scale, sensitivity = "laplace", 1.0, 1
        epsilon, delta, rho = 1.0, 0.0, None

        def epsilon_with_colluders(self):
            return [1.0, 2.5, 4.6e8, np.inf]

    ledger = Ledger(parties=("a", "b", "c"))
    declare_noise(ledger, Noise(), "counts")
    found = read(fitted(ledger, (1.0, 0.0))).text("short")
    assert "epsilon = 2.5 is left against 1, no protection is left against 2." in found


def test_libraries_are_those_of_backends_that_were_used_not_of_words():
    ledger = Ledger(parties=("a", "b"))
    ledger.record("a", "a", "coordinator", b".", "masked", "its sums")
    ledger.note("masks, and neither CKKS nor Paillier", "also")
    software = read(fitted(ledger)).text("evidence")
    assert "tenseal" not in software and "phe " not in software
    ledger.note("a cipher", "hidden by", named_parameters(CKKSBackend()))
    software = read(fitted(ledger)).text("evidence")
    assert "tenseal" in software and "phe " not in software


def test_simulation_is_claimed_only_where_recorded():
    ledger = Ledger(parties=("a", "b"))
    ledger.record("a", "a", "coordinator", b".", "public", "go")
    assert "The record does not say" in read(fitted(ledger)).text("header")
    said = "sites were authenticated by their certificates"
    ledger.note(said, "connection", "authenticated")
    page = read(fitted(ledger))
    assert "Sites were authenticated" in page.text("header")
    assert "simulation" not in page.text("header")
    federation = InProcessFederation
    ledger.note(federation.authentication, "connection", federation.connection)
    assert "This was a simulation" in read(fitted(ledger)).text("header")


def test_difficult_words_are_explained_if_used():
    ledger = Ledger(parties=("a", "b"))
    ledger.learns("a", "log-likelihoods of its rows", "share")
    found = read(fitted(ledger)).text("words")
    assert "log-likelihood" in found
    assert "garbled" not in found


def test_every_kind_has_words():
    assert words.KIND_WORDS.keys() == KINDS.keys()


def test_many_parties_are_counted():
    names = [f"clinic {i}" for i in range(100)]
    header = read(fitted(Ledger(parties=tuple(names)))).text("header")
    assert "clinic 29 and 70 more ." in header


@pytest.mark.parametrize(
    "n_bytes, shown",
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1234567, "1.2 MB")],
)
def test_sizes(n_bytes, shown):
    assert size(n_bytes) == shown


def test_attributes_are_escaped():
    assert tag("a", "<", title_="\"'") == '<a title="&quot;&#x27;">&lt;</a>'


def luminance(colour):
    colour = colour if len(colour) == 7 else "#" + "".join(c * 2 for c in colour[1:])
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    return linear @ [0.2126, 0.7152, 0.0722]


def test_text_has_contrast_in_every_scheme():
    schemes = re.findall(r":root \{([^}]*)\}", STYLE)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w+)", scheme))
        for ink in ("ink", "soft", "good", "note", "bad"):
            for paper in ("page", "card"):
                light = [luminance(colours[name]) + 0.05 for name in (ink, paper)]
                assert max(light) / min(light) >= 4.5, (ink, paper)


def test_needs_a_ledger():
    with pytest.raises(NotFittedError, match="Learner has no ledger_.*fit it first"):
        privacy_report(Learner())


def test_all_steps_of_a_pipeline_or_a_search_that_learnt_from_parties():
    rows, party = np.arange(60.0).reshape(30, 2) ** 1.5, ["a", "b", "c"] * 10
    pipeline = make_pipeline(
        FederatedStandardScaler(), FunctionTransformer(), FederatedPCA()
    )
    with pytest.raises(NotFittedError, match="Pipeline has no ledger_"):
        privacy_report(pipeline)
    with config_context(enable_metadata_routing=True):
        pipeline.fit(rows, party=party)
        search = GridSearchCV(pipeline, {"federatedpca__n_components": [1, 2]}, cv=2)
        search.fit(rows, party=party)
    learnt = [pipeline[0], pipeline[2]]
    for fitted_one in (pipeline, search):
        text = privacy_report(fitted_one)
        named = [text.index(f"the model {type(s).__name__} was") for s in learnt]
        assert named == sorted(named)
        ids = re.findall(r'<section[^>]* id="(\w+)"', text)
        assert len(ids) == len(set(ids)) > 3
        assert text.index("Privacy report, part 1 of 2") < text.index("part 2 of 2")
        # two candidates on two folds each: what they told is on no page
        assert ("after 4 more calculations" in text) == (fitted_one is search)
