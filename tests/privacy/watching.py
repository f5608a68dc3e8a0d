"""Attacks on fits with epsilon: who sees all noisy numbers, and knows all other rows.

The attacker watches what is opened during a fit. It computes what would have been
opened without noise, with the person and without, given the answers so far: so it knows
how likely the answers are in both worlds, and its guess is as good as a guess can be.
"""

from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import numpy as np
from sklearn.base import clone

from skprivbn.federation import Runner
from skprivbn.graphical_model import _psgd, _release, _searches
from skprivbn.privacy import (
    CountMechanism,
    DistributedNoise,
    audit_epsilon,
    audit_estimator,
)
from skprivbn.privacy import _selection as _winner


class Watch:
    """Keeps what a fit opens; or repeats what another opened, and keeps exact numbers.

    Parameters
    ----------
    n_parties, n_colluders : int
        The first of so many parties tell the attacker their shares of the noise.
    answers : list of ndarray, default=None
        To be repeated. None lets the noise be drawn.
    choices : list of int, default=None
        To be repeated, of candidates that are chosen without a number being opened.

    Attributes
    ----------
    opened : list of ndarray
        Noisy integers; without noise if answers are repeated.
    noises : list of (str, float)
        Kind and scale of the noise of each.
    chosen : list of int
    scores : list of (ndarray, float, bool)
        What was compared, the scale of its noise, and whether that is exponential.
    again : list of list of callable
        For each of `opened`, what draws the holders' answers once more.
    model : estimator
        That was fitted.
    """

    def __init__(self, n_parties=1, n_colluders=0, answers=None, choices=None):
        self.n_parties, self.n_colluders = n_parties, n_colluders
        self.answers, self.choices = answers, choices
        self.opened, self.noises, self.chosen, self.scores = [], [], [], []
        self.again, self._asking = [], False
        self._n_shares, self._n_hidden = 0, Counter()

    @contextmanager
    def watching(self):
        """Let nothing be opened unseen."""
        share, release = DistributedNoise.share, CountMechanism.release
        laplace, with_noise = _winner.add_discrete_laplace, Runner._with_noise
        gaussian, choose = _psgd.add_discrete_gaussian, _searches.noisy_max
        open_shares = _release.open_noisy_numbers

        def watched_share(noise, shape):
            number, self._n_shares = self._n_shares, self._n_shares + 1
            self._noise = noise.kind, noise.scale
            knows = number % self.n_parties < self.n_colluders
            if knows or self.answers is not None:
                return np.zeros(shape, dtype=np.int64)
            return share(noise, shape)

        def watched_noise(runner, counts, noise):
            vector = with_noise(runner, counts, noise)
            if self._asking:
                return vector
            again = partial(watched_noise, runner, counts, noise)
            return see(runner, vector, again)

        def see(party, vector, again):
            if self._asking:
                return vector
            number = self._n_hidden[id(party)]
            self._n_hidden[id(party)] += 1
            if number == len(self.opened):
                self.opened.append(np.zeros(vector.shape))
                self.noises.append(self._noise)
                self.again.append([])
                told = None if self.answers is None else self.answers[number]
            elif self.answers is not None:
                told = np.zeros(vector.shape)
            self.opened[number] = self.opened[number] + vector
            self.again[number].append(again)
            return vector if self.answers is None else told.astype(vector.dtype)

        def watched_shares(talk, group, shares, noise):
            number = self._n_hidden[talk.name]
            self._n_hidden[talk.name] += 1
            opened = yield from open_shares(talk, group, shares, noise)
            if number == len(self.opened):
                self.opened.append(opened)
                self.noises.append(self._noise)
            if self.answers is None:
                return opened
            return self.answers[number].astype(np.int64)

        def opens(kind, scale, exact, draw):
            number = len(self.opened)
            self.noises.append((kind, scale))
            self.again.append([lambda: np.ravel(draw())])
            self.opened.append(np.ravel(exact if self.answers is not None else draw()))
            if self.answers is None:
                return self.opened[-1].reshape(np.shape(exact))
            return self.answers[number].astype(np.int64).reshape(np.shape(exact))

        def watched_release(noise, counts):
            return opens(
                noise.kind, noise.scale, counts, lambda: release(noise, counts)
            )

        def watched_gaussian(counts, sensitivity, sigma):
            return opens(
                "gaussian", sigma, counts, lambda: gaussian(counts, sensitivity, sigma)
            )

        def watched_choice(scores, scale, pure=True):
            self.scores.append((np.array(scores, dtype=float), scale, pure))
            if self.choices is None:
                self.chosen.append(choose(scores, scale, pure))
            else:
                self.chosen.append(self.choices[len(self.chosen)])
            return self.chosen[-1]

        def watched_laplace(sums, sensitivity, epsilon):
            scale = sensitivity / epsilon
            return opens(
                "laplace", scale, sums, lambda: laplace(sums, sensitivity, epsilon)
            )

        with ExitStack() as patches:
            for owner, name, watched in (
                (DistributedNoise, "share", watched_share),
                (CountMechanism, "release", watched_release),
                (Runner, "_with_noise", watched_noise),
                (_release, "open_noisy_numbers", watched_shares),
                (_psgd, "add_discrete_gaussian", watched_gaussian),
                (_searches, "noisy_max", watched_choice),
                (_winner, "add_discrete_laplace", watched_laplace),
            ):
                patches.enter_context(mock.patch.object(owner, name, watched))
            yield self

    def ask_again(self):
        """Return other answers of the same holders, who know nothing of a fit."""
        self._asking = True
        return [sum(answer() for answer in answers) for answers in self.again]


def log_likelihood(answers, exact, noises):
    """How likely answers are, but for a constant, if these were the exact numbers."""
    total = 0.0
    for told, sums, (kind, scale) in zip(answers, exact, noises, strict=True):
        noise = (told - sums) / scale
        total -= np.abs(noise).sum() if kind == "laplace" else (noise**2).sum() / 2
    return total


class Attack:
    """Fits of an estimator on two worlds, and what an attacker makes of each.

    Parameters
    ----------
    estimator : estimator
    worlds : sequence of two (X, dict)
        Neighbouring data sets, each with what goes to `fit` beside it.
    n_parties, n_colluders : int
        See :class:`Watch`.
    adaptive : bool, default=False
        Whether what is opened later depends on what was opened before.
    """

    def __init__(
        self, estimator, worlds, n_parties=1, n_colluders=0, *, adaptive=False
    ):
        self.estimator, self.worlds, self.adaptive = estimator, worlds, adaptive
        self.parties = n_parties, n_colluders
        self._exact = None

    def fit(self, world, answers=None, choices=None):
        """Fit once, and return what was seen."""
        X, beside = self.worlds[world]
        watch = Watch(*self.parties, answers, choices)
        with watch.watching():
            watch.model = clone(self.estimator).fit(X, **beside)
        return watch

    def guess(self, world):
        """Return the logarithm of how much more likely the second world is."""
        seen = self.fit(world)
        if self.adaptive or self._exact is None:
            self._exact = self._without_noise(seen)
        first, second = (
            log_likelihood(seen.opened, exact, seen.noises) for exact in self._exact
        )
        return second - first

    def _without_noise(self, seen):
        """What would have been opened in both worlds, given the answers seen."""
        return [self.fit(one, seen.opened, seen.chosen).opened for one in (0, 1)]

    def guess_answers(self, world, n_trials):
        """Return what is guessed from the holders' answers, without as many fits.

        Of answers that do not depend on earlier ones. What comes after them in a fit
        follows from them, to the last bit, which other tests make sure of.
        """
        seen = self.fit(world)
        self._exact = self._exact or self._without_noise(seen)
        with seen.watching():
            answers = [seen.ask_again() for _ in range(n_trials)]
        first, second = (
            np.array([log_likelihood(told, exact, seen.noises) for told in answers])
            for exact in self._exact
        )
        return second - first

    def run(self, n_trials, delta, confidence):
        """Return the epsilon that is exceeded for sure."""
        if self.adaptive:
            guesses = [[self.guess(world) for _ in range(n_trials)] for world in (0, 1)]
        else:
            guesses = [self.guess_answers(world, n_trials) for world in (0, 1)]
        return audit_epsilon(*guesses, delta=delta, confidence=confidence)

    def reach(self, n_trials, delta, confidence, n_repeats=5):
        """Return what would be found of ideal noise on the same exact numbers.

        No attack on a sound fit finds more, on average; and how far it is below epsilon
        says how much of the guarantee a person does not use, or is lost to chance.
        """
        seen = self.fit(0)
        exact = self._without_noise(seen)
        rng = np.random.default_rng(0)
        ratio = np.zeros((2, n_repeats, n_trials))
        for first, second, (kind, scale) in zip(*exact, seen.noises, strict=True):
            gap = ((second - first) / scale)[first != second]
            for world, moved in enumerate((0.0, gap)):
                shape = (n_repeats, n_trials, gap.size)
                if kind == "laplace":
                    draws = rng.geometric(-np.expm1(-1 / scale), (2, *shape))
                    told = (draws[0] - draws[1]) / scale + moved
                    change = np.abs(told) - np.abs(told - gap)
                else:
                    told = rng.normal(size=shape) + moved
                    change = (told**2 - (told - gap) ** 2) / 2
                ratio[world] += change.sum(axis=2)
        # noise of floats leaves a trace of the sum in the last digits, unlike ours
        ratio = np.round(ratio, 9)
        return float(
            np.mean([audit_epsilon(*r, delta, confidence) for r in zip(*ratio)])
        )

    def largest_loss(self):
        """Return epsilon, or for Gaussian noise rho, that these neighbours really cost.

        Exactly, if nothing but the opened numbers depends on the rows.
        """
        seen = self.fit(0)
        return cost_of(*(self.fit(one, seen.opened, seen.chosen) for one in (0, 1)))


def cost_of(one, other):
    """Return what it costs that numbers without noise differ between two watches."""
    cost = 0.0
    for a, b, (kind, scale) in zip(one.opened, other.opened, one.noises, strict=True):
        change = np.abs(a - b) / scale
        cost += change.sum() if kind == "laplace" else (change**2).sum() / 2
    for (a, scale, pure), (b, *_) in zip(one.scores, other.scores, strict=True):
        each = 2 * np.abs(a - b).max() / scale
        cost += each if pure else each**2 / 8
    return float(cost)


class Fits:
    """Fits whose numbers are looked at, where what is opened does not say it all."""

    def __init__(self, estimator, worlds, statistic):
        self.estimator, self.worlds, self.statistic = estimator, worlds, statistic

    def run(self, n_trials, delta, confidence):
        """Return the epsilon that is exceeded for sure."""
        (X, beside), (neighbour, beside_neighbour) = self.worlds
        found = audit_estimator(
            self.estimator,
            X,
            neighbour,
            statistic=self.statistic,
            n_trials=n_trials,
            delta=delta,
            confidence=confidence,
            fit_params=beside,
            neighbour_fit_params=beside_neighbour,
        )
        return found.epsilon
