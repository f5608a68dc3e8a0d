"""The Bayesian interchange format: a strict reader and a writer that loses nothing.

Names and labels that are not plain words are quoted. Labels that are not strings
get their types in a ``property``, one word such as ``int_int``: some readers take no
more than one.
"""

import itertools
import re
from math import prod

import numpy as np

#: possessive, so that no text makes the reader go back over what it has read
_BLANK = re.compile(r"(?:\s++|//[^\n]*+)*+")
_TOKEN = re.compile(
    r"""
      "(?P<quoted>(?:[^"\\]++|\\.)*+)"
    | (?P<word>[^\s"{}()\[\];,|]++)
    | (?P<mark>[{}()\[\];,|])
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r"[^\s\"\\{}()\[\];,|/]+")
_TYPES = {
    "str": str,
    "int": int,
    "float": float,
    "bool": {"True": True, "False": False}.__getitem__,
}
_LABEL_TYPES = "label_types"
#: entries of all tables, and those that default rows stand for: a short text could ask
#: for any number
_MAX_ENTRIES, _MAX_DEFAULT_ENTRIES = 10**7, 10**6
#: axes of a table; with two states each, a parent more would be too many entries
_MAX_PARENTS = 31


def write_bif(nodes, states, parents, cpts):
    """Return a network as BIF text; see :class:`BayesianNetwork` for the arguments."""
    lines = ["network unknown {", "}"]
    for node in nodes:
        labels = states[node]
        lines += [
            f"variable {_quote(node)} {{",
            f"  type discrete [ {len(labels)} ] "
            f"{{ {', '.join(_quote(str(label)) for label in labels)} }};",
        ]
        if not all(isinstance(label, str) for label in labels):
            types = "_".join(type(label).__name__ for label in labels)
            lines.append(f"  property {_LABEL_TYPES} {types} ;")
        lines.append("}")
    for node in nodes:
        given = ", ".join(_quote(parent) for parent in parents[node])
        lines.append(
            f"probability ( {_quote(node)}{' | ' + given if given else ''} ) {{"
        )
        for index in np.ndindex(cpts[node].shape[:-1]):
            row = ", ".join(repr(float(p)) for p in cpts[node][index])
            configuration = ", ".join(
                _quote(str(states[parent][k]))
                for parent, k in zip(parents[node], index)
            )
            lines.append(f"  ({configuration}) {row};" if given else f"  table {row};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _quote(text):
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def read_bif(text):
    """Return the nodes, states, parents and CPTs that a BIF text describes.

    Raises a ValueError that names the line where the text is not as it should be.
    """
    reader = _Reader(text)
    states, labels, parents, rows = {}, {}, {}, {}
    while not reader.at_end():
        keyword = reader.word("network, variable or probability")
        if keyword == "network":
            reader.skip_block()
        elif keyword == "variable":
            name = reader.word("the name of a variable")
            if name in states:
                reader.fail(f"variable {name!r} is declared twice")
            states[name], written = _read_variable(reader)
            labels[name] = {label: code for code, label in enumerate(written)}
        elif keyword == "probability":
            name, given = _read_head(reader, labels)
            if name in rows:
                reader.fail(f"the probabilities of {name!r} are given twice")
            parents[name] = given
            rows[name] = _read_rows(reader, name, given, labels)
        else:
            reader.fail(f"expected network, variable or probability, got {keyword!r}")
    if not states:
        raise ValueError("the BIF text declares no variable")
    for name in states:
        if name not in rows:
            raise ValueError(f"the BIF text has no probabilities for {name!r}")
    return list(states), states, parents, rows


class _Reader:
    """The tokens of a text, one after the other, with the places they end at."""

    def __init__(self, text):
        self.text, self.tokens, self.next = text, [], 0
        #: entries of all tables so far, and those that default rows stand for
        self.n_entries = self.n_default_entries = 0
        position = self._skip_blanks(0)
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._fail_at(position, "a quotation mark is not closed")
            kind, end = match.lastgroup, match.end()
            value = match[kind]
            if kind == "quoted":
                value = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
            self.tokens.append(("mark" if kind == "mark" else "word", value, end))
            position = self._skip_blanks(end)

    def _skip_blanks(self, position):
        """Return where the next token begins, after blanks and comments."""
        text = self.text
        position = _BLANK.match(text, position).end()
        while text.startswith("/*", position):
            end = text.find("*/", position + 2)
            if end < 0:
                self._fail_at(position, "a comment is not closed")
            position = _BLANK.match(text, end + 2).end()
        return position

    def _fail_at(self, position, message):
        line = 1 + self.text.count("\n", 0, position)
        raise ValueError(f"BIF line {line}: {message}")

    def at_end(self):
        return self.next == len(self.tokens)

    def fail(self, message):
        self._fail_at(self.tokens[min(self.next, len(self.tokens)) - 1][2], message)

    def take(self, wanted):
        if self.at_end():
            self.fail(f"the text ends where {wanted} should be")
        self.next += 1
        return self.tokens[self.next - 1]

    def word(self, wanted):
        kind, value, _ = self.take(wanted)
        if kind != "word":
            self.fail(f"expected {wanted}, got {value!r}")
        return value

    def mark(self, *marks):
        kind, value, _ = self.take(" or ".join(map(repr, marks)))
        if kind != "mark" or value not in marks:
            self.fail(f"expected {' or '.join(map(repr, marks))}, got {value!r}")
        return value

    def words(self, wanted, end):
        """Return words separated by commas or blanks, up to a closing mark."""
        found = [self.word(wanted)]
        while True:
            kind, value, _ = self.take(f"',' or {end!r}")
            if kind == "word":
                found.append(value)
            elif value == ",":
                found.append(self.word(wanted))
            elif value == end:
                return found
            else:
                self.fail(f"expected ',' or {end!r}, got {value!r}")

    def until(self, mark):
        """Yield tokens up to a mark, which is taken, too."""
        while (token := self.take(repr(mark)))[:2] != ("mark", mark):
            yield token

    def skip_block(self):
        """Skip an optional name and everything in braces."""
        for mark in ("{", "}"):
            list(self.until(mark))

    def statement(self):
        """Return the words up to the next semicolon."""
        return [value for _, value, _ in self.until(";")]


def _read_variable(reader):
    """Return the labels of a variable's states, typed and as written."""
    written, types = None, None
    reader.mark("{")
    for token in reader.until("}"):
        if token[1] == "property":
            words = reader.statement()
            if words[:1] == [_LABEL_TYPES]:
                # release 0.2 wrote a word for each label
                types = "_".join(words[1:]).split("_")
        elif token[1] == "type":
            if reader.word("the word discrete") != "discrete":
                reader.fail("only variables of type discrete can be read")
            reader.mark("[")
            size = reader.word("the number of states")
            reader.mark("]")
            reader.mark("{")
            written = reader.words("a state", "}")
            reader.mark(";")
            if size != str(len(written)):
                reader.fail(f"{size} states are announced, {len(written)} are listed")
            if len(set(written)) != len(written):
                reader.fail(f"a state is listed twice: {written}")
        else:
            reader.fail(f"expected type or property, got {token[1]!r}")
    if written is None:
        reader.fail("the variable has no type")
    if types is None:
        return written, written
    try:
        typed = [
            _TYPES[name](label) for name, label in zip(types, written, strict=True)
        ]
    except (KeyError, ValueError):
        reader.fail(f"the label types {types} do not fit the states {written}")
    return typed, written


def _read_head(reader, labels):
    """Return the node and its parents from ``( node | parent, ... ) {``."""
    reader.mark("(")
    name, given = reader.word("the name of a variable"), []
    if reader.mark("|", ")") == "|":
        given = reader.words("the name of a parent", ")")
    for variable in (name, *given):
        if variable not in labels:
            reader.fail(f"variable {variable!r} must be declared before it is used")
    reader.mark("{")
    return name, given


def _read_rows(reader, name, given, labels):
    """Return the table of a node; every configuration must come exactly once."""
    size = len(labels[name])
    sizes = [*(len(labels[parent]) for parent in given), size]
    reader.n_entries += prod(sizes)
    if len(given) > _MAX_PARENTS or reader.n_entries > _MAX_ENTRIES:
        reader.fail(
            f"{name!r} has {len(given)} parents and a table of {prod(sizes)} entries; "
            f"at most {_MAX_PARENTS} parents, and {_MAX_ENTRIES} entries in all tables "
            "together, can be read"
        )
    rows, default = {}, None
    for token in reader.until("}"):
        if token[:2] == ("mark", "("):
            configuration = tuple(reader.words("a state", ")"))
            if len(configuration) != len(given):
                reader.fail(
                    f"{name!r} has {len(given)} parents, got states {configuration}"
                )
            for parent, label in zip(given, configuration):
                if label not in labels[parent]:
                    reader.fail(f"{label!r} is not a state of {parent!r}")
            if configuration in rows:
                reader.fail(f"the row {configuration} of {name!r} is given twice")
            rows[configuration] = _read_numbers(reader, size)
        elif token[1] == "table" and not given:
            if () in rows:
                reader.fail(f"the table of {name!r} is given twice")
            rows[()] = _read_numbers(reader, size)
        elif token[1] == "table":
            reader.fail(
                f"{name!r} has parents: write one row per configuration, such as "
                "(yes, no) 0.1, 0.9; since programs disagree on the order of a table"
            )
        elif token[1] == "default":
            default = _read_numbers(reader, size)
        elif token[1] == "property":
            reader.statement()
        else:
            reader.fail(f"expected a row of probabilities, got {token[1]!r}")
    n_left = prod(sizes[:-1]) - len(rows)
    if n_left and default is None:
        every = itertools.product(*(labels[parent] for parent in given))
        missing = next(
            configuration for configuration in every if configuration not in rows
        )
        reader.fail(f"{name!r} has no probabilities for {missing or 'itself'}")
    reader.n_default_entries += n_left * size
    if reader.n_default_entries > _MAX_DEFAULT_ENTRIES:
        reader.fail(
            f"default rows up to that of {name!r} stand for "
            f"{reader.n_default_entries} entries; at most {_MAX_DEFAULT_ENTRIES} can "
            "be read: write the rows"
        )
    table = np.empty(sizes)
    if n_left:
        table[:] = default
    for configuration, row in rows.items():
        codes = (labels[parent][label] for parent, label in zip(given, configuration))
        table[tuple(codes)] = row
    return table


def _read_numbers(reader, size):
    words = reader.words("a probability", ";")
    if len(words) != size:
        reader.fail(f"expected {size} probabilities, got {len(words)}")
    try:
        return [float(word) for word in words]
    except ValueError:
        return reader.fail(f"expected probabilities, got {words}")
