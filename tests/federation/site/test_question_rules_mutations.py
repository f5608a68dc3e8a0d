"""Every threshold and comparison of the rules and the door: a mutant of each dies."""

import sys
import types
from contextlib import nullcontext
from functools import cached_property

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from skprivbn.federation import Terms
from skprivbn.federation.site import _account, _question
from skprivbn.programs import _columns
from tests.federation.test_gate_mutations import mutate

#: the module, which has the name of a decorator
program = sys.modules["skprivbn.federation.program"]


def refuses(call, *arguments, code=False):
    """Tell whether something is refused, or with which code."""
    try:
        call(*arguments)
    except Exception as error:
        # classes of a mutant are its own
        if type(error).__name__ not in ("PartyRefusal", "BudgetExceededError"):
            raise
        return error.code if code else True
    return None if code else False


def account_of(module, n_told, n_set_aside):
    """Return the account of an exact question, and what was told before."""
    account = module.Account.__new__(module.Account)
    vars(account).update(_noise=None, _is_held=True, _name="icu", _version="1")
    account._mine = "icu", "session"
    account._state = types.SimpleNamespace(
        transaction=nullcontext,
        told=lambda name: {"1": (1, n_told), "2": (9, 999)},
        charges=lambda *mine: [
            {"version": "1", "announced": n_set_aside},
            {"version": "2", "announced": 999},
        ],
        announce=lambda *mine: True,
    )
    return account


class Site(types.SimpleNamespace):
    """What rules know of a question; anything is allowed unless said otherwise."""

    dataset = types.SimpleNamespace(
        allow_rows=False,
        individual=None,
        estimators={
            "A": types.SimpleNamespace(load=lambda: StandardScaler),
            "C": types.SimpleNamespace(load=lambda: GaussianMixture),
        },
        backends={"masking": 1},
        limits={"min_rows": 20, "min_cell_count": 5},
        presets={},
        min_parties=3,
    )
    n_parties, noise = 3, None
    shows, joins, weak, models, protects = False, False, False, (), "rows"
    X, steps, backend, individual, min_rows = "ab", [], None, None, 20

    @property
    def agreement(self):
        return types.SimpleNamespace(
            backend=self.backend,
            roster=("a", "b"),
            data={
                "X": {"a": ["x"], "b": ["x"] if self.X == "ab" else ["y"]},
                "steps": self.steps,
                "aligned": {"individual": self.individual},
            },
        )

    @cached_property
    def terms(self):
        terms = types.SimpleNamespace(
            for_tests_only=lambda: self.weak,
            joins_columns=lambda: self.joins,
            shows_rows=lambda: self.shows,
            models=lambda: self.models,
            protects=self.protects,
        )
        terms.raised_to = lambda limits: (
            terms if limits["min_rows"] <= self.min_rows else "other terms"
        )
        return terms


def noise(min_honest):
    return types.SimpleNamespace(min_honest=min_honest)


def with_individual(**changes):
    known = types.SimpleNamespace(**vars(Site.dataset) | {"individual": "who"})
    return Site(dataset=known, noise=noise(2), **changes)


def check_rules(rules):
    """Hold for the rules of a site."""

    def allows(question):
        return not refuses(rules.check_question, question)

    assert allows(Site())
    for n in (2, 3, 4):
        assert allows(Site(n_parties=n)) is (n >= 3)
    for n_honest in (1, 2, 3):
        assert allows(Site(noise=noise(n_honest))) is (n_honest <= 2)
    for least in (19, 20, 21):
        assert allows(Site(min_rows=least)) is (least >= 20)
    assert not allows(Site(weak=True))
    assert not allows(Site(shows=True))
    known = types.SimpleNamespace(**vars(Site.dataset) | {"allow_rows": True})
    assert allows(Site(shows=True, dataset=known))
    assert not allows(Site(X="other"))
    assert allows(Site(X="other", joins=True))
    for name in "AB":
        assert allows(Site(models=({"estimator": name},))) is (name == "A")
        assert allows(Site(steps=[{"estimator": name}])) is (name == "A")
    assert allows(Site(models=({"estimator": "C"},)))
    assert not allows(Site(steps=[{"estimator": "C"}]))
    unknown = Site(steps=[{"estimator": "B"}])
    assert refuses(rules.check_question, unknown, code=True) == "not-allowed"
    other = Site(backend={"name": "plaintext", "parameters": {}})
    assert refuses(rules.check_question, other, code=True) == "not-allowed"
    assert not allows(with_individual())
    assert not allows(with_individual(individual="who"))
    assert not allows(with_individual(protects="individuals"))
    assert allows(with_individual(individual="who", protects="individuals"))


RULES = [
    ("return backend is None or backend", "return True or backend"),
    ("return not question.terms.for_tests_only()", "return True"),
    ("or all(x == lists[0] for x in lists)", "or any(x == lists[0] for x in lists)"),
    ("question.terms.joins_columns() or all", "all"),
    ("question.dataset.allow_rows or not", "not question.dataset.allow_rows or not"),
    ("or not question.terms.shows_rows()", "or question.terms.shows_rows()"),
    ("for model in [*models, *steps]", "for model in models"),
    ("for model in [*models, *steps]", "for model in steps"),
    ("return named and all(", "return named or all("),
    ("is question.terms\n", "is not None\n"),
    ("question.n_parties >= question", "question.n_parties > question"),
    ("question.n_parties >= question.dataset.min_parties", "True"),
    ("<= question.n_parties + 1", "<= question.n_parties"),
    ("<= question.n_parties + 1", "<= question.n_parties + 3"),
    ("return named and question", "return named or question"),
    ('question.terms.protects == "individuals"', "True"),
    ("if allows(question):", "if True:"),
]


@pytest.mark.parametrize(("old", "new"), RULES)
def test_no_mutant_of_the_rules_survives(old, new):
    mutant = mutate(_question, old, new)
    with pytest.raises((AssertionError, TypeError)):
        check_rules(mutant)


def test_the_rules_themselves():
    check_rules(_question)


def me_of(module, n_filled, limit=20):
    """Return a party of which some rows have a value of the second column."""
    X = np.ones((400, 2))
    X[n_filled:, 1] = np.nan
    return module.Me({"X": X}, Terms(), "a", ("a", "b"), own_min_rows=limit)


def check_door(program=program, told=_account, columns=_columns):
    """Hold for the door of a site."""
    for n in (19, 20, 21):
        few = refuses(lambda n=n: me_of(program, n).numbers(gaps=True), code=True)
        assert few == ("too-few-rows" if n < 20 else None)
        assert not refuses(lambda n=n: me_of(program, n, 1).numbers(gaps=True))
    for n in (19, 20):
        me = types.SimpleNamespace(min_rows=20, is_simulated=False)
        assert refuses(columns.check_table, me, 2, n) is (n < 20)
        assert refuses(columns.check_table, me, n + 1, n)
        assert refuses(columns.check_table, me, n, n) is (n < 20)
        free = types.SimpleNamespace(min_rows=1, is_simulated=True)
        assert not refuses(columns.check_table, free, 99, n)
    for n_told in (0, 100):
        for n_set_aside in (0, 50):
            account = account_of(told, n_told, n_set_aside)
            n_left = 300 - n_told - n_set_aside
            assert not refuses(account.announce, n_left, 300)
            assert account._n_announced == n_left
            assert refuses(account.announce, n_left + 1, 300)


DOOR = [
    (
        "program",
        program,
        "n_filled < self.own_min_rows",
        "n_filled <= self.own_min_rows",
    ),
    ("program", program, "n_filled < self.own_min_rows", "n_filled < 1"),
    (
        "program",
        program,
        "if gaps and strict and self.own",
        "if strict and not self.own",
    ),
    ("columns", _columns, "me.min_rows <= max(1, n_records)", "True"),
    (
        "columns",
        _columns,
        "me.min_rows <= max(1, n_records)",
        "me.min_rows < max(1, n_records)",
    ),
    ("columns", _columns, "or n_cells <= n_records", "or n_cells < n_records"),
    ("columns", _columns, "or n_cells <= n_records", "or n_cells <= n_records + 1"),
    ("columns", _columns, "me.is_simulated or n_cells", "n_cells"),
    ("told", _account, "+ n_numbers > most", "+ n_numbers >= most"),
    ("told", _account, "+ n_numbers > most", "> most"),
    ("told", _account, "+ n_numbers > most", "+ n_numbers > most + 1"),
    ("told", _account, "if n_told + sum(", "if sum("),
    ("told", _account, 'c["announced"] for c in told', "0 for c in told"),
    ("told", _account, 'if charge["version"] == self._version]', "]"),
    (
        "told",
        _account,
        ".get(self._version, (0, 0))[1]",
        ".get(self._version, (0, 0))[0]",
    ),
]


def test_the_door_itself():
    check_door()


@pytest.mark.parametrize(("name", "module", "old", "new"), DOOR)
def test_no_mutant_of_the_door_survives(name, module, old, new):
    mutant = mutate(module, old, new)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        check_door(**{name: mutant})
