"""PPEM: what the parties and the coordinator say to each other.

The parties hold the key (with CKKS or Paillier), the coordinator adds what it cannot
read. After survey and start (`_survey_protocol`, `_start_protocol`) every iteration is
one secure sum and one M-step, which each party does by itself; with its word on whether
to go on it sends what the next iteration starts with. At the end the sums behind the
best mixture are taken once more, exactly and under masks, so that what the coordinator
gets is no decryption of a ciphertext it has seen.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from skprivbn.federation import PartyRefusal, operation, sum_over_rows
from skprivbn.federation._rows import RowSource
from skprivbn.mixture._gaussian_steps import (
    Frame,
    IllDefinedCovarianceError,
    Mixture,
    e_step,
    frame_of,
    log_likelihood,
    maximise,
    moments_about_old_means,
    n_statistics,
    public_frame,
)
from skprivbn.mixture._start_protocol import (
    ILL_DEFINED,
    SMALL,
    SUMS_AND_STATUS,
    StartParty,
    counts_first,
    small_component_message,
    start,
    sum_and_status,
    sum_moments,
)
from skprivbn.mixture._survey_protocol import (
    CONVERGED,
    GO_ON,
    SPARSE,
    survey,
    unanimous,
)
from skprivbn.mixture._terms import EMTerms, first_mixture

# A mean log-likelihood per value beyond this says only that the start was bad.
_MAX_LOG_LIKELIHOOD, _LOG_LIKELIHOOD_UNIT = 1000.0, 1 / 64


@dataclass
class _Run:
    """One start of EM, as a party sees it. Means are relative to the centre."""

    mixture: Mixture
    #: responsibilities, and the mixture that says what to expect in gaps: of the
    #: start, if it came from rows, and of the last iterations
    expectations: deque = field(default_factory=lambda: deque(maxlen=3))
    #: of each iteration
    own_log_likelihoods: list = field(default_factory=list)
    bounds: list = field(default_factory=list)
    #: whether sums of an iteration are out, and the total due
    summed: bool = False

    @property
    def n_iter(self):
        return len(self.bounds)

    @property
    def bound(self):
        return self.bounds[-1] if self.bounds else -np.inf


class EMParty(StartParty):
    """A data holder in PPEM."""

    terms = EMTerms

    def prepare(self):
        super().prepare()
        self.best = None

    def schedule(self):
        yield from self._survey_operations()
        if self.status == SPARSE:
            return
        for _ in range(len(self.terms.seeds)):
            yield from self._start_operations()
            if self.status == SMALL:
                return
            yield from self._iterations()
            if self.running:
                # No mixture to go back to: nothing more is told, whatever the
                # coordinator thinks of small components.
                return
        yield "outline"
        yield "release"

    def _iterations(self):
        terms, first = self.terms, self._first_sums
        begins = due = "session.rotate" if terms.rotate_keys else first, "finish"
        while self.running and self.status == GO_ON:
            chosen = yield due
            if chosen == "session.rotate":
                due = first
            elif chosen == "component_sizes":
                due = "statistics", "finish"
            elif chosen == "statistics":
                # of the last iteration, only the mixture is told
                is_last = self.run.n_iter + 1 == terms.max_iter
                due = ("update",) if terms.pauses or is_last else ("update", first)
                if not self._counts_first:
                    # nobody has read the sums yet: the fit may end without them
                    due += ("finish",)
            else:
                if terms.tell_bounds and self.status in (GO_ON, CONVERGED):
                    yield "bound"
                due = begins

    @property
    def _first_sums(self):
        return "component_sizes" if self._counts_first else "statistics"

    @operation(
        tells="sums of its first responsibilities and moments; whether to go on",
        hears="the sums of responsibilities, if they come first",
        answers=SUMS_AND_STATUS,
    )
    def start(self, total=None):
        self._take_sizes_or_sums(total)
        return self._go_on_with(self._first_statistics)

    @operation(tells="whether EM can start", answers={"status": str})
    def begin(self, total):
        vector = self.reveal(total) / self.unit
        sizes, counts, means, covariances = self._maximise(vector)
        if self._too_small(sizes) and self._shows_no_rows:
            self.status = SMALL
            return {"status": SMALL}
        weights = counts / self.n_rows
        try:
            mixture = first_mixture(
                self.terms, weights, means, covariances, self.middle
            )
        except IllDefinedCovarianceError:
            return {"status": ILL_DEFINED}
        self._begin_run(mixture, (self.responsibilities, self._survey_mixture()))
        return {"status": GO_ON}

    @operation(hears="the mixture to start from")
    def begin_given(self):
        mixture = first_mixture(self.terms, None, None, None, self.middle)
        self._begin_run(mixture, None)

    def _begin_run(self, mixture, expectation):
        """Take up EM from a mixture, and what it came from, if it came from rows."""
        self.run = _Run(mixture)
        if expectation is not None:
            self.run.expectations.append(expectation)
        self.running, self.status = True, GO_ON
        self.responsibilities_of = None
        if self.terms.max_iter == 0:
            self._end_run()

    def _next_responsibilities(self):
        """Return those of the start, or do the E-step, once for every mixture."""
        if not self.running:
            return self._first_responsibilities()
        run = self.run
        if self.responsibilities_of is not run.mixture:
            likelihood, responsibilities = _e_step(self.rows, run.mixture)
            run.expectations.append((responsibilities, run.mixture))
            run.own_log_likelihoods.append(float(likelihood))
            self.responsibilities_of = run.mixture
        return run.expectations[-1][0]

    @operation(
        tells="sums of responsibilities; whether to go on",
        hears="the sums of the iteration before",
        answers=SUMS_AND_STATUS,
        parties_only=True,
    )
    def component_sizes(self, total=None):
        self._take_sums(total)
        return self._go_on_with(lambda: self._sizes(self._next_responsibilities()))

    def _take_sizes_or_sums(self, total):
        """Take the totals handed back: sums, or sizes, which may forbid to go on."""
        if not self._counts_first:
            self._take_sums(total)
            return
        sizes = self._read_sizes(total)
        small = self._too_small(sizes) and self._shows_no_rows
        self.status = self._step_back() if small else GO_ON
        if self.terms.init_params == "kmeans" and not self.running:
            self._remember(sizes)

    def _go_on_with(self, compute):
        """Hide the next sums, or one zero if the fit does not go on."""
        vector = compute() if self.status == GO_ON else np.zeros(1)
        return {**self.hide(vector), "status": self.status}

    @operation(
        tells="sums of responsibilities and moments, log-likelihood of its rows; "
        "whether to go on",
        hears="the sums of responsibilities, if they come first, or those of the "
        "iteration before",
        answers=SUMS_AND_STATUS,
    )
    def statistics(self, total=None):
        self._take_sizes_or_sums(total)
        answer = self._go_on_with(self._own_statistics)
        self.run.summed = self.status == GO_ON
        return answer

    def _own_statistics(self):
        run, responsibilities = self.run, self._next_responsibilities()
        # The first mixture may lie anywhere; the survey's frame fits the rows.
        self.frame = self._survey_frame() if run.n_iter == 0 else frame_of(run.mixture)
        statistics = self._statistics(responsibilities, run.mixture)
        most = _MAX_LOG_LIKELIHOOD * np.prod(self.rows.shape)
        clipped = np.clip(run.own_log_likelihoods[-1], -most, most)
        vector = np.append(statistics, clipped * self._log_likelihood_unit)
        return vector * self.unit

    @property
    def _log_likelihood_unit(self):
        return _LOG_LIKELIHOOD_UNIT / self.rows.shape[1]

    @operation(tells="whether to go on", answers={"status": str})
    def update(self, total):
        self._take_sums(total)
        return {"status": self.status}

    def _take_sums(self, total):
        """Do the M-step, if sums of an iteration are out."""
        due = self.running and self.run.summed
        if due != (total is not None):
            raise PartyRefusal("refused")
        if due:
            self.run.summed = False
            self.status = self._m_step(self.reveal(total) / self.unit)
            if self.status == CONVERGED or self.run.n_iter == self.terms.max_iter:
                self._end_run()

    def _m_step(self, vector):
        """Find the next mixture; return whether to go on."""
        run, terms, kind = self.run, self.terms, self.terms.covariance_type
        bound = vector[-1] / self._log_likelihood_unit / self.n_rows
        # A warm start goes on from the bound of the fit before.
        change = bound - (run.bound if run.bounds else terms.lower_bound)
        sizes, counts, means, covariances = self._maximise(vector[:-1])
        if self._too_small(sizes):
            return self._step_back()
        run.bounds.append(bound)
        if terms.covariance_update == "paper":
            old = run.mixture.means
            covariances = moments_about_old_means(kind, counts, covariances, means, old)
        weights = counts / counts.sum()
        try:
            run.mixture = Mixture.from_covariances(kind, weights, means, covariances)
        except IllDefinedCovarianceError:
            return ILL_DEFINED
        return CONVERGED if abs(change) < terms.tol else GO_ON

    def _too_small(self, sizes):
        return not self._alone and sizes.min() < self.terms.min_rows

    def _maximise(self, vector):
        """Do the M-step; return all numbers of rows and entries, then its results."""
        length = n_statistics(self.terms.covariance_type, *self.frame.reference.shape)
        moments, seen = np.split(vector, [length])
        counts, *parameters = maximise(moments, self.frame, self.terms.reg_covar)
        return np.append(counts, seen), counts, *parameters

    @property
    def _shows_no_rows(self):
        """Whether the next sums are of more than rows that were chosen to be shown."""
        return self.running or not self.terms.shows_rows()

    def _step_back(self):
        """Return to the mixture before a component got too small, if there is one."""
        if self.running and self.run.n_iter > 0:
            self._end_run()
        return SMALL

    @operation(tells="the log-likelihood of its rows", exact=True)
    def bound(self):
        own = self.run.own_log_likelihoods[-1]
        return self.hide(np.array([own, len(self.X)]))

    @operation(hears="that the coordinator wants to stop here")
    def finish(self):
        self._end_run()

    def _end_run(self):
        run = self.run
        if len(run.own_log_likelihoods) > run.n_iter:
            # an E-step without its M-step
            run.own_log_likelihoods.pop()
            run.expectations.pop()
        if self.best is None or run.bound > self.best.bound:
            self.best, self.best_number = run, self.n_runs
        self.running = False
        self.n_runs += 1

    @operation(
        tells="which start was best, its means rounded to 1/16 of a standard "
        "deviation and its standard deviations rounded to powers of two",
        answers={"best": int, "reference": np.ndarray, "scale": np.ndarray},
    )
    def outline(self):
        self.public_frame = public_frame(self.best.mixture.moved(self.middle))
        return {
            "best": self.best_number,
            "reference": self.public_frame.reference,
            "scale": self.public_frame.scale,
        }

    @operation(
        tells="sums of responsibilities and moments in the best start's last "
        "iteration, number of rows, log-likelihood in each of its iterations",
        exact=True,
    )
    def release(self):
        best = self.best
        # The paper's covariances need the means of the iteration before as well.
        n_needed = 2 if self.terms.covariance_update == "paper" else 1
        moments = [
            sum_moments(
                self.X, responsibilities, self.public_frame, mixture.moved(self.middle)
            )
            for responsibilities, mixture in list(best.expectations)[
                : -n_needed - 1 : -1
            ]
        ]
        head = [float(len(self.X)), *best.own_log_likelihoods]
        return self.hide(np.concatenate([head, *moments]))


def _e_step(rows, mixture):
    """Return log-likelihood and responsibilities, which of a source are a source."""
    if isinstance(rows, RowSource):
        likelihood = sum_over_rows(rows, lambda X: log_likelihood(X, mixture).sum())
        return likelihood, rows.map(lambda X: e_step(X, mixture)[1])
    likelihoods, responsibilities = e_step(rows, mixture)
    return likelihoods.sum(), responsibilities


@dataclass(frozen=True)
class Outcome:
    """What the coordinator has at the end.

    Attributes
    ----------
    mixture : Mixture
    lower_bounds : list of float
    converged : bool
    n_rows : int
    n_values_seen : int
        Values of all sums that whoever can read them has seen, start included.
    stopped : bool
        Whether a component was about to describe too few rows.
    """

    mixture: Mixture
    lower_bounds: list
    converged: bool
    n_rows: int
    n_values_seen: int
    stopped: bool


def run_em(federation, progress):
    """Coordinate a fit: relay, add, learn "go on" or "stop", read the result.

    Parameters
    ----------
    federation : Federation
        Of :class:`EMParty`.
    progress : Progress
        Told of every start and its iterations.

    Returns
    -------
    outcome : Outcome
    """
    # sites may have raised the limits
    terms = federation.terms
    survey(federation)
    runs, n_sums = [], 0
    for _ in terms.seeds:
        with progress.part("em-iteration", terms.max_iter) as iterations:
            n_sums += start(federation, terms)
            status, n_iter, total = GO_ON, 0, None
            while status == GO_ON and n_iter < terms.max_iter:
                with iterations.step() as tell:
                    total, status = _sums(federation, total)
                    n_sums += 1
                    if status != SMALL and (
                        terms.pauses or n_iter + 1 == terms.max_iter
                    ):
                        answers = federation.call("update", {"total": total})
                        total, status = None, unanimous(answers)
                    elif status != SMALL:
                        total, status = _first_sums(federation, total)
                    if status == ILL_DEFINED:
                        raise IllDefinedCovarianceError
                    if status == SMALL:
                        if n_iter == 0:
                            raise ValueError(small_component_message(terms))
                        break
                    n_iter += 1
                    if terms.tell_bounds:
                        log_likelihood, n_rows = federation.secure_sum("bound")
                        tell(log_likelihood=log_likelihood / n_rows)
                if iterations.stop and status == GO_ON and n_iter < terms.max_iter:
                    federation.call("finish")
                    break
        runs.append((n_iter, status))
    return _release(federation, terms, runs, n_sums)


def _sums(federation, total):
    """Return the sums of an iteration; part of them came with the last answers."""
    status = GO_ON
    if total is None:
        if federation.terms.rotate_keys:
            federation.rotate_keys()
        total, status = _first_sums(federation, None)
    if counts_first(federation):
        total, status = sum_and_status(federation, "statistics", total)
    return total, status


def _first_sums(federation, total):
    """Hand the last sums back, and ask for those that an iteration starts with."""
    name = "component_sizes" if counts_first(federation) else "statistics"
    return sum_and_status(federation, name, total)


def _release(federation, terms, runs, n_sums):
    outline = federation.unanimous("outline")
    frame = Frame(terms.covariance_type, outline["reference"], outline["scale"])
    n_iter, status = runs[outline["best"]]
    total = federation.secure_sum("release")
    n_rows, likelihoods, sums = total[0], total[1 : n_iter + 1], total[n_iter + 1 :]
    if n_iter == 0 and terms.init_params == "given":
        mixture = first_mixture(terms, None, None, None, 0.0)
    else:
        mixture = _final_mixture(terms, frame, sums, n_iter, n_rows)
    return Outcome(
        mixture,
        [float(value) for value in likelihoods / n_rows],
        status == CONVERGED,
        int(n_rows),
        # the log-likelihood is summed, too
        n_sums * (terms.n_parameters(frame.reference.shape[1]) + 1),
        status == SMALL,
    )


def _final_mixture(terms, frame, sums, n_iter, n_rows):
    """Do the last M-step again, from exact sums."""
    kind, reg_covar = terms.covariance_type, terms.reg_covar
    length = n_statistics(kind, *frame.reference.shape)
    counts, means, covariances = maximise(sums[:length], frame, reg_covar)
    if n_iter == 0:
        return first_mixture(terms, counts / n_rows, means, covariances, 0.0)
    if terms.covariance_update == "paper":
        old = terms.given.means
        if old is None or n_iter > 1:
            _, old, _ = maximise(sums[length:], frame, reg_covar)
        covariances = moments_about_old_means(kind, counts, covariances, means, old)
    return Mixture.from_covariances(kind, counts / counts.sum(), means, covariances)
