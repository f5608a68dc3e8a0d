"""One roster, one column of weights, one count of questions for each version of data.

Two exact answers whose rows, sites or weights differ by little show what the difference
is made of. A site therefore remembers every content that was asked exact questions, by
which roster, and with which column of weights. A content is remembered as a sketch from
which the number of changed rows is bounded below. It stays in the site's own file,
since whoever has it can try out whether a row that he guesses is among them.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import replace

import numpy as np

from skprivbn.federation.gate import scramble
from skprivbn.federation.program import PartyRefusal, refuse_malformed

#: groups of rows whose keyed hashes are added up
N_GROUPS = 1024

_UINT = np.dtype("<u8")


class RowSketch:
    """How many rows there are, and sums of keyed hashes of groups of them.

    Parameters
    ----------
    n_rows : int
    sums : ndarray of uint64 of shape (N_GROUPS,)
    """

    def __init__(self, n_rows, sums):
        self.n_rows, self.sums = n_rows, sums

    @classmethod
    def of(cls, blocks, key):
        """Read rows, block by block.

        Parameters
        ----------
        blocks : iterable of ndarray of shape (n_rows, n_columns)
        key : int
            Of the hashes.

        Returns
        -------
        sketch : RowSketch
            The same whatever the order of rows.
        """
        n_rows, sums = 0, np.zeros(N_GROUPS, dtype=_UINT)
        for block in blocks:
            bits = np.ascontiguousarray(block, dtype=np.float64).view(_UINT)
            hashes = np.full(len(bits), key, dtype=_UINT)
            for column in bits.T:
                hashes = scramble(hashes ^ column)
            np.add.at(sums, hashes % np.uint64(N_GROUPS), scramble(hashes))
            n_rows += len(bits)
        return cls(n_rows, sums)

    def changed_rows(self, other):
        """Return a number of rows that at least differ from another content's.

        A row that was changed is in two groups that differ, a row that was added or
        removed in one.
        """
        n_groups = np.count_nonzero(self.sums != other.sums)
        return max(abs(self.n_rows - other.n_rows), -(-n_groups // 2))

    def to_json(self):
        """Return it as plain data."""
        sums = self.sums.astype(_UINT).tobytes()
        return {"n_rows": self.n_rows, "sums": b64encode(sums).decode()}

    @classmethod
    def from_json(cls, data):
        """Return the sketch that plain data stand for."""
        return cls(data["n_rows"], np.frombuffer(b64decode(data["sums"]), dtype=_UINT))


class Snapshots:
    """Contents of a dataset that were asked exact questions.

    Parameters
    ----------
    dataset : Dataset
    key : int
        Of the hashes in sketches.
    known : list of dict
        The contents, as :meth:`SiteState.contents` has them.
    """

    def __init__(self, dataset, key, known):
        self._dataset, self._key = dataset, key
        self._known = [content for content in known if not content.get("is_part")]
        self._parts = [content for content in known if content.get("is_part")]

    def find(self):
        """Return the present content, and the version that it counts as.

        Returns
        -------
        content : dict
            Of the declared version; a content that was asked before belongs to the
            version that it had then. One that differs from such a content by a few
            rows only is refused: the answers' difference would show them.
        """
        with refuse_malformed("invalid-data"):
            content = {"fingerprint": self._dataset.fingerprint()}
        content |= self._seen_as()
        for known in self._known:
            if content.items() <= known.items():
                return known
        content["sketch"] = self._sketch(self._dataset).to_json()
        for known in self._known:
            # the same rows in another order, or changed where nobody is shown them
            same = content | {"version": known["version"]}
            if known | {"fingerprint": content["fingerprint"]} == same:
                return same
        same = self._compare(content, self._known)
        versions = [*(known["version"] for known in same), self._dataset.version]
        return content | {"version": versions[0]}

    def find_part(self, whole, joined=None):
        """Identify the rows that an answer is about.

        Parameters
        ----------
        whole : dict
            The present content, of which they are a part, or all.
        joined : tuple of (str, ndarray), default=None
            As of :meth:`Dataset.blocks`.

        Returns
        -------
        part : dict or None
            None if it was asked before. One that differs by a few rows only from one
            that was asked before is refused.
        """
        part = self._seen_as() | {"sketch": whole["sketch"], "is_part": True}
        if joined is not None:
            part["sketch"] = self._sketch(self._dataset, joined).to_json()
            if part["sketch"]["n_rows"] != len(joined[1]):
                raise PartyRefusal("busy", "the data have changed since they were read")
        self._compare(part, self._parts, joined)
        return None if part in self._parts else part

    def _compare(self, content, others, joined=None):
        """Return other contents of the same rows; refuse one of nearly the same."""
        sketch, same = RowSketch.from_json(content["sketch"]), []
        of_columns = {json.dumps(content["columns"]): sketch}
        # a sketch cannot count more changes than it has groups
        least = min(self._dataset.min_rows, N_GROUPS // 4)
        for known in others:
            if known.get("query", content["query"]) != content["query"]:
                continue
            other = RowSketch.from_json(known["sketch"])
            # sketches can be compared if they are of the same columns
            columns = known.get("columns", content["columns"])
            place = json.dumps(columns)
            if place not in of_columns:
                of_columns[place] = self._sketch_of(columns, joined)
            if of_columns[place] is None:
                changed = abs(sketch.n_rows - other.n_rows)
            else:
                changed = of_columns[place].changed_rows(other)
            if 0 < changed < least:
                why = f"{changed} rows or more have changed, and {least} are needed"
                raise PartyRefusal("changed-little", why)
            if not changed:
                same.append(known)
        return same

    def _sketch(self, dataset, joined=None):
        with refuse_malformed("invalid-data"):
            return RowSketch.of(dataset.blocks(joined), self._key)

    def _sketch_of(self, columns, joined=None):
        """Return the present content of columns, None if they are no longer there."""
        source = self._dataset.source.with_columns(dict(columns))
        kinds = {name: column.kind for name, column in source.columns.items()}
        dataset = replace(self._dataset, source=source, columns=kinds)
        try:
            return self._sketch(dataset, joined)
        except PartyRefusal:
            return None

    def _seen_as(self):
        """Return where rows come from, and which of their columns are looked at."""
        source = self._dataset.source
        return {
            "columns": json.loads(json.dumps(list(source.declared.items()))),
            "query": source.query,
        }
