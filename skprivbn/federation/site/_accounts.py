"""Which account a dataset is charged to: that of its name, wherever its rows are.

A file may be renamed, a host be written otherwise, a password be changed: the people
stay the same, and so must what was spent on them. An account therefore has the name of
its dataset. Its contents are remembered, so that a copy, or the same data under another
name, is no new account.
"""

import json
import re
from pathlib import Path

from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site._state import StateFile
from skprivbn.utils._locked_file import replace_json

#: contents of an account that are remembered, the latest ones
MAX_CONTENTS = 10_000
#: how files of an account end; those that only last minutes are not listed
_KINDS = re.compile(r"(budget|snapshots|[\w-]+\.(exact|refused))\.json")


class Accounts:
    """The accounts of a site, as far as one of its datasets is concerned.

    Parameters
    ----------
    dataset : Dataset
    """

    def __init__(self, dataset):
        self._dataset = dataset
        self._file = StateFile(dataset.state / "accounts.json", {})

    def open(self):
        """Open the dataset's account, with all that earlier releases have counted."""
        account = self._dataset.account
        self._dataset.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._file.locked():
            known = self._file.read()
            if account not in known:
                known[account] = {"datasets": [], "contents": self._take_over()}
                self._file.write(known)

    def is_open(self):
        """Tell whether there is an account; until then, files lie beside the data."""
        return self._dataset.account in self._file.read()

    def check(self):
        """Refuse data that were charged to another account."""
        problem = self.find_problem()
        if problem is not None:
            raise PartyRefusal("other-account", problem)

    def hold(self):
        """Remember the dataset and its present content; refuse those of others."""
        account = self._dataset.account
        with self._file.locked():
            self.check()
            known = self._file.read()
            mine, content = known[account], self._content()
            if self._dataset.name not in mine["datasets"]:
                mine["datasets"].append(self._dataset.name)
            if content is not None and content not in mine["contents"]:
                mine["contents"] = [*mine["contents"], content][-MAX_CONTENTS:]
            self._file.write(known)

    def find_problem(self):
        """Return why the dataset may not be charged to its account, None if it may."""
        name, account, content = self._dataset.name, self._dataset.account, None
        others = {k: v for k, v in self._file.read().items() if k != account}
        for other, known in others.items():
            if name in known["datasets"]:
                return (
                    f"dataset {name!r} would be charged to the account {account!r}, "
                    f"and was charged to {other!r}: list dataset {other!r} first, or, "
                    "if it is about other people, give it another name"
                )
        if others:
            content = self._content()
        for other, known in others.items():
            if content in known["contents"]:
                return (
                    f"the data of dataset {name!r} were charged to the account "
                    f"{other!r}: give the dataset this name, by which what was spent "
                    "on these people is known"
                )
        return None

    def _content(self):
        """Identify what is there, if it can be read: if not, nothing is told of it."""
        try:
            return self._dataset.fingerprint()
        except (OSError, ValueError, KeyError, IndexError, EOFError):
            return None

    def _take_over(self):
        """Copy what earlier releases kept beside the data; return known contents."""
        old, contents = self._dataset.source.old_state, []
        for path in sorted(old.parent.glob("*.json")):
            kind = path.name.removeprefix(f"{old.name}.")
            if kind == path.name or not _KINDS.fullmatch(kind):
                continue
            content = json.loads(path.read_text(encoding="utf-8"))
            replace_json(Path(f"{self._dataset.state_file}.{kind}"), content)
            if kind == "snapshots.json":
                contents = [known["fingerprint"] for known in content["contents"]]
        return contents
