"""Hundreds of fits whose parties fail at random: nothing may pile up.

Run by ``make soak``, or ``python -m tests.soak --fits 300 --process-fits 20``. Every
fit either succeeds or ends in the error that names the lost party. Memory, threads,
open files, child processes and temporary files must be the same after the last fits
as after the first; the exit code says so.
"""

import argparse
import gc
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np

from skprivbn.exceptions import PartyError, ProtocolError
from skprivbn.federation import HostPolicy, InProcessFederation
from skprivbn.graphical_model import DPCGMLearner
from skprivbn.mixed_model import PrivateGLMMClassifier
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import HorizontalPartition, VerticalPartition
from skprivbn.preprocessing import FederatedStandardScaler
from skprivbn.structure import (
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
    PrivateK2StructureLearner,
)
from tests.federation.processes import ProcessFederation

#: bytes a fit may leave behind on average: less than the smallest block of data
ALLOWED_BYTES_PER_FIT = 10_000
FAILURE_RATE = 0.5


class Unreliable:
    """Half of the federations lose a party at a random round."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        rng = np.random.default_rng()
        self.fails_in = rng.geometric(0.15) if rng.random() < FAILURE_RATE else None
        self.victim = rng.choice(self.roster)
        self.how = rng.choice(["silent", "garbage", "cut"])

    def _exchange(self, requests, timeout):
        failing = self.fails_in is not None and self.victim in requests
        if failing:
            self.fails_in -= 1
        if failing and self.fails_in == 0:
            self.before_failing()
        replies = super()._exchange(requests, timeout)
        if failing and self.fails_in <= 0 and replies[self.victim] is not None:
            reply = replies[self.victim]
            replies[self.victim] = {
                "silent": None,
                "garbage": secrets.token_bytes(len(reply)),
                "cut": reply[: len(reply) // 2],
            }[self.how]
        return replies

    def before_failing(self):
        """Make the party fail in a way of the transport's own."""


class UnreliableInProcess(Unreliable, InProcessFederation):
    pass


class UnreliableProcesses(Unreliable, ProcessFederation):
    def before_failing(self):
        os.kill(self.processes[self.victim].pid, signal.SIGKILL)


def unreliable_federate(kind, **defaults):
    """Return a method `federate` of partitions that opens unreliable federations."""

    def federate(self, party_class, settings, backend="plaintext", **options):
        policy = HostPolicy(min_rows=options.pop("min_rows", 1), allow_rows=True)
        options = {**defaults, **options}
        return kind(
            self._blocks, party_class, settings, backend, policy=policy, **options
        )

    return federate


def make_fits():
    """Return one function per kind of fit, all small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)) + 4 * rng.integers(2, size=(90, 1))
    party, cluster = np.arange(90) % 3, np.arange(90) % 6
    y, codes = (X[:, 0] > 2).astype(int), (X > 2).astype(int)
    sides = {"a": [0, 1], "b": [2]}
    return {
        "PPEM, ckks": lambda: PPEMGaussianMixture(
            2, max_iter=3, backend="ckks", min_rows=1
        ).fit(X, party=party),
        "PPEM, masking": lambda: PPEMGaussianMixture(
            2, max_iter=3, backend="masking", min_rows=1
        ).fit(X, party=party),
        "covariance": lambda: FederatedGaussianBayesianNetwork().fit(X, party=party),
        "ADMM": lambda: FederatedNotearsADMM(max_iter=3).fit(X, party=party),
        "mixed model": lambda: PrivateGLMMClassifier(max_iter=2, min_rows=1).fit(
            X, y, cluster=cluster, party=party
        ),
        "random field": lambda: DPCGMLearner(
            epsilon=1.0, states=[2] * 3, method_params={"max_iter": 5}
        ).fit(codes, party=party),
        "scaler": lambda: FederatedStandardScaler().fit(X, party=party),
        "K2": lambda: PrivateK2StructureLearner(sides, max_parents=1).fit(codes),
    }


def resources():
    """Return what must not grow."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "threads": threading.active_count(),
        "open files": len(os.listdir("/proc/self/fd")),
        "processes": len(multiprocessing.active_children()),
        "temporary files": len(os.listdir(tempfile.gettempdir())),
    }


def soak(name, n_fits, fits):
    """Run the fits in turn; return what grew, printing how it went."""
    outcomes, before = Counter(), None
    warm_up = max(len(fits), n_fits // 3)
    for i in range(n_fits):
        if i == warm_up:
            before = resources()
        try:
            list(fits.values())[i % len(fits)]()
            outcomes["fitted"] += 1
        except PartyError as error:
            outcomes[f"party lost ({error.code})"] += 1
        except ProtocolError:
            outcomes["protocol stopped"] += 1
    after = resources()
    measured = n_fits - warm_up
    growth = {key: after[key] - before[key] for key in after}
    print(f"{name}: {n_fits} fits, {dict(outcomes)}")
    print(f"  growth over the last {measured}: {growth}", flush=True)
    limits = {"memory": ALLOWED_BYTES_PER_FIT * measured + 2**20}
    return [key for key, grown in growth.items() if grown > limits.get(key, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=400)
    parser.add_argument("--process-fits", type=int, default=24)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = [
        ("in one process", arguments.fits, unreliable_federate(UnreliableInProcess)),
        (
            "a process per party",
            arguments.process_fits,
            unreliable_federate(UnreliableProcesses, timeout=60),
        ),
    ]
    grown = []
    for name, n_fits, federate in runs:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(patch.object(tempfile, "tempdir", folder))
            for kind in (HorizontalPartition, VerticalPartition):
                stack.enter_context(patch.object(kind, "federate", federate))
            if n_fits:
                grown += soak(name, n_fits, make_fits())
    sys.exit(f"these grew: {', '.join(grown)}" if grown else 0)


if __name__ == "__main__":
    main()
