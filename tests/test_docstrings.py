"""Every public name is documented, exemplified and in the API reference."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import skprivbn

pytest.importorskip("numpydoc")
from numpydoc.docscrape import ClassDoc, FunctionDoc
from numpydoc.validate import validate

API_PAGES = Path(skprivbn.__file__).parent.parent / "doc" / "api"

# Shared helpers of maintainers: importable, not part of the API reference.
INTERNAL = {"skprivbn.utils"}

# Of numpydoc's checks those that tell a reader something. Parameters are compared
# below, since fields of a record may be documented as attributes.
CHECKS = {
    "GL05",  # tabs
    "GL06",  # unknown section
    "GL07",  # sections in the wrong order
    "GL08",  # no docstring
    "GL09",  # deprecation not at the top
    "SS01",  # no summary
    "SS02",  # summary without a capital
    "SS03",  # summary without a full stop
    "SS04",  # summary with leading spaces
    "SS05",  # summary not in the imperative
    "PR06",  # unusual name of a type
    "PR08",  # description without a capital
    "PR10",  # parameter without a space before the colon
    "RT01",  # no Returns section
    "SA02",  # See Also without a full stop
    "SA03",  # See Also without a capital
}


def public_modules():
    yield skprivbn
    for info in pkgutil.iter_modules(skprivbn.__path__, "skprivbn."):
        if not info.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(info.name)


def public_objects():
    """Yield (module, name, object) for every name that a module exports."""
    for module in public_modules():
        for name in getattr(module, "__all__", []):
            yield module.__name__, name, getattr(module, name)


def documented_objects():
    """Return the public classes and functions by qualified name."""
    return {
        f"{module}.{name}": obj
        for module, name, obj in public_objects()
        if module not in INTERNAL | {"skprivbn"}
        and (inspect.isclass(obj) or inspect.isfunction(inspect.unwrap(obj)))
    }


OBJECTS = documented_objects()
CLASSES = {
    name: cls
    for name, cls in OBJECTS.items()
    if inspect.isclass(cls) and not issubclass(cls, BaseException)
}


def is_record(obj):
    return is_dataclass(obj) or hasattr(obj, "_fields")


def is_protocol(obj):
    return getattr(obj, "_is_protocol", False)


@pytest.mark.parametrize("name", OBJECTS)
def test_docstring_is_numpydoc(name):
    errors = [f"{code}: {text}" for code, text in validate(name)["errors"]]
    assert not [error for error in errors if error[:4] in CHECKS]


@pytest.mark.parametrize("name", OBJECTS)
def test_fitted_attributes_in_shapes_are_quoted(name):
    # Sphinx takes a bare word that ends with an underscore for a link.
    bare = re.findall(r"of shape \([^)`]*\w_[,)]", inspect.getdoc(OBJECTS[name]))
    assert not bare, "put the name in backticks"


@pytest.mark.parametrize("name", OBJECTS)
def test_parameters_are_documented(name):
    obj = OBJECTS[name]
    if inspect.isclass(obj) and not ("__init__" in vars(obj) or is_record(obj)):
        return  # made like its base class, or never made by a user
    if inspect.isclass(obj) and (name not in CLASSES or is_protocol(obj)):
        return
    doc = ClassDoc(obj) if inspect.isclass(obj) else FunctionDoc(inspect.unwrap(obj))
    listed = [field.name for field in doc["Parameters"]]
    if is_record(obj):
        listed += [field.name for field in doc["Attributes"]]
    documented = {part.strip(" *") for field in listed for part in field.split(",")}
    parameters = inspect.signature(obj).parameters
    passed_on = {p.name for p in parameters.values() if p.kind == p.VAR_KEYWORD}
    expected = {name for name in parameters if not name.startswith("_")}
    missing, unknown = expected - documented, documented - expected
    if is_record(obj):
        unknown = set()
    if passed_on and unknown:
        # Documenting what is passed on stands for documenting **options itself.
        missing, unknown = missing - passed_on, set()
    assert not missing, f"not documented: {sorted(missing)}"
    assert not unknown, f"documented but not there: {sorted(unknown)}"


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_and_attributes_are_described(name):
    if issubclass(CLASSES[name], BaseEstimator):
        doc = ClassDoc(CLASSES[name])
        fields = [*doc["Parameters"], *doc["Attributes"]]
        assert not [field.name for field in fields if not any(field.desc)]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_docstrings(name):
    own = [
        method
        for method, value in vars(CLASSES[name]).items()
        if not method.startswith("_")
        and isinstance(
            value, property | classmethod | staticmethod | type(lambda: None)
        )
    ]
    bare = [m for m in own if not inspect.getdoc(getattr(CLASSES[name], m))]
    assert not bare


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_examples(name):
    cls = CLASSES[name]
    # Nobody makes an abstract class, and records are made by functions that show them.
    if inspect.isabstract(cls) or is_protocol(cls) or is_record(cls):
        return
    if name.startswith(
        ("skprivbn.base.", "skprivbn.federation.", "skprivbn.programs.")
    ):
        return
    assert re.search(r"^Examples\n-+\n(?:.*\n)*>>> ", inspect.getdoc(cls), re.M)


def listed_names(page):
    """Return the names in the autosummary tables of a page, fully qualified."""
    module, names, inside = None, [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found.group(1)
        elif line.startswith(".. autosummary::"):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        elif inside and re.match(r"\s+\w+$", line):
            names.append(f"{module}.{line.strip()}")
    return names


def test_api_reference_is_complete_and_true():
    listed = [name for page in API_PAGES.glob("*.rst") for name in listed_names(page)]
    twice = {name for name in listed if listed.count(name) > 1}
    assert not twice
    missing, stale = set(OBJECTS) - set(listed), set(listed) - set(OBJECTS)
    assert not missing, f"add to doc/api: {sorted(missing)}"
    assert not stale, f"no longer public: {sorted(stale)}"


def test_headline_names_are_public_in_their_family():
    for name in getattr(skprivbn, "__all__", []):
        obj = getattr(skprivbn, name)
        if inspect.isclass(obj) or inspect.isfunction(obj):
            assert any(obj is other for other in OBJECTS.values()), name
