"""One Bayesian network from columns that different sites hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import check_random_state

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.bayesian_network._base import known_states
from skprivbn.bayesian_network._dag import check_dag, graph_of
from skprivbn.crypto import PaillierBackend
from skprivbn.crypto._registry import named_parameters
from skprivbn.crypto.shares import OTBackend, resolve_count_backend
from skprivbn.partition import check_vertical
from skprivbn.partition._vertical import PARTIES_CONSTRAINT
from skprivbn.programs import keep_predictions, score_rows
from skprivbn.programs._columns import (
    CountBackend,
    column_terms,
    note_alignment,
)
from skprivbn.structure._discrete_columns import check_columns_at_hand, score_columns
from skprivbn.structure._edge_rules import check_ordering, parents_in
from skprivbn.structure._learnt import (
    COUNT_BACKEND_CONSTRAINT,
    DiscreteNetworkMixin,
    warn_of_one_holder,
)
from skprivbn.structure.collective._program import (
    CollectiveTerms,
    LocalModels,
    collective,
)
from skprivbn.structure.collective._site import SELECTIONS
from skprivbn.structure.collective._structure import METHODS, crossing
from skprivbn.utils import tell_progress, warn_leak
from skprivbn.utils._sklearn import (
    HasMethods,
    Interval,
    RenamedParameters,
    StrOptions,
    _fit_context,
    moved_into,
    settings_in,
)
from skprivbn.utils._typing import RandomStateLike, TableLike
from skprivbn.utils._validation import as_seen

#: settings of `search_params`, and what they are if nobody says otherwise
SEARCH_PARAMS = {
    "significance": ([Interval(Real, 0, 1, closed="neither")], 0.01),
    "post_process": (["boolean"], True),
    "min_cell_count": ([Interval(Integral, 0, None, closed="left")], 0),
}


@dataclass
class CollectiveModel:
    """Graph and counts, from which the networks follow; new counts can be added.

    Attributes
    ----------
    names, owners : list of str
        Of every variable.
    states : list of list
        Labels of every variable.
    local_parents, parents : list of list of int
        Of every variable: in its site's own network, and in the collective one.
    local_counts : list of ndarray
        Of every variable with its local parents.
    cross_counts : list of (ndarray or None)
        Of variables with a parent at another site, with all their parents. Weighted,
        if rows were.
    cuts : dict of str to float or None
        Log-likelihood below which a row does not fit a site's own network.
    """

    names: list
    owners: list
    states: list
    local_parents: list
    local_counts: list
    parents: list
    cross_counts: list
    cuts: dict = field(default_factory=dict)

    def add(self, local_counts, cross_counts):
        """Add the counts of new rows."""
        self.local_counts = [a + b for a, b in zip(self.local_counts, local_counts)]
        self.cross_counts = [
            None if kept is None else kept + new
            for kept, new in zip(self.cross_counts, cross_counts)
        ]

    def cross_edges(self):
        """Return the edges between sites, as pairs of names."""
        adjacency = graph_of(self.parents)
        return self.named(np.argwhere(crossing(adjacency, self.owners)))

    def network(self, alpha):
        """Return the collective network."""
        pairs = zip(self.cross_counts, self.local_counts)
        counts = [local if cross is None else cross for cross, local in pairs]
        return self._build(range(len(self.names)), self.parents, counts, alpha)

    def local_networks(self, alpha):
        """Return every site's own network."""
        held = {}
        for v, owner in enumerate(self.owners):
            held.setdefault(owner, []).append(v)
        return {
            site: self._build(variables, self.local_parents, self.local_counts, alpha)
            for site, variables in held.items()
        }

    def _build(self, variables, parents, counts, alpha):
        return BayesianNetwork.from_counts(
            [self.names[v] for v in variables],
            [self.states[v] for v in variables],
            [[self.names[u] for u in parents[v]] for v in variables],
            [counts[v] for v in variables],
            alpha=alpha,
        )

    def named(self, edges):
        """Return edges, pairs of numbers, as pairs of names."""
        return [(self.names[u], self.names[v]) for u, v in edges]


class CollectiveBayesianNetwork(
    RenamedParameters, CallbackSupportMixin, DiscreteNetworkMixin, BaseEstimator
):
    """Learn a discrete Bayesian network from columns of several sites.

    Every site learns a network of its own columns. The first site, the centre, learns
    the links between sites, from tables that are counted on secret shares, or from a
    part of the rows, as in [1]_. The collective network has the edges of both.

    Read more in the :ref:`User Guide <collective>`.

    Parameters
    ----------
    parties : dict, default=None
        Which site holds which columns: names, positions, slices or callables.
        None means that one site holds all.
    disclosure : {"private_counts", "rows"}, default="private_counts"
        What the centre sees. With ``"private_counts"`` contingency tables across
        sites are computed on secret shares; the centre learns those that the search
        asks for. With ``"rows"`` sites send it rows, which a warning recalls; sites
        of a real federation refuse unless their own policy allows it. The others, and
        whoever asks for the fit, learn the result.
    selection : {"random", "mixed", "low_likelihood"}, default="random"
        Which rows are sent: any, those that are unlikely at every site [1]_, or half
        of each, weighted by the inverse of their probability. Only with
        ``disclosure="rows"``.
    fraction : float, default=0.1
        Part of the rows that is sent.
    n_std : float, default=None
        Instead of `fraction`, with ``selection="low_likelihood"``: send rows whose
        likelihood at every site is below its mean plus `n_std` standard deviations.
        In :meth:`partial_fit` these are of the new rows, so that the threshold follows
        rows that drift.
    structure : mapping of str to sequence of str, default=None
        Parents of every column, if known: then only probabilities are learnt.
    ordering : array-like of str or int, default=None
        All columns, by name or position, parents before children. None leaves the
        direction of edges to the data.
    method : {"bic", "cheng_bell_liu"}, default="bic"
        How to search for the graph, at the sites and at the centre: by the Bayesian
        information criterion, or by the tests of independence of Cheng, Bell and
        Liu [2]_.
    max_parents : int, default=3
        Most parents of a column within its site, and again across sites.
    search_params : dict, default=None
        Settings of the search: `significance` (0.01), the level of the tests of
        ``"cheng_bell_liu"``; `post_process` (True), whether to score local edges
        again that a variable at another site may explain; and `min_cell_count` (0):
        tables with a smaller count, but some, are not opened, and what needs them is
        not considered. Sites raise it to what their files say.
    alpha : float, default=1.0
        Pseudo-count of every cell of a table; 0 gives maximum likelihood.
    states : mapping or list, default=None
        Public states of every column: labels, or their number k for 0, ..., k - 1.
        None takes the categories of a dataframe, and lets each site tell the labels
        of other columns.
    backend : {"ot", "paillier"}, OTBackend or PaillierBackend, default="ot"
        How two sites count together, with ``disclosure="private_counts"``.
    random_state : int, RandomState instance or None, default=None
        Chooses random rows, by key: where a site's file holds them does not matter.
    verbose : int, default=0
        1 prints every hundredth turn of the sites' conversations, 2 every one.

    Attributes
    ----------
    network_ : BayesianNetwork
        The collective network.
    adjacency_matrix_ : ndarray of bool of shape (n_features, n_features)
        Its graph; entry (i, j) is an edge from i to j.
    local_networks_ : dict of str to BayesianNetwork
        What each site learns from its own columns.
    cross_edges_ : list of (str, str)
        Edges of the network whose ends are at different sites.
    removed_edges_ : list of (str, str)
        Local edges that were found false once more was known (`post_process`).
    communicated_fraction_ : float
        Part of the rows that the centre has seen.
    n_samples_ : int
        Number of records that all sites have.
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    skprivbn.bayesian_network.BayesianNetwork : What is learnt.
    PrivateK2StructureLearner : Opens only the result.

    References
    ----------
    .. [1] R. Chen, K. Sivakumar, H. Kargupta, "Collective Mining of Bayesian Networks
       from Distributed Heterogeneous Data", Knowledge and Information Systems 6, 2004.
    .. [2] J. Cheng, D. Bell, W. Liu, "Learning Belief Networks from Data: An
       Information Theory Based Approach", CIKM 1997.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivbn.datasets import load_asia
    >>> from skprivbn.structure import CollectiveBayesianNetwork
    >>> asia = load_asia(variant="noisy_or")
    >>> X = pd.DataFrame(asia.sample(4000, random_state=0), columns=asia.nodes)
    >>> collective = CollectiveBayesianNetwork(
    ...     parties={
    ...         "clinic": ["asia", "tub", "either", "xray", "dysp"],
    ...         "registry": ["smoke", "lung", "bronc"],
    ...     },
    ...     ordering=[asia.nodes[i] for i in asia.topological_order],
    ... ).fit(X)
    >>> collective.cross_edges_
    [('lung', 'either'), ('bronc', 'dysp')]
    >>> collective.communicated_fraction_
    0.0
    """

    protocols = (collective, score_columns, score_rows, keep_predictions)
    _steps = {"step": "turn", "every": 100}
    _renamed = moved_into("search_params", SEARCH_PARAMS)
    _parameter_constraints = {
        "parties": PARTIES_CONSTRAINT,
        "disclosure": [StrOptions({"private_counts", "rows"})],
        "selection": [StrOptions(set(SELECTIONS))],
        "fraction": [Interval(Real, 0, 1, closed="right")],
        "n_std": [Interval(Real, None, None, closed="neither"), None],
        "structure": [HasMethods("items"), None],
        "ordering": ["array-like", None],
        "method": [StrOptions(set(METHODS))],
        "max_parents": [Interval(Integral, 0, None, closed="left")],
        "search_params": [dict, None],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "states": [Mapping, list, tuple, None],
        "backend": COUNT_BACKEND_CONSTRAINT,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        parties: Mapping | Sequence | str | None = None,
        *,
        disclosure: str = "private_counts",
        selection: str = "random",
        fraction: float = 0.1,
        n_std: float | None = None,
        structure: Mapping[str, Sequence[str]] | None = None,
        ordering: ArrayLike | None = None,
        method: str = "bic",
        max_parents: int = 3,
        search_params: dict | None = None,
        alpha: float = 1.0,
        states: Mapping | Sequence | None = None,
        backend: str | OTBackend | PaillierBackend = "ot",
        random_state: RandomStateLike = None,
        verbose: int = 0,
    ) -> None:
        self.parties = parties
        self.disclosure = disclosure
        self.selection = selection
        self.fraction = fraction
        self.n_std = n_std
        self.structure = structure
        self.ordering = ordering
        self.method = method
        self.max_parents = max_parents
        self.search_params = search_params
        self.alpha = alpha
        self.states = states
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self):
        # the names of features are set before anything is learnt
        return hasattr(self, "network_")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: TableLike, y: object = None) -> Self:
        """Learn the collective network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or VerticalPartition
            Discrete values without missing entries. A partition with keys is first
            aligned by private set intersection.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        return self._learn_watched(X, y, check_vertical(self, X, self.parties))

    def _learn(self, partition, progress):
        terms = self._terms(partition)
        found = self._run(partition, terms, progress)
        if found["parents"] is None:
            raise ValueError(
                "no row is unlikely at every site, so that the centre has nothing to "
                "learn from: raise fraction or n_std"
            )
        words = "states", "local_parents", "local_counts"
        words += "parents", "cross_counts", "cuts"
        learnt = {word: found[word] for word in words}
        self._model = CollectiveModel(terms.names, terms.owners, **learnt)
        self.cross_edges_ = self._model.cross_edges()
        self.removed_edges_ = self._model.named(found["removed"])
        self.n_samples_ = found["n_samples"]
        self._n_sent = found["n_sent"]
        self._finish()

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: TableLike, y: object = None) -> Self:
        """Update the probabilities with new rows; the structure stays.

        With ``selection="low_likelihood"`` as in the paper: rows that fit a site's own
        network update it; rows that fit none are sent to the centre, where they
        update the nodes with parents at other sites. The threshold is that of the
        fit, unless `n_std` makes it follow. With the other selections all
        new rows update the sites' own networks, and the same part of them is sent.
        Without rows, all new rows are counted, across sites too.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or VerticalPartition
            New rows, with values that have been seen or declared.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        partition = check_vertical(self, X, self.parties, reset=False)
        model = self._model
        terms = self._terms(partition, model)
        with tell_progress(self, X, **self._steps) as progress:
            found = self._run(partition, terms, progress)
        model.add(found["local_counts"], found["cross_counts"])
        self.n_samples_ += found["n_samples"]
        self._n_sent += found["n_sent"]
        self._finish()
        return self

    def _run(self, partition, terms, progress):
        """Have the sites learn; say in the ledger who learns what."""
        check_columns_at_hand(partition, terms.states)
        self._warn(partition)
        with partition.federate(collective, terms) as federation:
            found = federation.run(turn=progress.step)
        self.ledger_ = ledger = federation.ledger
        ledger.learns(
            "all parties and the coordinator",
            "number of records, labels, all networks with their counts",
        )
        note_alignment(ledger, terms)
        if partition.n_parties > 1:
            self._describe(ledger, federation.roster[0], found)
        return found

    def _describe(self, ledger, centre, found):
        if self.disclosure == "rows":
            words = f"{found['n_sent']} rows of all sites, side by side"
            ledger.learns(centre, words, "raw rows")
            return
        backend = resolve_count_backend(self.backend)
        ledger.note(backend.describe(), "technique", named_parameters(backend))
        ledger.learns(centre, "counts of the tables that its search asks for")
        ledger.learns("all parties", "which tables the centre's search asks for")
        if found["n_hidden"]:
            words = "that {n_hidden} of these tables have small counts, instead of them"
            ledger.learns(f"{centre} and holders", words.format_map(found))
        ledger.note(
            f"semi-honest security: sites follow the protocol; {centre}, the centre, "
            "learns every table that the search asks for, not only the final ones",
            "assumption",
        )
        ledger.note(
            "nobody short of all sites; all of them but one may pool what they "
            "see, and learn no row beyond the tables",
            "broken by",
        )

    def _finish(self):
        self.communicated_fraction_ = self._n_sent / self.n_samples_
        self.network_ = self._model.network(self.alpha)
        self.adjacency_matrix_ = self.network_.adjacency_matrix
        self.local_networks_ = self._model.local_networks(self.alpha)

    def _terms(self, partition, model=None):
        """Public parameters of the session, the same at every site."""
        names = list(partition.feature_names)
        if model is not None and names != model.names:
            raise ValueError(f"expected the columns {model.names}, got {names}")
        if self.n_std is not None and self.selection != "low_likelihood":
            raise ValueError(
                'n_std= is a threshold of the likelihood and needs selection="'
                f'low_likelihood", got selection={self.selection!r}'
            )
        parents = ordering = None
        if self.ordering is not None:
            ordering = check_ordering(self.ordering, names)
        if model is not None:
            states, parents = model.states, model.parents
        else:
            # what is declared, nobody has to read off the data
            states = known_states(
                as_seen(self.states, names, partition), names, partition.categories
            )
            if self.structure is not None:
                parents = [sorted(u) for u in parents_in(self.structure, names)]
                check_dag(graph_of(parents), names)
                if ordering is not None:
                    raise ValueError(
                        "structure= says the directions: leave out ordering="
                    )
        return CollectiveTerms(
            **column_terms(partition, names),
            names=names,
            states=states,
            parents=parents,
            ordering=ordering,
            method=self.method,
            max_parents=self.max_parents,
            alpha=self.alpha,
            disclosure=self.disclosure,
            selection=self.selection,
            # all have to agree that thresholds send as many as there are
            fraction=1.0 if self._sends_by_threshold(model) else self.fraction,
            n_std=self.n_std,
            seed=check_random_state(self.random_state).bytes(16),
            backend=CountBackend.of(self.backend),
            model=model and self._local_models(model),
            **settings_in("search_params", self.search_params, SEARCH_PARAMS),
        )

    def _was_found(self, found):
        """Tell whether the network is that of tables that were told, for some alpha."""
        nodes = list(self.network_.nodes)
        if len(found.get("cross_counts", ())) != len(nodes):
            return False
        pairs = zip(found["cross_counts"], found["local_counts"])
        counts = [local if cross is None else cross for cross, local in pairs]
        parents = [[nodes[u] for u in above] for above in found["parents"]]
        if [table.shape for table in counts] != [
            self.network_.cpts[v].shape for v in nodes
        ]:
            return False
        alpha = _alpha_of(self.network_.cpts.values(), counts)
        again = BayesianNetwork.from_counts(
            nodes, found["states"], parents, counts, alpha=alpha
        )
        tables = self.network_.cpts, again.cpts
        return self.network_.parents == again.parents and all(
            np.allclose(*(cpts[v] for cpts in tables), rtol=1e-6) for v in nodes
        )

    def _local_models(self, model):
        """Return what sites are told of their own networks before they get new rows."""
        fixed = self._sends_by_threshold(model) and self.n_std is None
        cuts = dict(model.cuts) if fixed else {}
        return LocalModels(model.local_parents, model.local_counts, cuts)

    def _sends_by_threshold(self, model):
        """Tell whether a likelihood, not a number, decides which rows are sent."""
        if self.disclosure != "rows" or self.selection != "low_likelihood":
            return False
        return model is not None or self.n_std is not None

    def _warn(self, partition):
        warn_of_one_holder(partition)
        if partition.n_parties > 1 and self.disclosure == "rows":
            warn_leak(
                'disclosure="rows" sends rows of all sites to the first of them, the '
                'centre, which joins them; disclosure="private_counts" sends none'
            )


def _alpha_of(tables, counts):
    """Return the pseudo-count of tables that are made of counts with one."""
    excess, lever = [], []
    for table, counted in zip(tables, counts):
        n_states = table.shape[-1]
        p, n = table.reshape(-1, n_states), counted.reshape(-1, n_states)
        excess += (p * n.sum(axis=1, keepdims=True) - n).ravel().tolist()
        lever += (1 - n_states * p).ravel().tolist()
    at = int(np.argmax(np.abs(lever)))
    return max(0.0, excess[at] / lever[at]) if lever[at] else 1.0
