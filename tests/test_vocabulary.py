"""One thing has one name in all estimators, and one name means one thing."""

import sys
from collections import defaultdict
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

pytest.importorskip("docutils")
pytest.importorskip("numpydoc")

DOC = Path(__file__).parents[1] / "doc"

#: what protects people stands together, in this order
PRIVACY = ["epsilon", "delta", "bounds", "accountant", "min_honest"]

#: words that are no longer said, and what is said instead
RETIRED = {
    "search": "method",
    "search_": "method_",
    "model": "method",
    "solver": "method",
    "algorithm": "method",
    "model_": "network_",
    "graph_": "adjacency_matrix_",
    "e_step": "method",
    "coef_se_": "coef_std_",
    "intercept_se_": "intercept_std_",
    "n_records_": "n_samples_",
    "n_rows_": "n_samples_",
    "n_samples_seen_": "n_samples_",
    "lagged_adjacency_": "lagged_adjacency_matrix_",
    "budget": "epsilon",
}

#: scikit-learn's word in the estimator whose place ours takes
SCIKIT_LEARN = {
    ("strategy", "FederatedKBinsDiscretizer"),
    ("weights_", "PPEMGaussianMixture"),
    ("n_components", "FederatedPCA"),
    ("n_components", "PPEMGaussianMixture"),
}

#: who has one of these has the others; who has not, and why
TOGETHER = [
    ({"epsilon"}, {"accountant", "privacy_spent_"}, {}),
    ({"delta"}, {"epsilon"}, {}),
    (
        {"backend"},
        {"ledger_", "n_samples_"},
        {
            "FederatedKBinsDiscretizer": "no rows",
            "FederatedSimpleImputer": "every column has its own",
        },
    ),
    ({"verbose"}, {"set_callbacks"}, {}),
    ({"network_"}, {"n_samples_", "predict", "score", "score_samples"}, {}),
    ({"network_"}, {"to_networkx"}, {}),
    ({"network_"}, {"sample"}, {"FederatedDynotears": "series need a past to start"}),
    ({"network_"}, {"adjacency_matrix_"}, {"DPCGMLearner": "edges have no direction"}),
    (
        {"transform"},
        {"inverse_transform"},
        {
            "PrivateSearchCV": "has what it chose",
            "FederatedSimpleImputer": "nothing tells what was filled in",
        },
    ),
]

#: defaults that differ, each for its reason
OTHER_DEFAULTS = {
    "backend": "columns are counted by transfers; mixtures' sums are for parties",
    "criterion": "K2 is named after its score",
    "epsilon": "None adds no noise, where that is a choice",
    "estimator": "there is none to search over by default",
    "lambda1": "losses are scaled differently",
    "link": "the usual one of the family of distributions",
    "max_iter": "an iteration is not the same amount of work",
    "method": "names of methods",
    "min_rows": "bins are those of scikit-learn, unless asked otherwise",
    "n_components": "as in scikit-learn",
    "strategy": "of an imputer, as in scikit-learn, or of a vote",
    "tol": "measured in what the method stops by",
}

#: types that differ, each for its reason
OTHER_TYPES = {
    "backend": "columns are counted, rows are summed",
    "classes_": "two of them here, any number there",
    "criterion": "one bears noise best, and is for K2 only",
    "coef_": "as in scikit-learn: a classifier has a row of them",
    "coef_std_": "as `coef_`",
    "covariance_": "of features, or of coefficients",
    "epsilon": "None is said where it is not the default",
    "handle_unknown": "as in scikit-learn: a number, or no column at all",
    "intercept_": "as `coef_`",
    "intercept_std_": "as `coef_`",
    "link": "a target that is counted has others than a class",
    "method": "names of methods",
    "missing": "a network with tables can complete rows by EM",
    "n_samples_": "an estimate under noise",
    "network_": "networks of different kinds",
    "strategy": "as in scikit-learn: of an imputer; of votes, the word of the paper",
    "site_effects": "tests of independence know levels only",
}


@pytest.fixture(scope="module")
def vocabulary():
    sys.path.insert(0, str(DOC))
    try:
        yield import_module("vocabulary")
    finally:
        sys.path.remove(str(DOC))


@pytest.fixture(scope="module")
def words(vocabulary):
    return vocabulary.words("Parameters") + vocabulary.words("Attributes")


def test_the_table_has_every_estimator(vocabulary, words):
    assert len(vocabulary.estimators()) >= 15
    assert {word.estimator for word in words} == set(vocabulary.estimators())
    assert len(vocabulary.users("methods")["fit"]) == len(vocabulary.estimators())


def test_the_table_has_the_parameters_that_there_are(vocabulary):
    documented = defaultdict(set)
    for word in vocabulary.words("Parameters"):
        documented[word.estimator].add(word.name)
    for name, cls in vocabulary.estimators().items():
        assert documented[name] == set(signature(cls).parameters)


def scattered(parameters):
    """Tell whether privacy parameters are apart, or in another order."""
    ours = [name for name in PRIVACY if name in parameters]
    if not ours:
        return False
    start = parameters.index(ours[0])
    return parameters[start : start + len(ours)] != ours


def test_privacy_parameters_stand_together(vocabulary):
    wrong = [
        name
        for name, cls in vocabulary.estimators().items()
        if scattered(list(signature(cls).parameters))
    ]
    assert not wrong


def test_no_word_has_come_back(words):
    wrong = [
        f"{word.estimator}: {word.name}, say {RETIRED[word.name]}"
        for word in words
        if word.name in RETIRED
    ]
    assert not wrong


def apart(has, rules):
    """List estimators that have a word without those that go with it."""
    return [
        f"{estimator} has {sorted(given)} without {sorted(needed - own)}"
        for given, needed, excused in rules
        for estimator, own in has.items()
        if given <= own and not needed <= own and estimator not in excused
    ]


def test_words_that_go_together_do(vocabulary, words):
    has = defaultdict(set)
    for word in words:
        has[word.estimator].add(word.name)
    for name, estimators in vocabulary.users("methods").items():
        for estimator in estimators:
            has[estimator].add(name)
    for name, cls in vocabulary.estimators().items():
        if hasattr(cls, "set_callbacks"):
            has[name].add("set_callbacks")
    assert not apart(has, TOGETHER)


def two_meanings(words, field, excused):
    """List names with several types, or defaults, in different estimators."""
    seen = defaultdict(set)
    for word in words:
        if word.name not in excused and (word.name, word.estimator) not in SCIKIT_LEARN:
            seen[word.name].add(getattr(word, field))
    return {name: found for name, found in seen.items() if len(found) > 1}


def test_a_name_has_one_meaning(words):
    assert not two_meanings(words, "type", OTHER_TYPES)


def test_a_parameter_has_one_default(words):
    assert not two_meanings(words, "default", OTHER_DEFAULTS)


def two_names(words):
    """List descriptions that different words have in different estimators."""
    seen = defaultdict(set)
    for word in words:
        seen[word.description].add((word.estimator, word.name))
    # words that one estimator describes together are a pair, not two names
    return [
        sorted(found)
        for found in seen.values()
        if len({name for _, name in found}) > 1 and len({e for e, _ in found}) > 1
    ]


def test_a_thing_has_one_name(words):
    assert not two_names(words)


def test_exceptions_are_still_needed(vocabulary, words):
    names = {word.name for word in words}
    assert {*OTHER_DEFAULTS, *OTHER_TYPES} <= names
    assert set(two_meanings(words, "default", {})) >= set(OTHER_DEFAULTS) - {
        "n_components"
    }
    assert set(two_meanings(words, "type", {})) >= set(OTHER_TYPES)
    assert {(word.name, word.estimator) for word in words} >= SCIKIT_LEARN


def test_what_is_inconsistent_is_found(vocabulary, words):
    Word = vocabulary.Word
    renamed = Word("New", "n_rows", "int", None, "Rows of all parties.")
    known = Word("Old", "n_samples_", "int", None, "Rows of all parties.")
    assert two_names([known, renamed]) == [[("New", "n_rows"), ("Old", "n_samples_")]]
    assert two_meanings([known, known._replace(type="bool")], "type", {})
    assert two_meanings([known, known._replace(default="7")], "default", {})
    assert scattered(["epsilon", "states", "delta"])
    assert scattered(["delta", "epsilon"])
    assert not scattered(["states", "epsilon", "delta", "accountant", "verbose"])
    assert apart({"New": {"epsilon"}}, TOGETHER)
