"""The same at sites, with their files, logs and certificates: nothing breaks them."""

import os
import random
import warnings
from collections import Counter
from pathlib import Path

import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import decode
from skprivbn.federation.flare import LocalFederation
from skprivbn.federation.site._site import JOIN, TOPICS
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedPCA
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites
from tests.fuzz.mutants import Mutator

IS_LONG = os.environ.get("FUZZ_PROFILE", "ci") == "fuzz"
#: bytes by which what a site takes may grow
MOST_BYTES = 1 << 29


class Interrupted(Exception):
    """The fit has served its purpose."""


class Attack:
    """Relays what a fit says until some message, then mutants of it.

    Parameters
    ----------
    federation : FlareFederation
    seed : int, default=0
    """

    def __init__(self, federation, seed=0):
        self.federation, self.random = federation, random.Random(seed)
        self.answers, self.others = Counter(), [b""]

    def run(self, estimator, n_rounds):
        """Fit until some message, and send mutants for so many rounds."""
        relay, left = self.federation._relay.ask, self.random.randrange(12)

        def attack(topic, messages, timeout):
            nonlocal left
            left -= 1
            self.others += messages.values()
            if left >= 0:
                return relay(topic, messages, timeout)
            for _ in range(n_rounds):
                self._strike(relay, topic, messages)
            raise Interrupted

        self.federation._relay.ask = attack
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator.fit(self.federation.rows(["a", "b"]))
        except Interrupted:
            pass
        finally:
            del self.federation._relay.ask

    def _strike(self, relay, topic, messages):
        mutants = {
            name: Mutator(message, self.others[-50:], self.random).make()
            for name, message in messages.items()
        }
        # also where nobody expects it
        if self.random.random() < 0.3:
            topic = self.random.choice([JOIN, JOIN, *TOPICS])
        replies = relay(topic, mutants, 60.0)
        assert replies.keys() == mutants.keys(), "a site does not answer any more"
        for reply in map(decode, replies.values()):
            answer = "ok" if reply["ok"] else reply["code"]
            assert answer == "ok" or answer in PartyError.REASONS
            self.answers[answer] += 1


def attack_sites(federation, n_mutants, n_rounds):
    """Attack fits until so many mutants were sent; return what sites answered."""
    attack = Attack(federation)
    estimators = [
        FederatedPCA(),
        FederatedPCA(backend="ckks"),
        PPEMGaussianMixture(2, backend="masking", max_iter=2, random_state=0),
    ]
    while sum(attack.answers.values()) < n_mutants:
        attack.run(attack.random.choice(estimators), n_rounds)
    return attack.answers


def memory_of(folder):
    """Return the most bytes that a process working in a folder has taken."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode()
            if str(folder) in command and "python" in command:
                status = (process / "status").read_text()
                peak = status.partition("VmHWM:")[2].split()
                found = max(found, 1024 * int(peak[0]) if peak else 0)
        except OSError:
            pass  # it has ended
    return found


def test_no_message_breaks_site_code(tmp_path):
    write_tables(tmp_path, *make_rows())
    sites = make_sites(tmp_path, site_files(max_exact_fits=10**9))
    n_mutants = 20_000 if IS_LONG else 120
    answers = attack_sites(connect(sites, "icu"), n_mutants, 50 if IS_LONG else 8)
    print(f"\n{dict(answers)}")
    FederatedPCA().fit(connect(sites, "icu").rows(["a", "b"]))


@pytest.mark.skipif(not IS_LONG, reason="takes a minute: make fuzz")
def test_no_message_breaks_real_sites(tmp_path):
    pytest.importorskip("nvflare", reason="needs the extra skprivbn[nvflare]")
    write_tables(tmp_path / "data", *make_rows())
    files = site_files(max_exact_fits=10**9, path=tmp_path / "data")
    folder = tmp_path / "federation"
    with LocalFederation(folder, files) as local:
        with local.connect("icu", ready_within=300.0) as federation:
            FederatedPCA().fit(federation.rows(["a", "b"]))
            before = memory_of(folder)
            answers = attack_sites(federation, 1_000, 12)
            grown = memory_of(folder) - before
            FederatedPCA().fit(federation.rows(["a", "b"]))
    print(f"\n{dict(answers)}, {grown / 2**20:.0f} MB more")
    assert before > 0 and grown < MOST_BYTES
