"""The page on what a coordinator may say names every argument of every operation."""

import inspect
import re
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

from skprivbn.federation import Party
from skprivbn.federation._announced import PROTOCOLS, announced
from skprivbn.federation._federation import _CONTROL

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "doc" / "operations.rst").read_text(encoding="utf-8")


@pytest.fixture
def protocols(monkeypatch):
    """Return the party classes of all announced estimators, and of the example's."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "extension"))
    private_extras = import_module("private_extras")
    estimators = [one.load() for one in announced(PROTOCOLS, "skprivbn").values()]
    estimators += [
        member
        for member in vars(private_extras).values()
        if inspect.isclass(member) and hasattr(member, "protocols")
    ]
    return {p.__name__: p for estimator in estimators for p in estimator.protocols}


def arguments(party_class):
    """Return the operations of a protocol with each of their arguments."""
    return {
        (party_class.__name__, operation, argument)
        for operation in party_class.operations()
        for argument in list(
            inspect.signature(getattr(party_class, operation)).parameters
        )[1:]
    }


def lines(title):
    """Return the cells of the table under a title, as the names in each of them."""
    section = PAGE.split(f"\n{title}\n=")[1]
    table = section.split(".. list-table::")[1].split("\n\n")[1]
    rows = re.split(r"^   \* - ", table, flags=re.MULTILINE)[2:]
    for row in rows:
        cells = re.split(r"^     - ", row, flags=re.MULTILINE)
        yield [re.findall(r"``(\w[\w.]*)``", cell) for cell in cells]


def test_every_argument_has_a_line_and_every_line_an_argument(protocols):
    named = set()
    for classes, operations, given, *_ in lines("Arguments"):
        named |= set(product(classes, operations, given))
    taken = set().union(*map(arguments, protocols.values()))
    assert not taken - named, "doc/operations.rst says nothing about these"
    assert not named - taken, "doc/operations.rst names what there is not"


def test_every_protocol_has_a_line_about_its_terms(protocols):
    named = [name for classes, *_ in lines("Terms") for name in classes]
    assert sorted(named) == sorted(protocols)


def test_control_messages_have_a_line():
    told = {name for _, operations, *_ in lines("Arguments") for name in operations}
    assert told >= set(_CONTROL)


def test_an_operation_without_a_line_is_found():
    """The twin: what the test above would say of a new operation."""

    class NewParty(Party):
        def ask(self, anything):
            """Not an operation."""

    assert arguments(NewParty) == set()
    NewParty.ask.operation = object()
    NewParty.operations.cache_clear()
    assert arguments(NewParty) == {("NewParty", "ask", "anything")}


def test_every_answer_is_declared(protocols):
    """Of what is no hidden vector and no conversation, so that garbage has a name."""
    undeclared = [
        f"{name}.{operation}"
        for name, protocol in protocols.items()
        for operation, words in protocol.operations().items()
        if protocol.__module__.startswith("skprivbn.")
        if words.answers is None and words.tells
        for method in [inspect.unwrap(getattr(protocol, operation))]
        if not inspect.isgeneratorfunction(method)
        if not re.search(r"self\.\w*hide|_hidden", inspect.getsource(method))
    ]
    assert undeclared == []
