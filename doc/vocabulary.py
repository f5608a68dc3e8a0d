"""A directive that lists every word of the estimators, and who says it.

.. code-block:: rst

    .. vocabulary:: parameters

makes a table of the parameters of all public estimators (or of their ``attributes`` or
``methods``), with the estimators that have each. ``tests/test_vocabulary.py`` reads the
same table, and fails where one thing has two names or one name two meanings.
"""

import inspect
from collections import namedtuple
from importlib import import_module

from docutils import nodes
from docutils.parsers.rst import Directive
from fit_directive import table, text
from numpydoc.docscrape import ClassDoc
from sklearn.base import BaseEstimator

FAMILIES = (
    "structure",
    "bayesian_network",
    "graphical_model",
    "mixture",
    "mixed_model",
    "preprocessing",
    "privacy",
)

#: what one estimator documents about one of its parameters or attributes
Word = namedtuple("Word", "estimator name type default description")


def estimators():
    """Return all public estimators, by name; one that has two names, by its own."""
    found = {}
    for family in FAMILIES:
        module = import_module(f"skprivbn.{family}")
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isclass(member) and issubclass(member, BaseEstimator):
                found[member.__name__] = member
    return found


def words(kind):
    """Return every `Word` of a kind, "Parameters" or "Attributes"."""
    return [
        Word(estimator, name.strip(), *split_default(entry.type), " ".join(entry.desc))
        for estimator, cls in estimators().items()
        for entry in ClassDoc(cls)[kind]
        for name in entry.name.split(",")
    ]


def split_default(described):
    """Split "float, default=0.1" into what it is and what it is by default."""
    kind, _, default = described.partition(", default=")
    return kind.strip(), default or None


def methods():
    """Return {method: estimators that have it}, without scikit-learn's own set-up."""
    found = {}
    for estimator, cls in estimators().items():
        for name in dir(cls):
            member = inspect.getattr_static(cls, name)
            # methods that are there only if ... are no functions
            is_method = callable(member) or hasattr(member, "fn")
            if is_method and not name.startswith(("_", "set_", "get_")):
                found.setdefault(name, []).append(estimator)
    return found


def users(kind):
    """Return {word: estimators} for parameters, attributes or methods."""
    if kind == "methods":
        return methods()
    found = {}
    for word in words(kind.capitalize()):
        found.setdefault(word.name, []).append(word.estimator)
    return found


class Vocabulary(Directive):
    """A table of words and of the estimators that have them."""

    required_arguments = 1

    def run(self):
        found = users(self.arguments[0])
        rows = [
            [literal(name), text(", ".join(sorted(found[name])))]
            for name in sorted(found)
        ]
        return [table(["name", "estimators"], rows, widths=[1, 3], kind="vocabulary")]


def literal(name):
    return nodes.paragraph("", "", nodes.literal(name, name))


def setup(app):
    """Register the directive with Sphinx."""
    app.add_directive("vocabulary", Vocabulary)
    return {"parallel_read_safe": True}
