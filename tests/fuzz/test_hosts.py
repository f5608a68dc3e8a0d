"""No message makes a party's host crash, hang or take memory, wherever a fit stands.

Fits of every estimator run until some message; in its place the host gets many others,
made from it. In ``make fuzz`` they are a million. What peers say to each other is
sealed: there a peer itself says something else, once in a fit.
"""

import os
import random
import resource
import signal
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from importlib import import_module
from unittest.mock import patch

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import InProcessFederation, decode
from tests.fuzz.mutants import Mutator
from tests.golden.cases import CASES
from tests.golden.recording import current_name

IS_LONG = os.environ.get("FUZZ_PROFILE", "ci") == "fuzz"
#: mutants for each of the fits (86 of them are a million), and for one message
N_MUTANTS = 12_000 if IS_LONG else 400
N_AT_A_TIME = 1_000 if IS_LONG else 100
#: what peers say otherwise
N_OF_PEERS = 35 if IS_LONG else 2
#: CPU seconds that one message may take, and bytes of memory that all may
MOST_SECONDS = 10.0
MOST_BYTES = 1 << 31

#: what CI has time for
SOME = [
    "PPEMGaussianMixture: diag",
    "PrivateK2StructureLearner: two parties",
    "DPCGMLearner: adaptive",
    "PrivateGLMMRegressor: linear",
    "FederatedKBinsDiscretizer: quantile",
]
NAMES = list(CASES) if IS_LONG else SOME


class Interrupted(Exception):
    """The fit has served its purpose."""


@contextmanager
def limited_memory(n_bytes):
    """Let allocations fail that would take the process beyond so much more."""
    with open("/proc/self/statm") as handle:
        used = int(handle.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def no_hang(seconds, what):
    """Raise if something takes too much CPU, wherever it is."""

    def stop(number, frame):
        raise AssertionError(f"hangs: {what}")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def held_by(host):
    """Return what changes when a host answers: itself, keys and sums."""
    group = host._session and host._session.group
    return [held for held in (host, group, *host._sums.values()) if held is not None]


def place_of(host):
    """Return where the program of a host stands, if it runs one."""
    frame = getattr(host._rest, "gi_frame", None)
    return None if frame is None else frame.f_lasti


class Attack:
    """Plays a coordinator that says other things from some message on.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.answers, self.slowest, self.n_mutants = Counter(), 0.0, 0
        self.others = [b"", b"SKPB"]
        self.n_messages, self.has_peers = None, False

    def run(self, fit, by_peer=False):
        """Fit once to count messages, or until one of them, and attack there."""
        strike = self.strike_as_peer if by_peer else self.strike
        self._left = None
        if self.n_messages is not None:
            self._left = self.random.randrange(self.n_messages)
        self._n_seen = 0
        original = InProcessFederation._exchange
        attack = self

        def exchange(federation, requests, timeout):
            for name, message in requests.items():
                host = federation._runners[name]
                if attack._left == 0 and strike(host, message):
                    raise Interrupted
                attack._n_seen += 1
                attack.has_peers |= bool(decode(message)["payload"].get("sealed"))
                if attack._left:
                    attack._left -= 1
                if len(attack.others) < 50 or attack.random.random() < 0.02:
                    attack.others.append(message)
            return original(federation, requests, timeout)

        InProcessFederation._exchange = exchange
        try:
            fit()
        except Interrupted:
            pass
        finally:
            InProcessFederation._exchange = original
        if self.n_messages is None:
            self.n_messages = self._n_seen

    def strike(self, host, message):
        """Send mutants to a host that is as if it had not heard those before."""
        mutator = Mutator(message, self.others[-100:], self.random)
        states = [(held, dict(vars(held))) for held in held_by(host)]
        place = place_of(host)
        for _ in range(N_AT_A_TIME):
            mutant = mutator.make()
            start = time.process_time()
            reply = decode(host.handle(mutant))
            self.slowest = max(self.slowest, time.process_time() - start)
            assert self.slowest < MOST_SECONDS, mutant[:2000]
            answer = "ok" if reply["ok"] else reply["code"]
            assert answer == "ok" or answer in PartyError.REASONS
            self.answers[answer] += 1
            self.n_mutants += 1
            for held, state in states:
                vars(held).clear()
                vars(held).update(state)
            if place != place_of(host):
                return True  # a program that has gone on cannot be wound back
        return True

    def strike_as_peer(self, host, message):
        """Let what a peer has sealed be something else, if it has sealed anything."""
        sealed = decode(message)["payload"].get("sealed")
        if not sealed:
            return False

        def decode_other(inner):
            if inner == message:
                return decode(inner)
            return decode(Mutator(inner, [inner], self.random).make_valid())

        with patch("skprivbn.federation.runner.decode", decode_other):
            start = time.process_time()
            reply = decode(host.handle(message))
            self.slowest = max(self.slowest, time.process_time() - start)
        assert self.slowest < MOST_SECONDS, message[:2000]
        self.answers["ok" if reply["ok"] else reply["code"]] += 1
        self.n_mutants += 1
        return True


def fit_of(case):
    """Return a function that fits an estimator anew."""

    def fit():
        estimator = case.make(current_name, import_module)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(*case.data.rows, **case.data.metadata)

    return fit


def attack_fits(case, n_mutants, by_peer=False, seed=0):
    """Attack fits of a case until so many mutants were sent; return the attack."""
    attack, fit = Attack(seed), fit_of(case)
    attack.run(fit)
    if not attack.n_messages or (by_peer and not attack.has_peers):
        pytest.skip("nobody is asked anything")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with limited_memory(MOST_BYTES), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while attack.n_mutants < n_mutants:
            with no_hang(120, f"{case.name}, {attack.n_mutants} mutants"):
                attack.run(fit, by_peer)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attack.grown_bytes = 1024 * (after - before)
    return attack


@pytest.mark.parametrize("by_peer", [False, True], ids=["coordinator", "peer"])
@pytest.mark.parametrize("name", NAMES)
def test_no_message_crashes_a_host(name, by_peer):
    n_mutants = N_OF_PEERS if by_peer else N_MUTANTS
    attack = attack_fits(CASES[name], n_mutants, by_peer)
    assert sum(attack.answers.values()) >= n_mutants
    assert attack.grown_bytes < MOST_BYTES
    print(
        f"\n{name}: {attack.n_mutants} mutants, {attack.slowest:.2f} s at most, "
        f"{attack.grown_bytes / 2**20:.0f} MB more, {dict(attack.answers)}"
    )
