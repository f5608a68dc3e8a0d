"""The state of a site: one sqlite file with all that it must not forget.

Every change is one transaction, which waits for the disk: it is whole or is not,
whenever the process is killed or the power fails. Connections end with transactions, so
that processes of one site take turns and none inherits another's.
"""

import json
import os
import re
import secrets
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from skprivbn.federation.program import PartyRefusal
from skprivbn.privacy._accountant import read_budget
from skprivbn.utils._locked_file import hold_lock, replace_file

#: name of the file, in the folder of the state
FILE = "site.sqlite3"
#: seconds to wait for another process of the site
WAIT = 30.0
#: how long a reservation holds
RESERVED_FOR = timedelta(minutes=10)
#: contents whose sketches are remembered, the latest ones, and as many of their parts
MAX_CONTENTS = 200

#: what is added to the name of a file of release 0.2 that was read
READ = ".read"
#: how files of an account end; reservations, which last minutes, are not read
_KINDS = re.compile(r"\.(budget|snapshots|([\w-]+)\.(exact|refused))\.json(?:\.read)?")

_SCHEMA_VERSION = 2
_SCHEMA = f"""
CREATE TABLE models (rows TEXT, found BLOB, account TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (rows, found));
CREATE TABLE sketch_keys (account TEXT PRIMARY KEY, sketch_key INTEGER NOT NULL);
CREATE TABLE budgets (account TEXT PRIMARY KEY, epsilon REAL, delta REAL);
CREATE TABLE datasets (dataset TEXT PRIMARY KEY, account TEXT NOT NULL);
CREATE TABLE fingerprints (account TEXT, fingerprint TEXT,
    PRIMARY KEY (fingerprint, account));
CREATE TABLE contents (id INTEGER PRIMARY KEY, account TEXT, content TEXT NOT NULL);
CREATE TABLE rosters (account TEXT, version TEXT, roster TEXT NOT NULL, weights TEXT,
    PRIMARY KEY (account, version));
CREATE TABLE charges (id INTEGER PRIMARY KEY, account TEXT NOT NULL,
    version TEXT NOT NULL, session TEXT, is_charged INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('exact', 'noisy', 'refused')),
    epsilon REAL, delta REAL, rho REAL, unit TEXT,
    numbers INTEGER NOT NULL DEFAULT 0, announced INTEGER NOT NULL DEFAULT 0,
    what TEXT NOT NULL, at TEXT NOT NULL, UNIQUE (account, session, kind));
CREATE TABLE questions (number TEXT PRIMARY KEY, question TEXT NOT NULL);
CREATE TABLE imported (file TEXT PRIMARY KEY);
PRAGMA user_version = {_SCHEMA_VERSION};
"""


class SiteState:
    """Answers what the site asks its state, and changes it.

    Every method is a transaction, or part of the one that the caller has begun.

    Parameters
    ----------
    folder : path-like
        That the site file names; the file is for its owner only.
    """

    def __init__(self, folder):
        self.path = Path(folder) / FILE
        self._pid, self._connection = os.getpid(), None

    @contextmanager
    def transaction(self):
        """Make all changes or none; refuse if another process does not end its own."""
        if os.getpid() != self._pid:
            raise PartyRefusal("refused", "a forked process has its parent's session")
        if self._connection is not None:
            yield
            return
        try:
            with closing(self._connect()) as self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            why = f"another process has held {self.path} for {WAIT:g} s"
            raise PartyRefusal("busy", why) from error
        finally:
            self._connection = None

    def _connect(self):
        if not self.path.exists():
            self._create()
        connection = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            # the journal's removal, too, reaches the disk before a number leaves
            connection.execute("PRAGMA synchronous = EXTRA")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found != _SCHEMA_VERSION:
                raise ValueError(
                    f"{str(self.path)!r} is not a state that this release can read: it "
                    "is damaged, or a later release's. Restore it; starting anew would "
                    "forget what was spent"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self):
        """Make an empty state, whole from the start: an empty file is a damaged one."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(self.path), closing(sqlite3.connect(":memory:")) as empty:
            if not self.path.exists():
                empty.executescript(_SCHEMA)
                replace_file(self.path, empty.serialize())

    def _ask(self, statement, **values):
        with self.transaction():
            return self._connection.execute(statement, values).fetchall()

    def _change(self, statement, **values):
        """Return whether anything has changed."""
        with self.transaction():
            return self._connection.execute(statement, values).rowcount > 0

    def _insert(self, table, **values):
        """Add a row unless it is there; return whether it was not."""
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
        return self._change(insert, **values)

    @classmethod
    @contextmanager
    def copy_for(cls, dataset):
        """Make a copy in memory, with what release 0.2 counted for a dataset.

        Parameters
        ----------
        dataset : Dataset

        Yields
        ------
        state : SiteState
            To look at; nothing is written to the disk.
        """
        state = cls(dataset.state)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            copy.row_factory = sqlite3.Row
            if state.path.exists():
                with closing(state._connect()) as connection:
                    connection.backup(copy)
            else:
                copy.executescript(_SCHEMA)
            state._connection = copy
            state._import(dataset)
            yield state

    def open_account(self, dataset):
        """Make the account of a dataset, with what release 0.2 counted for it."""
        with self.transaction():
            files = self._import(dataset)
        put_aside(files)

    def _import(self, dataset):
        """Read files of release 0.2, each once; return those that were read."""
        files, listed = [], dataset.state / "accounts.json"
        if self._insert("imported", file=listed.name) and listed.exists():
            files.append(listed)
            for account, known in json.loads(listed.read_text()).items():
                for name in known["datasets"]:
                    self._insert("datasets", account=account, dataset=name)
                for content in known["contents"]:
                    self._insert("fingerprints", account=account, fingerprint=content)
                prefix = dataset.state / quote(account, safe="")
                files += self._import_account(account, prefix)
        return files + self._import_account(dataset.account, dataset.source.old_state)

    def _import_account(self, account, prefix):
        ask = "SELECT 1 FROM sketch_keys WHERE account = :account"
        if self._ask(ask, account=account):
            return []
        rows, files = read_old_files(account, prefix)
        for table, row in rows:
            self._insert(table, **row)
        self._insert("sketch_keys", account=account, sketch_key=secrets.randbits(63))
        return files

    def import_questions(self, path):
        """Read the questions that release 0.2 kept in a file of their own, once."""
        if path.exists():
            with self.transaction():
                if self._insert("imported", file=path.name):
                    for number, question in json.loads(path.read_text()).items():
                        self.set_question(number, question)
            put_aside([path])

    def budget(self, account, epsilon, delta):
        """Return the budget that an account began with: if with none, this one."""
        with self.transaction():
            self._insert("budgets", account=account, epsilon=epsilon, delta=delta)
            ask = "SELECT epsilon, delta FROM budgets WHERE account = :account"
            return tuple(self._ask(ask, account=account)[0])

    def accounts_of(self, dataset, fingerprint):
        """Return the accounts that a name and a content were charged to."""
        named = "SELECT account FROM datasets WHERE dataset = :name"
        known = "SELECT account FROM fingerprints WHERE fingerprint = :name"
        asked = self._ask(named, name=dataset), self._ask(known, name=fingerprint)
        return tuple([row["account"] for row in rows] for rows in asked)

    def add_dataset(self, account, name, fingerprint):
        """Remember which dataset, and which content if not None, an account is of."""
        with self.transaction():
            self._insert("datasets", dataset=name, account=account)
            if fingerprint is not None:
                self._insert("fingerprints", account=account, fingerprint=fingerprint)

    def contents(self, account):
        """Return the key of sketches, and contents that were asked exact questions."""
        key = "SELECT sketch_key FROM sketch_keys WHERE account = :account"
        found = "SELECT content FROM contents WHERE account = :account ORDER BY id"
        with self.transaction():
            rows = self._ask(found, account=account)
            ((key,),) = self._ask(key, account=account)
        return key, [json.loads(content) for (content,) in rows]

    def add_content(self, account, content):
        """Remember a content that is asked an exact question, or a part of one.

        Peers choose parts, which therefore displace no content.
        """
        ask = "SELECT id, content FROM contents WHERE account = :account ORDER BY id"
        is_part = content.get("is_part")
        with self.transaction():
            self._insert("contents", account=account, content=json.dumps(content))
            rows = self._ask(ask, account=account)
            known = [row for row, c in rows if json.loads(c).get("is_part") == is_part]
            for row in known[:-MAX_CONTENTS]:
                self._change("DELETE FROM contents WHERE id = :row", row=row)

    def asked_by(self, account, version):
        """Return the roster and the weights of a version, each None if not known."""
        ask = "SELECT * FROM rosters WHERE account = :account AND version = :version"
        for row in self._ask(ask, account=account, version=version):
            return json.loads(row["roster"]), row["weights"]
        return None, None

    def set_asked_by(self, account, version, roster, weights):
        """Remember who asks a version exact questions, and with which weights."""
        asked = {"roster": json.dumps(roster), "weights": weights}
        change = "INSERT OR REPLACE INTO rosters VALUES (:account, :version, :roster, "
        self._change(f"{change}:weights)", account=account, version=version, **asked)

    def charges(self, account, kind, besides=""):
        """Return what is charged or set aside, but for one session.

        Parameters
        ----------
        account : str
        kind : {"exact", "noisy", "refused"}
        besides : str, default=""
            A session.
        """
        ask = "SELECT * FROM charges WHERE account = :account AND kind = :kind AND "
        ask += "(session IS NULL OR session <> :besides) ORDER BY id"
        with self.transaction():
            self._forget_lapsed()
            return self._ask(ask, account=account, kind=kind, besides=besides)

    def _forget_lapsed(self):
        # a clock that was set back does not make a reservation hold for ever
        times = {"late": _time(-RESERVED_FOR), "early": _time(RESERVED_FOR)}
        self._change(
            "DELETE FROM charges "
            "WHERE NOT is_charged AND (at <= :late OR at >= :early)",
            **times,
        )
        self._change(
            "UPDATE charges SET announced = 0 "
            "WHERE announced AND (at <= :late OR at >= :early)",
            **times,
        )

    def reserve(self, account, session, kind, **cost):
        """Set a cost aside, which the caller has checked; once for a session."""
        mine = {"account": account, "session": session, "kind": kind}
        if not self._insert("charges", **mine, is_charged=0, at=_time(), **cost):
            raise PartyRefusal("refused", "this session was asked before")

    def announce(self, account, session, n_numbers):
        """Set exact numbers aside; return whether the session has a reservation."""
        return self._change(
            "UPDATE charges SET announced = :n, at = :at "
            "WHERE account = :account AND session = :session AND kind <> 'refused'",
            n=n_numbers,
            at=_time(),
            account=account,
            session=session,
        )

    def charge(self, account, session, n_numbers):
        """Take what was set aside, for good; return whether it was still there."""
        with self.transaction():
            self._forget_lapsed()
            return self._change(
                "UPDATE charges SET is_charged = 1, numbers = numbers + :n, "
                "at = :at, announced = 0 "
                "WHERE account = :account AND session = :session AND kind <> 'refused'",
                account=account,
                session=session,
                n=n_numbers,
                at=_time(),
            )

    def release(self, account, session):
        """Give back what was set aside and not charged."""
        mine = {"account": account, "session": session}
        with self.transaction():
            self._change(
                "DELETE FROM charges "
                "WHERE account = :account AND session = :session AND NOT is_charged",
                **mine,
            )
            self._change(
                "UPDATE charges SET announced = 0 "
                "WHERE account = :account AND session = :session AND announced",
                **mine,
            )

    def add_refusal(self, account, session, version, what):
        """Write down that a session has no answer, as long as it has none."""
        known = {"account": account, "session": session, "version": version}
        known |= {"kind": "refused", "is_charged": 1, "what": what, "at": _time()}
        self._insert("charges", **known)

    def remove_refusal(self, account, session):
        """Write down that the answer of a session leaves."""
        self._change(
            "DELETE FROM charges WHERE account = :account AND session = :session "
            "AND kind = 'refused'",
            account=account,
            session=session,
        )

    def told(self, account):
        """Return the exact fits and the exact numbers told, of each version."""
        ask = "SELECT version, COUNT(*), SUM(numbers) FROM charges WHERE is_charged "
        ask += "AND account = :account AND kind = 'exact' GROUP BY version"
        rows = self._ask(ask, account=account)
        return {version: (n_fits, n_numbers) for version, n_fits, n_numbers in rows}

    def add_model(self, account, rows, found):
        """Remember what this site has helped to find of some rows, in bytes."""
        known = {"account": account, "rows": rows, "found": found}
        self._insert("models", **known, at=_time())

    def models(self, rows):
        """Return all that this site has helped to find of these rows."""
        ask = "SELECT found FROM models WHERE rows = :rows"
        return [found for (found,) in self._ask(ask, rows=rows)]

    def questions(self):
        """Return questions that people have to answer, or have, by number."""
        rows = self._ask("SELECT number, question FROM questions")
        return {number: json.loads(question) for number, question in rows}

    def set_question(self, number, question):
        """Remember a question and what was said to it; None forgets it."""
        with self.transaction():
            self._change("DELETE FROM questions WHERE number = :number", number=number)
            if question is not None:
                text = json.dumps(question)
                self._insert("questions", number=number, question=text)


def read_old_files(account, prefix):
    """Read the files of an account, also if another site of this machine has.

    Parameters
    ----------
    account : str
    prefix : Path
        What the names of the files begin with.

    Returns
    -------
    rows : list of (str, dict)
        Tables of the state, and what to add to them.
    files : list of Path
    """
    rows, files = [], []
    for path in sorted(prefix.parent.glob("*.json*")):
        kind = _KINDS.fullmatch(path.name.removeprefix(prefix.name))
        if kind is None or not path.name.startswith(prefix.name):
            continue
        files.append(path)
        if kind[1] == "snapshots":
            content = json.loads(path.read_text(encoding="utf-8"))
            rows += _snapshots(content["contents"], content.get("weights", {}), content)
            continue
        epsilon, delta, spends = read_budget(path)
        if kind[1] == "budget":
            rows.append(("budgets", {"epsilon": epsilon, "delta": delta}))
        known = {"kind": kind[3] or "noisy", "version": kind[2] or "", "is_charged": 1}
        rows += [("charges", known | asdict(spend)) for spend in spends]
    return [(table, {"account": account, **row}) for table, row in rows], files


def _snapshots(contents, weights, state):
    yield "sketch_keys", {"sketch_key": state["key"]}
    for content in contents:
        yield "fingerprints", {"fingerprint": content["fingerprint"]}
        yield "contents", {"content": json.dumps(content)}
    for version, roster in state["rosters"].items():
        asked = {"roster": json.dumps(roster), "weights": weights.get(version)}
        yield "rosters", {"version": version, **asked}


def put_aside(files):
    """Give files that were read another name, under which nobody changes them."""
    for path in files:
        if path.suffix != READ:
            path.chmod(0o400)
            path.rename(f"{path}{READ}")


def _time(later=timedelta(0)):
    return (datetime.now(UTC) + later).isoformat(timespec="seconds")


@contextmanager
def recording():
    """Refuse, with a code that is true, what the site cannot write down.

    A full disk, a folder without permission, a damaged file: nothing that is not
    written down is done.
    """
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
        raise PartyRefusal("cannot-record") from error
