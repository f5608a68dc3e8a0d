"""The site file: which local data may be used, by what, how often.

Written by the people at a site, read by nobody else. It declares the columns of each
dataset; nothing about them is read off the data::

    min_parties = 3
    peers = ["south", "west"]
    results = "results"

    [datasets.icu]
    path = "stays.csv"
    min_rows = 20
    estimators = ["PPEMGaussianMixture", "FederatedGaussianBayesianNetwork"]
    max_exact_numbers = 3
    max_rounds = 1000
    budget = {epsilon = 1.0, delta = 1e-6}

    [datasets.icu.columns]
    age = "float"
    ward = ["surgery", "medicine"]
    patient = "key"
"""

import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from skprivbn.crypto._registry import RENAMED
from skprivbn.exceptions import PartitionError
from skprivbn.federation._models import BACKENDS, PROTOCOLS
from skprivbn.federation._rows import RowSource
from skprivbn.federation._terms import LIMITS
from skprivbn.federation.site._entries import (
    BUDGET_RULES,
    DATASET_RULES,
    NOTIFY,
    OF_DATASET,
    OF_SITE,
    at_least,
    check_keys,
    find_announced,
    read_entry,
    read_peers,
    read_presets,
)
from skprivbn.federation.site._sources import find_table
from skprivbn.federation.site._table import Column, Table

#: backends of this package that hide sums; a site never accepts plaintext
_BACKENDS = ("ckks", "masking", "paillier")
#: exact fits, where the numbers that they tell are counted instead
ANY_NUMBER = 1 << 30
#: exact numbers for each row that one fit stands for, where only fits are counted
NUMBERS_OF_A_FIT = 1 / 3
#: folder of what was asked and spent, beside the site file
STATE = "skprivbn_state"


@dataclass(frozen=True)
class Dataset:
    """One dataset of a site, as its site file declares it.

    Attributes
    ----------
    name : str
    source : Table
        Where its rows are.
    account : str
        What it is charged to: the name of the first dataset of the same place.
    state : Path
        Folder with the state of the site.
    columns : dict of str to str or list of str
        What each column holds: ``"float"``, ``"int"``, ``"key"`` (text that
        identifies records or people) or the list of its categories. Columns
        of the file that are not declared do not exist for anybody else.
    min_rows : int
        With fewer rows, the site does not take part; nor in protocols that would tell
        something of groups (components, clusters) of fewer.
    min_cell_count : int
        Counts of exact tables below this are hidden.
    version : str
        Of the data. A new one, if enough rows have changed, allows exact fits anew.
    researchers : list of str or None
        Who may use it, by the names in their certificates; None is everybody to whom
        the root of the project issued a person's certificate.
    approve : {"always", "ask"}
        Whether every question has to be approved by a person at the site.
    min_parties : int
        Smallest roster of its studies; the site's unless the dataset has its own.
    estimators : dict of str to EntryPoint
        Estimators that may be fitted and applied to it, by name.
    backends : dict of str to EntryPoint
        How sums may be hidden.
    max_exact_fits : int
        How many fits without differential privacy one version of the data allows; as
        many as there is room for, if only `max_exact_numbers` is given.
    max_exact_numbers : float
        How many numbers may leave without noise over the life of a version of the data,
        for each row of the site; a third for each fit, if only `max_exact_fits` is
        given.
    round_results : int or None
        Significant digits of exact numbers that a researcher gets; None is all.
    max_refusals : int
        How many questions on one version of the data may end without an answer after
        data were read: refused, failed or cut off.
    steps : list of str
        Digests of fitted transformers that may stand in front of exact questions
        though this site has not helped to fit them.
    max_rounds : int
        Most rounds of one fit.
    budget : tuple of (epsilon, delta) or None
        Privacy budget. None means that no noisy release is allowed.
    individual : str or None
        Column of keys that names the person behind each row. If given, noisy fits
        must protect persons, all rows of one together.
    presets : dict of str to list of str
        Of backends with parameters, those that may be chosen: ``"default"``,
        ``"fast"`` and ``"large"`` of ``"ckks"``, sizes of keys of ``"paillier"``.
        Backends that are not named have all of theirs.
    allow_rows : bool
        Whether options of estimators that show single rows to others are allowed.
    """

    name: str
    source: Table
    account: str
    state: Path
    columns: dict
    min_rows: int
    estimators: dict
    backends: dict
    max_exact_fits: int
    max_exact_numbers: float
    round_results: int | None
    max_refusals: int
    steps: list
    max_rounds: int
    budget: tuple | None
    individual: str | None
    allow_rows: bool
    min_cell_count: int
    version: str
    presets: dict
    researchers: list | None
    approve: str
    min_parties: int

    def is_for(self, researcher):
        """Tell whether somebody, named as in a certificate, may use it."""
        return self.researchers is None or researcher in self.researchers

    @property
    def exact_words(self):
        """How much may be asked without noise."""
        if self.max_exact_fits < ANY_NUMBER:
            return f"{self.max_exact_fits} exact fits"
        return f"{self.max_exact_numbers:g} exact numbers for each row"

    @property
    def rules(self):
        """What researchers are told of it, by the names of the site file."""
        epsilon = None if self.budget is None else self.budget[0]
        return {
            "version": self.version,
            "estimators": sorted(self.estimators),
            "backends": sorted(self.backends),
            "min_rows": self.min_rows,
            "min_cell_count": self.min_cell_count,
            "max_exact_fits": self.max_exact_fits,
            "max_exact_numbers": self.max_exact_numbers,
            "round_results": self.round_results,
            "max_refusals": self.max_refusals,
            "max_rounds": self.max_rounds,
            "budget": epsilon,
            "individual": self.individual,
            "allow_rows": self.allow_rows,
            "approve": self.approve,
        }

    @property
    def limits(self):
        """Limits that terms of sessions are raised to, by name."""
        return {name: getattr(self, name) for name in LIMITS}

    @cached_property
    def protocols(self):
        """Programs that may run on it, by path."""
        return {
            program.path: program
            for estimator in self.estimators.values()
            for program in estimator.load().protocols
        }

    def fingerprint(self):
        """Identify the present content of the data."""
        return self.source.fingerprint()

    def blocks(self, joined=None):
        """Yield rows of columns that are no keys, as numbers, in blocks.

        Parameters
        ----------
        joined : tuple of (str, ndarray), default=None
            A column of keys, and the keys of the rows that are wanted; None for all.
        """
        shown = [column for column, kind in self.columns.items() if kind != "key"]
        X, values = self.read_rows(shown, [] if joined is None else joined[:1])
        start = 0
        for rows in X.blocks() if isinstance(X, RowSource) else [X]:
            stop = start + len(rows)
            if joined is None:
                yield rows
            else:
                yield rows[np.isin(values[joined[0]][start:stop], joined[1])]
            start = stop

    def read_rows(self, columns, beside):
        """Return rows, to be read in blocks if they are many, and values beside them.

        Parameters
        ----------
        columns, beside : iterable of str
            Declared columns.

        Returns
        -------
        X : ndarray or RowSource
        values : dict of str to ndarray
        """
        return self.source.read_rows(list(columns), list(beside))


@dataclass(frozen=True)
class SiteFile:
    """What a site allows.

    Attributes
    ----------
    min_parties : int
        Smallest roster it takes part in.
    peers : dict of str to str or None
        Sites that it takes part with, by name, and the SHA-256 fingerprint of the
        certificate each must have. None is any certificate of that name that the root
        of the project issued to a site.
    audit_log : Path
        Where it writes who asked what.
    results : Path or None
        Folder for predictions, which stay there. None means that none are made.
    datasets : dict of str to Dataset
    notify : list of str
        Command that is run when a question waits for a person; none if empty.
    """

    min_parties: int
    peers: dict
    audit_log: Path
    results: Path | None
    datasets: dict
    notify: list = field(default_factory=list)

    @property
    def state(self):
        """Folder with the state of the site, which all datasets share."""
        return next(iter(self.datasets.values())).state

    @classmethod
    def load(cls, path):
        """Read and check a site file.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        site_file : SiteFile
            Relative paths in the file are relative to its folder.
        """
        path = Path(path)
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise PartitionError(
                f"there is no {path}: it names the data that may be used"
            ) from None
        except UnicodeDecodeError:
            raise PartitionError(f"{path} is not text in UTF-8: save it so") from None
        except tomllib.TOMLDecodeError as error:
            raise PartitionError(f"{path} is not valid TOML: {error}") from None
        check_keys(content, {*OF_SITE, "datasets"}, {"datasets", "peers"}, path)
        min_parties = read_entry(content, "min_parties", at_least(1, 3), path)
        datasets = content["datasets"]
        if not isinstance(datasets, dict) or not datasets:
            raise PartitionError(f"{path}: datasets must be tables [datasets.name]")
        state, accounts = content.get("state", STATE), {}
        if not isinstance(state, str):
            raise PartitionError(f"{path}: state must be a folder, got {state!r}")
        folders = path.parent, path.parent / state
        datasets = {
            name: _dataset(name, entry, *folders, accounts, min_parties)
            for name, entry in datasets.items()
        }
        _check_budgets(datasets.values())
        results = content.get("results")
        return cls(
            min_parties,
            read_peers(content["peers"], path),
            path.parent / content.get("audit_log", "skprivbn_audit.jsonl"),
            None if results is None else path.parent / results,
            datasets,
            read_entry(content, "notify", NOTIFY, path),
        )


def _dataset(name, entry, folder, state, accounts, min_parties):
    where = f"dataset {name!r}"
    check_keys(entry, {*OF_DATASET, "columns"}, {"columns", "estimators"}, where)
    columns = entry["columns"]
    if not isinstance(columns, dict) or not columns:
        raise PartitionError(
            f"{where}: columns must be a table of names and what they hold, got "
            f"{columns!r}"
        )
    declared = {
        column: Column.from_entry(kind, f"{where}: column {column!r}")
        for column, kind in columns.items()
    }
    columns = {name: column.kind for name, column in declared.items()}
    if "max_exact_numbers" in entry:
        n_fits = ANY_NUMBER if entry["max_exact_numbers"] else 0
        entry = {"max_exact_fits": n_fits, **entry}
    limits = {k: read_entry(entry, k, rule, where) for k, rule in DATASET_RULES.items()}
    limits["min_parties"] = limits["min_parties"] or min_parties
    if "max_exact_numbers" not in entry:
        limits["max_exact_numbers"] = limits["max_exact_fits"] * NUMBERS_OF_A_FIT
    estimators = find_announced(entry["estimators"], PROTOCOLS, "estimators", where)
    chosen = entry.get("backends", _BACKENDS)
    for old, new in RENAMED.items():
        if isinstance(chosen, list) and old in chosen:
            raise PartitionError(f"{where}: the backend {old!r} is now {new}")
    backends = find_announced(chosen, BACKENDS, "backends", where)
    if "plaintext" in backends:
        raise PartitionError(f"{where}: backends must hide sums, 'plaintext' does not")
    budget = entry.get("budget")
    if budget is not None:
        inside = f"{where}: budget"
        check_keys(budget, set(BUDGET_RULES), {"epsilon"}, inside)
        numbers = [read_entry(budget, *rule, inside) for rule in BUDGET_RULES.items()]
        budget = tuple(map(float, numbers))

    def is_key(column):
        return isinstance(column, str) and columns.get(column) == "key"

    source = find_table(entry, declared, folder, where)
    source.room = state
    keyed = None, lambda c: c is None or is_key(c), 'a column declared as "key"'
    return Dataset(
        name=name,
        source=source,
        account=accounts.setdefault(source.place, name),
        state=state,
        columns=columns,
        estimators=estimators,
        backends=backends,
        budget=budget,
        individual=read_entry(entry, "individual", keyed, where),
        presets=read_presets(entry, backends, where),
        **limits,
    )


def _check_budgets(datasets):
    """Refuse two budgets for one file: the people in it would be charged to both."""
    by_account = {}
    for dataset in datasets:
        other = by_account.setdefault(dataset.account, dataset)
        if other.budget != dataset.budget:
            raise PartitionError(
                f"datasets {other.name!r} and {dataset.name!r} are the same file, "
                f"{dataset.source}: give both the same budget, which they share"
            )
