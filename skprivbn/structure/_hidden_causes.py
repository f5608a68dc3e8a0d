"""Graphs of columns some of whose causes nobody has recorded: FCI on secure sums.

Continuous columns alone are tested by the correlations of all rows. Discrete and mixed
ones are tested by likelihood ratios, by one program that every party runs. There,
parties may have different columns. Those with the same ones are a group, of several
parties: whatever is subtracted from whatever is then a sum over whole groups.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from scipy.special import xlogy
from scipy.stats import chi2

from skprivbn.base import BACKEND_CONSTRAINT, PrivateEstimator
from skprivbn.bayesian_network import PartialAncestralGraph
from skprivbn.crypto import AdditiveBackend
from skprivbn.federation import Me, converse, program
from skprivbn.privacy import PrivacyAccountant
from skprivbn.privacy._options import PRIVACY_CONSTRAINTS, noise_terms
from skprivbn.programs._columns import tell_all
from skprivbn.structure._edge_rules import EdgeRules, read_edge_rules
from skprivbn.structure._fci import IndependenceTests, fci, finding_pag
from skprivbn.structure._learnt import integer_seed, refuse_options
from skprivbn.structure._resampling import Resampled, drawn_covariances, share_of_marks
from skprivbn.structure._search import MAX_REPEATS
from skprivbn.structure.gaussian._program import (
    NetworkMomentsTerms,
    learn_moments,
    network_moments,
)
from skprivbn.structure.gaussian._scores import effective_rows
from skprivbn.structure.gaussian._search import fisher_z
from skprivbn.structure.rows._checks import check_values, declared_states, split_states
from skprivbn.structure.rows._mixed import AskedMoments
from skprivbn.structure.rows._program import (
    RowNetworkTerms,
    list_tables,
    own_columns,
    reading_rows,
)
from skprivbn.structure.rows._search import tables_for
from skprivbn.utils import column_names
from skprivbn.utils._memoise import asking_others, memoise_steps
from skprivbn.utils._sklearn import Interval, StrOptions
from skprivbn.utils._typing import RandomStateLike


@dataclass(frozen=True)
class IndependenceTerms(RowNetworkTerms):
    """What tests of independence are made of.

    Parameters
    ----------
    significance : float
        Level, up to which p values speak against independence.
    min_parties : int
        Fewest parties that have the same columns, where not all have all.
    max_parents : int
        Most columns that a test is given.
    names, states, continuous, min_cell_count, missing, known, allowed, required, \
            ordering, n_bootstrap, seed :
        As of :class:`~skprivbn.structure.rows._program.RowNetworkTerms`.
    """

    significance: float = 0.01
    min_parties: int = 2

    def _check_graphs(self, n_columns):
        if not 0 < self.significance < 1 or self.missing == "em" or self.known:
            raise ValueError("significance, missing, known: not those of tests")
        EdgeRules(self.allowed, self.required, n_columns).check(self.names)


@program(IndependenceTerms)
def pag_of_rows(me: Me) -> Generator[Any, Any, dict]:
    """Which columns parties have, labels and sizes; sums that tests need."""
    held, sizes = [list(range(len(me.terms.names)))], [len(me.roster)]
    if me.terms.missing == "skip":
        mine = tell_all(me, own_columns(me))
        told = yield from converse(mine, "which columns a party has", "public")
        groups = Counter(map(tuple, told.values()))
        if len(groups) > 1 and min(groups.values()) < me.terms.min_parties:
            return {"problem": _small_group(groups, me.terms)}
        held, sizes = sorted(map(list, groups)), sorted(groups.values())
    rows, problem = yield from reading_rows(me)
    if rows is None:
        return {"problem": problem}
    steps = _learning(me.terms, tuple(rows.n_states), rows.max_cells, held)
    found = yield from asking_others(steps, rows.answering)
    return found | {"n_samples": rows.n_samples, "groups": sizes}


def _small_group(groups, terms):
    few = min(groups, key=lambda columns: (groups[columns], columns))
    names = ", ".join(terms.names[v] for v in few)
    return (
        f"only {groups[few]} of all parties have the columns {names} and no others: at "
        f"least {terms.min_parties} must, as sums with and without them would tell "
        "theirs; leave out a column, or let the party give fewer"
    )


@memoise_steps
def _learning(terms, n_states, max_cells, held):
    """Ask for the sums of tests, and find a partial ancestral graph."""
    tables = tables_for(terms, n_states, max_cells)
    moments = AskedMoments(n_states, len(terms.continuous))
    tests = LikelihoodRatioTests(
        tables, moments, terms.continuous, terms.significance, held
    )
    rules = EdgeRules(terms.allowed, terms.required, len(n_states))
    options = len(n_states), terms.max_parents, rules
    marks, untested = yield from finding_pag(tests, *options)
    found = {
        "marks": marks,
        "untested": np.argwhere(np.triu(untested)),
        "tables": tables.runs,
        "moments": [list(key) for key in moments.asked],
    }
    rng, drawn = np.random.default_rng(terms.seed), []
    for _ in range(terms.n_bootstrap):
        again = yield from finding_pag(tests.resampled(rng), *options)
        drawn.append(again[0])
    if drawn:
        found["mark_confidence"] = share_of_marks(drawn)
    return found


class LikelihoodRatioTests(IndependenceTests):
    """Tests of independence of discrete and continuous columns.

    Continuous columns are taken to be normal, with a mean and a covariance for every
    configuration of the discrete ones. Of discrete columns alone this is G-squared, of
    continuous ones alone the likelihood-ratio test of a partial correlation.

    Parameters
    ----------
    tables : AskedTables
    moments : AskedMoments
    continuous : sequence of int
    significance : float
    held : list of list of int
        Columns of each group of parties.

    References
    ----------
    Andrews, Ramsey, Cooper. Scoring Bayesian networks of mixed variables.
    International Journal of Data Science and Analytics 6, 2018.
    """

    def __init__(self, tables, moments, continuous, significance, held):
        self.tables, self.moments = tables, moments
        self.place = {v: j for j, v in enumerate(continuous)}
        self.significance, self.held = significance, [set(group) for group in held]

    def resampled(self, rng):
        """Return the tests of one bootstrap sample."""
        tables, moments = (Resampled(s, rng) for s in (self.tables, self.moments))
        options = list(self.place), self.significance, self.held
        return LikelihoodRatioTests(tables, moments, *options)

    def _discrete(self, *columns):
        return [v for v in columns if v not in self.place]

    def is_possible(self, columns):
        """Tell whether some parties have all columns, and the table is not too large.

        Rows count in moments if they have all numbers.
        """
        discrete = self._discrete(*columns)
        needed = {*columns, *(self.place if len(discrete) < len(columns) else ())}
        fits = self.tables.n_numbers(discrete) <= self.tables.max_cells
        return fits and any(needed <= group for group in self.held)

    def asking(self, tests):
        """Ask for tables, and for moments by configurations of discrete columns."""
        sets = [(*given, x, y) for x, y, given in tests]
        sets = [columns for columns in sets if self.is_possible(columns)]
        discrete = [self._discrete(*columns) for columns in sets]
        pure = [len(d) == len(c) for d, c in zip(discrete, sets)]
        yield from self.tables.asking(tuple(d) for d, p in zip(discrete, pure) if p)
        mixed = {tuple(sorted(d)) for d, p in zip(discrete, pure) if not p}
        yield from self.moments.asking(sorted(mixed))

    def answer(self, x, y, given):
        """Tell whether columns are independent given others; None if no test does."""
        if not self.is_possible((x, y, *given)):
            return None
        return bool(self.p_value(x, y, given) > self.significance)

    def p_value(self, x, y, given):
        """Return the p value of the likelihood ratio."""
        discrete = sorted(self._discrete(x, y, *given))
        numbers = [self.place[v] for v in given if v in self.place]
        if x in self.place or y in self.place or numbers:
            sums = self.moments(discrete)
        else:
            sums = np.asarray(self.tables(discrete), dtype=float)[..., None, None]
        # whole tables, and those without y, x, and both
        parts, sizes, gain = [], [], 0.0
        for sign, dropped in ((1, ()), (-1, (y,)), (-1, (x,)), (1, (x, y))):
            axes = tuple(discrete.index(v) for v in dropped if v not in self.place)
            part = sums.sum(axis=axes, keepdims=True)
            kept = {x, y} & self.place.keys() - {*dropped}
            chosen = [*numbers, *sorted(self.place[v] for v in kept)]
            gain += sign * _log_likelihood(part, chosen)
            p = len(chosen)
            parts.append(part[..., 0, 0] > 0)
            sizes.append(sign * (1 + p + p * (p + 1) / 2))
        # cells of the whole table that could have rows, given those of the margins
        parts[0] = parts[1] & parts[2]
        freedom = sum(size * part.sum() for size, part in zip(sizes, parts))
        if freedom <= 0:  # too few rows say nothing against independence
            return 1.0
        return chi2.sf(2 * gain, freedom)


def _log_likelihood(sums, numbers):
    """Return the log-likelihood of rows, but for what differences do not have."""
    counts = sums[..., 0, 0]
    total = np.sum(xlogy(counts, counts))
    if not numbers:
        return total
    chosen = [1 + j for j in numbers]
    n = np.maximum(counts, 1.0)[..., None, None]
    mean = sums[..., 0, chosen][..., None, :] / n
    within = sums[..., chosen, :][..., chosen] - n * mean.swapaxes(-1, -2) * mean
    # one more row like those of all configurations, so that few rows have a spread
    overall = within.sum(axis=tuple(range(counts.ndim))) / max(counts.sum(), 1.0)
    spread = (within + overall) / (counts + 1.0)[..., None, None]
    return total - 0.5 * np.sum(counts * np.linalg.slogdet(spread)[1])


class FederatedFCI(PrivateEstimator):
    """Learn causes and hidden common causes by FCI on secure sums.

    Other structure learners assume that no common cause of two columns is missing. FCI
    does not: it distinguishes edges that are causes, edges that are due to a hidden
    cause, and edges that may be either. Tests of partial correlation need only the
    pooled covariance, which is a secure sum. Tests of discrete columns need
    contingency tables, each of which is a secure sum when a test needs it.

    Read more in the :ref:`User Guide <structure_federated>`.

    Parameters
    ----------
    significance : float, default=0.01
        Level of the tests of independence.
    max_condition : int, default=None
        Most columns that a test is given; None for no limit.
    states : mapping or list, default=None
        None takes all columns to be continuous, and tests partial correlations. Else,
        for every column, public labels, their number k for 0, ..., k - 1, None for the
        labels that parties tell, or "continuous". Then tests are likelihood ratios:
        G-squared of discrete columns; continuous ones are taken to be normal in every
        configuration of discrete ones.
    missing : {"auto", "error", "skip"}, default="auto"
        What to do with missing entries (NaN or None) in `fit`: "auto" is "error". With
        `states`, "skip" leaves a row out of tests that need a missing entry.
        Parties may then lack whole columns, if for each there are others with the same
        columns; a test is about the parties that have all its columns. Differences of
        sums are sums over groups: all of a group but one can read the last one's.
    search_params : dict, default=None
        What is known about causes:

        - ``"required_edges"``: list of (cause, effect), by name or position. They are
          direct causes, and not tested.
        - ``"forbidden_edges"``: list of such pairs of which the first is no cause of
          the second, directly or through others.
        - ``"tiers"``: all columns in groups, such as those of different times: none is
          a cause of one in an earlier group.

    n_bootstrap : int, default=0
        Bootstrap samples in which the search is repeated, for `mark_confidence_`: drawn
        from the covariance at the coordinator, or from tables by the parties.
    site_effects : {"levels"}, default=None
        With "levels", every party's own means are removed. Without `states`.
    backend : str or AdditiveBackend, default="masking"
        How sums are hidden. Parties read them, and tell the coordinator the moments;
        of tables, the graph alone.
    random_state : int, RandomState instance or None, default=None
        Draws the samples of `n_bootstrap`.
    epsilon : float, default=None
        Privacy budget of the moments. None releases them exactly. With it, tests count
        the noise as fewer rows. Without `states`.
    delta : float, default=0.0
        With `epsilon`: 0 adds discrete Laplace noise, more discrete Gaussian noise.
    bounds : pair, list of pairs or dict, default=None
        Public lower and upper bounds of the features, to which rows are clipped;
        needed with `epsilon`.
    accountant : PrivacyAccountant, default=None
        Charged before any row is touched.
    min_honest : int, default=None
        With `epsilon`: how many parties are trusted to add their share of the noise
        and to keep it secret. None means half of them, rounded up; sites accept no
        more.

    Attributes
    ----------
    pag_ : PartialAncestralGraph
        What the tests say.
    not_testable_ : list of (str, str)
        With `states`: pairs that no test has separated, and of which some test was not
        possible, as no parties have all its columns, or as its table is too large.
        They have an edge with two circles in `pag_`, on which no other mark depends.
    mark_confidence_ : ndarray of shape (n_features, n_features, 4)
        With `n_bootstrap`: entry (i, j) has the shares of samples with no edge between
        i and j, and with a circle, an arrow and a tail at j.
    n_samples_ : float
        Rows of all parties (noisy with `epsilon`).
    ledger_ : Ledger
        Every message of the last fit, and who learnt what.
    privacy_spent_ : PrivacyCost
        What the fit cost, with `epsilon` only.
    noise_report_ : NoiseReport
        What noise does to the result, with `epsilon` only.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if `X` has string names.

    See Also
    --------
    FederatedGaussianBayesianNetwork : Where no common cause is hidden.

    References
    ----------
    .. [1] Spirtes, Glymour, Scheines. Causation, Prediction, and Search. 2000.
    .. [2] Zhang. On the completeness of orientation rules for causal discovery in the
       presence of latent confounders and selection bias. Artificial Intelligence, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.structure import FederatedFCI
    >>> rng = np.random.default_rng(0)
    >>> hidden, a, b, c, d = rng.normal(size=(5, 3000))
    >>> X = np.column_stack([a, b, a + hidden + c, b + hidden + d])
    >>> party = [f"hospital {i % 3}" for i in range(3000)]
    >>> model = FederatedFCI().fit(X, party=party)
    >>> print(model.pag_)
    x0 o-> x2
    x1 o-> x3
    x2 <-> x3
    """

    _of_some_fits = ("not_testable_", "mark_confidence_")
    protocols = (network_moments, pag_of_rows)
    _parameter_constraints = {
        "significance": [Interval(Real, 0, 1, closed="neither")],
        "max_condition": [Interval(Integral, 0, None, closed="left"), None],
        "states": [Mapping, list, tuple, None],
        "missing": [StrOptions({"auto", "error", "skip"})],
        "search_params": [dict, None],
        "n_bootstrap": [Interval(Integral, 0, MAX_REPEATS, closed="both")],
        "site_effects": [StrOptions({"levels"}), None],
        "backend": BACKEND_CONSTRAINT,
        "random_state": ["random_state"],
        **PRIVACY_CONSTRAINTS,
    }

    def __init__(
        self,
        significance: float = 0.01,
        *,
        max_condition: int | None = None,
        states: Mapping | Sequence | None = None,
        missing: Literal["auto", "error", "skip"] = "auto",
        search_params: dict | None = None,
        n_bootstrap: int = 0,
        site_effects: str | None = None,
        backend: str | AdditiveBackend = "masking",
        random_state: RandomStateLike = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        bounds: tuple | list | dict | None = None,
        accountant: PrivacyAccountant | None = None,
        min_honest: int | None = None,
    ) -> None:
        self.significance = significance
        self.max_condition = max_condition
        self.states = states
        self.missing = missing
        self.search_params = search_params
        self.n_bootstrap = n_bootstrap
        self.site_effects = site_effects
        self.backend = backend
        self.random_state = random_state
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.accountant = accountant
        self.min_honest = min_honest

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.states is not None
        tags.input_tags.allow_nan = self.missing == "skip"
        return tags

    @property
    def _fit_checks(self):
        finite = "allow-nan" if self.missing == "skip" else True
        least = {"ensure_min_features": 2, "ensure_min_samples": 2}
        return {**least, "ensure_all_finite": finite}

    def _learn(self, partition):
        self._check_options()
        if self.states is None:
            self._test_correlations(partition)
        else:
            self._test_tables(partition)

    def _check_options(self):
        if self.states is not None:
            refuse_options(self, "with states=", "site_effects", "epsilon")
        elif self.missing == "skip":
            raise ValueError("missing='skip' is not available without states=")
        if self.epsilon is not None:
            refuse_options(self, "with epsilon", "site_effects", "n_bootstrap")

    def _test_correlations(self, partition):
        """Run FCI on the covariance that parties have added up."""
        if self.epsilon is None:
            centre = "pooled" if self.site_effects is None else "party"
            terms = NetworkMomentsTerms(centre=centre)
        else:
            terms = NetworkMomentsTerms(**noise_terms(self, partition))
        moments, _ = learn_moments(self, partition, terms)
        n_rows, d = effective_rows(moments), len(moments.mean)
        rules = read_edge_rules(self)

        def learn(covariance):
            test = fisher_z(covariance, n_rows, self.significance)
            return fci(test, d, self.max_condition, rules)

        self.pag_ = PartialAncestralGraph(learn(moments.covariance), column_names(self))
        self.n_samples_ = moments.n_rows
        if self.n_bootstrap:
            seed = integer_seed(self.random_state)
            drawn = drawn_covariances(
                seed, moments.covariance, n_rows, self.n_bootstrap
            )
            self.mark_confidence_ = share_of_marks([learn(sample) for sample in drawn])

    def _test_tables(self, partition):
        """Let parties run FCI on tables, and moments, that they add up."""
        names = column_names(self)
        states, continuous = split_states(self.states, names)
        rules = read_edge_rules(self) or EdgeRules.free(len(names))
        declared = declared_states(states, partition, names, continuous)
        check_values(partition, names, declared, continuous)
        most = len(names) - 2 if self.max_condition is None else self.max_condition
        terms = IndependenceTerms(
            names=names,
            states=declared,
            continuous=continuous,
            max_parents=most,
            min_cell_count=0,
            missing="skip" if self.missing == "skip" else "error",
            known=None,
            allowed=rules.allowed,
            required=rules.required,
            ordering=list(range(len(names))),
            n_bootstrap=self.n_bootstrap,
            seed=integer_seed(self.random_state),
            significance=self.significance,
        )
        found = self._run_charged(partition, pag_of_rows, terms, "contingency tables")
        if "problem" in found:
            raise ValueError(found["problem"])
        list_tables(self.ledger_, terms, found["tables"], found["moments"])
        if len(found["groups"]) > 1:
            sizes = ", ".join(map(str, found["groups"]))
            self.ledger_.note(
                f"groups of parties with the same columns: {sizes}; all of a group but "
                "one can read the sums of that one"
            )
        self.pag_ = PartialAncestralGraph(found["marks"], names)
        self.not_testable_ = [(names[x], names[y]) for x, y in found["untested"]]
        self.n_samples_ = float(found["n_samples"])
        if self.n_bootstrap:
            self.mark_confidence_ = found["mark_confidence"]
