"""K2 on columns that different parties hold and do not show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._base import known_states
from skprivbn.crypto import PaillierBackend
from skprivbn.crypto.shares import OTBackend, resolve_count_backend
from skprivbn.federation._ledger import NoisyRelease, note_colluders
from skprivbn.partition import check_vertical
from skprivbn.partition._vertical import PARTIES_CONSTRAINT
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._noise_report import noisy_number, report_noise
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, charge, delta_of
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.programs._columns import (
    CountBackend,
    column_terms,
    describe_shares,
    note_alignment,
    note_values_only,
)
from skprivbn.structure._discrete_columns import check_columns_at_hand, score_columns
from skprivbn.structure._edge_rules import check_ordering, warn_of_column_order
from skprivbn.structure._learnt import COUNT_BACKEND_CONSTRAINT, warn_of_one_holder
from skprivbn.structure._tables import check_table_sizes
from skprivbn.structure.k2._pooled import SEARCH_CONSTRAINTS, K2NetworkMixin
from skprivbn.structure.k2._program import K2Terms, private_k2
from skprivbn.utils._sklearn import Interval, StrOptions, _fit_context
from skprivbn.utils._typing import TableLike
from skprivbn.utils._validation import as_seen


class PrivateK2StructureLearner(CallbackSupportMixin, K2NetworkMixin, BaseEstimator):
    """Learn a discrete Bayesian network from columns of several parties by K2.

    Two or more institutions hold different columns about the same records. They find
    the network that :class:`K2StructureLearner` would find on the joined table, while
    counts, scores and comparisons stay secret-shared. Only the ordered list of parents
    of every column is opened [1]_, or only their set. The protocol is secure against
    semi-honest parties; of more than two, all but one may collude. The implementation
    is not audited.

    Read more in the :ref:`User Guide <private_k2>`.

    Parameters
    ----------
    parties : dict, default=None
        Which party holds which columns: names, positions, slices or callables.
        None means that one party holds all: plain K2, and a warning.
    max_parents : int, default=3
        Most parents of a column.
    ordering : array-like of str or int, default=None
        All columns, by name or position, parents before children. None takes the
        order of the columns, and warns.
    criterion : {"k2", "stirling", "wright_yang", "bdeu", "bic", "total_variation"}, \
            default="k2"
        Score of a family: the exact score of Cooper and Herskovits, its
        approximation by Stirling's formula, the same without constants as in [1]_, the
        likelihood-equivalent uniform score, the Bayesian information criterion, or
        (only with `epsilon`, where it is the best choice) how far a column is from
        independent of its parents [3]_.
    equivalent_sample_size : float, default=10.0
        Prior weight of ``criterion="bdeu"``.
    backend : {"ot", "paillier"}, OTBackend or PaillierBackend, default="ot"
        How two parties share counts.
    scores : {"tables", "lindell-pinkas"}, default="tables"
        How counts on shares become scores: by exact lookups in tables of logarithms,
        or, as in [1]_, by the series of Lindell and Pinkas, which is slower by orders
        of magnitude and approximate. The latter is for two parties,
        ``criterion="wright_yang"`` and ``backend="paillier"``.
    opens : {"order", "structure"}, default="order"
        What is opened of the search: the best candidate of every step, or, at the end,
        the parents of all columns and not in which order they were found. The latter
        counts all sets of up to `max_parents` columns, which is for few columns.
    missing : {"auto", "skip"}, default="auto"
        What to do with missing entries (NaN or None) in `fit`. "auto" is an error
        without `epsilon`; with it they count as the first state. "skip" leaves a
        record out of the tables that need the entry, and compares each candidate on
        the records that have it, as ``FederatedBayesianNetwork(missing="skip")`` does
        on rows. Which entries are missing stays at their holder.
    states : mapping or list, default=None
        Public states of every column: labels, or their number k for 0, ..., k - 1.
        None takes the categories of a dataframe, and lets each party tell the labels
        of other columns. Cross-validation needs them: a label that is missing in one
        part of the rows would be unknown to the network learnt there. With `epsilon`
        all must be declared; what is missing or no state counts as the first one.
    fit_parameters : bool, default=True
        Whether to open the tables of the families found, for the probabilities [2]_.
        Without, only the structure is learnt and there is no `network_`.
    min_cell_count : int, default=0
        Counts are opened in steps of it, rounded down. Smaller ones are so opened as 0,
        because small cells expose people. With a known sum of few counts they follow
        where only one set of remainders adds up: (64, 4) from (60, 0) and 68.
    epsilon : float, default=None
        Differential privacy of what a record holds: choices of parents and tables have
        noise, which the parties add to their shares. Who holds a column knows the
        number of records, which is no secret.
    delta : float, default=0.0
        With `epsilon`: 0 makes its parts add up one by one, and tables have discrete
        Laplace noise. More makes them add up as zero-concentrated differential privacy,
        with discrete Gaussian noise: much less noise where columns are many.
    accountant : PrivacyAccountant, default=None
        Charged before any record is touched: `epsilon` for structure and tables
        together, or an infinite one if the fit is exact, which one with a limit
        refuses.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the tables'
        noise and to keep it secret. None means half of them, rounded up; sites accept
        no more. For the choice of parents one honest party is enough.
    verbose : int, default=0
        1 prints every hundredth turn of the parties' conversation, 2 every one.

    Attributes
    ----------
    network_ : BayesianNetwork
        Structure, and probabilities (count + 1) / (total + states). Only with
        `fit_parameters`.
    parents_ : dict of str to list of str
        In the order in which they were found, or, with ``opens="structure"``, in that
        of `ordering`.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        True at [i, j] for an edge from i to j.
    ordering_ : list of str
        The ordering used.
    n_samples_ : int
        Number of records that all parties have; exact also with `epsilon`.
    ledger_ : Ledger
        Every message, and who learnt what.
    privacy_spent_ : PrivacyCost
        Only with `epsilon`: what structure and tables cost together.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    K2StructureLearner : The same on a pooled table.

    Notes
    -----
    Stirling's formula is applied to every factorial with ``max(count, 1)`` in all its
    terms. The paper drops a constant that grows with the number of parent
    configurations, and does not say what the logarithm of an empty cell is; taken
    literally, its score favours large parent sets.

    References
    ----------
    .. [1] R. Wright, Z. Yang, "Privacy-Preserving Bayesian Network Structure
       Computation on Distributed Heterogeneous Data", KDD 2004.
    .. [2] Z. Yang, R. Wright, "Privacy-Preserving Computation of Bayesian Networks on
       Vertically Partitioned Data", IEEE TKDE 18, 2006.
    .. [3] J. Zhang, G. Cormode, C. Procopiuc, D. Srivastava, X. Xiao, "PrivBayes:
       Private Data Release via Bayesian Networks", ACM TODS 42, 2017.

    Examples
    --------
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.structure import PrivateK2StructureLearner
    >>> asia = load_asia()
    >>> X = asia.sample(1000, random_state=0)
    >>> learner = PrivateK2StructureLearner(
    ...     parties={"hospital": [0, 1, 2, 7], "lab": [3, 4, 5, 6]},
    ...     ordering=asia.topological_order,
    ...     max_parents=2,
    ... ).fit(X)
    >>> either = asia.nodes.index("either")
    >>> sorted(learner.parents_[f"x{either}"]) == sorted(
    ...     f"x{asia.nodes.index(name)}" for name in asia.parents["either"]
    ... )
    True
    """

    protocols = (private_k2, score_columns, score_rows, keep_predictions)
    _steps = {"step": "turn", "every": 100}
    _parameter_constraints = {
        "parties": PARTIES_CONSTRAINT,
        **SEARCH_CONSTRAINTS,
        "backend": COUNT_BACKEND_CONSTRAINT,
        "scores": [StrOptions({"tables", "lindell-pinkas"})],
        "opens": [StrOptions({"order", "structure"})],
        "missing": [StrOptions({"auto", "skip"})],
        "fit_parameters": ["boolean"],
        "min_cell_count": [Interval(Integral, 0, None, closed="left")],
        "epsilon": PRIVACY_CONSTRAINTS["epsilon"],
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "accountant": PRIVACY_CONSTRAINTS["accountant"],
        "min_honest": PRIVACY_CONSTRAINTS["min_honest"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        parties: Mapping | Sequence | str | None = None,
        *,
        max_parents: int = 3,
        ordering: ArrayLike | None = None,
        criterion: str = "k2",
        equivalent_sample_size: float = 10.0,
        backend: str | OTBackend | PaillierBackend = "ot",
        scores: str = "tables",
        opens: str = "order",
        missing: str = "auto",
        states: Mapping | Sequence | None = None,
        fit_parameters: bool = True,
        min_cell_count: int = 0,
        epsilon: float | None = None,
        delta: float = 0.0,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.parties = parties
        self.max_parents = max_parents
        self.ordering = ordering
        self.criterion = criterion
        self.equivalent_sample_size = equivalent_sample_size
        self.backend = backend
        self.scores = scores
        self.opens = opens
        self.missing = missing
        self.states = states
        self.fit_parameters = fit_parameters
        self.min_cell_count = min_cell_count
        self.epsilon = epsilon
        self.delta = delta
        self.accountant = accountant
        self.min_honest = min_honest
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = not self._refuses_gaps
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: TableLike, y: object = None) -> Self:
        """Learn the network together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or VerticalPartition
            Discrete values, without missing entries unless there is `epsilon` or
            `missing`. A partition with keys is first aligned by private set
            intersection.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
        """
        partition = check_vertical(
            self, X, self.parties, ensure_all_finite=self._refuses_gaps
        )
        return self._learn_watched(X, y, partition)

    @property
    def _refuses_gaps(self):
        # with noise, nothing that a record holds may raise
        return self.epsilon is None and self.missing == "auto"

    def _learn(self, partition, progress):
        terms = self._terms(partition)
        # may raise, before budget is spent
        noise = terms.noise(len(terms.owners), partition.n_parties)
        if noise is not None:
            sizes = [len(labels) for labels in terms.states]
        else:
            gaps = not self._refuses_gaps
            sizes = check_columns_at_hand(partition, terms.states, gaps)
        if sizes is not None:
            check_table_sizes(sizes, terms.ordering, self.max_parents)
        if noise is None:
            warn_of_one_holder(partition)
        if self.max_parents > 0:
            warn_of_column_order(self.ordering, partition.feature_names)
        spent = charge(self, "network", rho=noise and noise.rho, unit=terms.protects)
        with partition.federate(private_k2, terms) as federation:
            result = federation.run(turn=progress.step)
        for name in ("network_", "privacy_spent_", "noise_report_"):
            vars(self).pop(name, None)  # those of a fit before
        if spent is not None:
            self.privacy_spent_ = spent
        self.n_samples_ = result["n_samples"]
        self.ledger_ = federation.ledger
        self._describe(partition, federation.terms, noise, result["n_hash_calls"])
        if noise is not None:
            self._report_noise(partition, terms, noise, result["counts"])
        names = partition.feature_names
        parents = dict(enumerate(result["parents"]))
        self._set_structure(names, parents, terms.ordering)
        if self.fit_parameters:
            self.network_ = _network_of(names, result)

    def _was_found(self, found):
        """Tell whether the network is that of opened tables."""
        names = list(self.network_.nodes)
        if len(found.get("counts", ())) != len(names):
            return False
        return self.network_ == _network_of(names, found)

    def _terms(self, partition):
        """Public parameters of the session, the same at every party."""
        names = partition.feature_names
        if self.epsilon is not None and self.min_cell_count:
            raise ValueError(
                "min_cell_count hides small counts and epsilon adds noise to all of "
                "them: choose one"
            )
        return K2Terms(
            **column_terms(partition),
            ordering=check_ordering(self.ordering, names),
            max_parents=self.max_parents,
            criterion=self.criterion,
            equivalent_sample_size=self.equivalent_sample_size,
            scores=self.scores,
            opens=self.opens,
            missing="error" if self.missing == "auto" else self.missing,
            # what is declared, nobody has to read off the data
            states=known_states(
                as_seen(self.states, names, partition), names, partition.categories
            ),
            backend=CountBackend.of(self.backend),
            fit_parameters=self.fit_parameters,
            min_cell_count=self.min_cell_count,
            epsilon=self.epsilon,
            delta=delta_of(self),
            min_honest=self.min_honest,
        )

    def _report_noise(self, partition, terms, noise, counts):
        part = noise.tables or noise.choices or noise.margins
        std = getattr(part, "std", math.nan)

        def std_with(delta):
            changed = replace(terms, delta=delta)
            return changed.noise(noise.n_columns, noise.n_parties).tables.std

        numbers = [
            noisy_number(f"mean cell of {name!r}", self.n_samples_ / table.size, std)
            for name, table in zip(partition.feature_names, counts)
        ]
        report_noise(
            self,
            part,
            terms.protects,
            std,
            numbers,
            n_rows=self.n_samples_,
            std_with=std_with if noise.tables else None,
        )

    def _describe(self, partition, terms, noise, calls):
        """Say in the ledger who learns what."""
        ledger, who = self.ledger_, "all parties and the coordinator"
        structure = "parents of every column"
        if terms.opens == "order":
            structure += ", in the order found"
        if noise is None:
            ledger.learns(who, structure, "public")
        ledger.learns(who, "number of records", "public")
        if None in (terms.states or [None]):
            ledger.learns(who, "states of columns", "public")
        note_alignment(ledger, terms)
        if partition.n_parties > 1:
            describe_shares(ledger, resolve_count_backend(self.backend), calls)
        what = "counts of every column with its parents"
        if noise is not None:
            self._declare(noise, structure, what)
        elif not self.fit_parameters:
            return
        elif terms.min_cell_count > 1:
            ledger.learns(who, f"{what}, in steps of {terms.min_cell_count}")
        else:
            ledger.learns(who, what)

    def _declare(self, noise, structure, tables):
        """Enter what is opened with noise, and what epsilon is about."""
        ledger, who = self.ledger_, "all parties and the coordinator"
        parts = {
            "counts of every column by itself": noise.margins,
            structure: noise.choices,
            tables: noise.tables,
        }
        for what, part in parts.items():
            if part is not None:
                epsilon = part.epsilon
                cost = epsilon, noise.delta, noise.rho and part.rho
                ledger.releases.append(NoisyRelease(what, part, "values", *cost))
                ledger.learns(who, what, "noisy release", epsilon=epsilon)
        note_values_only(ledger)
        ledger.note(
            "every party adds noise to its shares of the scores that is enough by "
            "itself; that of tables is enough from as many parties as min_honest says",
            "coalition",
        )
        note_colluders(ledger, noise)


def _network_of(names, found):
    """Return the network of opened tables, in which the node comes first."""
    parents = [[names[u] for u in above] for above in found["parents"]]
    tables = [np.moveaxis(np.maximum(x, 0), 0, -1) for x in found["counts"]]
    return BayesianNetwork.from_counts(
        names, found["states"], parents, tables, alpha=1.0
    )
