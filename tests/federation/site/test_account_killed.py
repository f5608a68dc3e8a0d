"""Refused and accepted fits at three sites, of which some are killed in between."""

import os
import signal
from base64 import b64decode, b64encode
from multiprocessing import Pipe

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation.site._account import Account
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._site import Site
from skprivbn.federation.site._state import SiteState
from skprivbn.preprocessing import FederatedStandardScaler
from tests.federation.site.crash import kill_at, needs_fork
from tests.federation.site.loopback import JOB, LoopbackSession, connect, make_sites
from tests.federation.site.study import NAMES

SITE_FILE = """
min_parties = 3
peers = ["north", "south", "west"]
[datasets.icu]
path = "icu.csv"
max_exact_numbers = 1000
max_refusals = 10000
estimators = ["FederatedStandardScaler"]
columns = {age = "float", sick = "int"}
"""
#: mean, variance and number of rows of one column
N_NUMBERS = 3


class SiteProcess:
    """A site in a process of its own, which may be killed."""

    def __init__(self, site, folder):
        self.authority, self._site, self._folder = site.authority, site, folder
        self.child = None

    def start(self, number=0):
        """Begin anew from the files; kill it before a statement, unless that is 0."""
        self.stop()
        self._pipe, inside = Pipe()
        self.child = os.fork()
        if not self.child:
            kill_at(number)
            name, file = self._site.name, SiteFile.load(self._folder / "site.toml")
            site = Site(name, file, self._folder / "startup", JOB, "scientist")
            while True:
                inside.send(site.answer(*inside.recv()))
        inside.close()

    def stop(self):
        if self.child:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self._pipe.close()
            self.child = None

    def answer(self, topic, message):
        """Return an answer, None if there is nobody any more."""
        try:
            self._pipe.send((topic, message))
            return self._pipe.recv()
        except (EOFError, OSError):
            return None


class Relay:
    """Stands for the engine: sites that are gone do not answer."""

    api = LoopbackSession.api

    def __init__(self, sites):
        self.sites = sites

    def set_timeout(self, value):
        pass

    def close(self):
        pass

    def do_app_command(self, job_id, command, data):
        replies = {}
        for name, number in data.get("sites", {}).items():
            message = b64decode(data["bodies"][number])
            answer = self.sites[name].answer(data["topic"], message)
            if answer is not None:
                replies[name] = b64encode(answer).decode()
        return {"replies": replies, "lost": []}


@pytest.fixture
def sites(tmp_path):
    rng = np.random.default_rng(0)
    for name in NAMES:
        (tmp_path / name).mkdir()
        # nobody may be told of the one who is sick
        rows = [f"{age:.1f},{int(i == 0)}" for i, age in enumerate(rng.normal(size=40))]
        (tmp_path / name / "icu.csv").write_text("\n".join(["age,sick", *rows]))
    made = make_sites(tmp_path, dict.fromkeys(NAMES, SITE_FILE))
    found = {name: SiteProcess(site, tmp_path / name) for name, site in made.items()}
    yield found
    for site in found.values():
        site.stop()


def charged(folder):
    """Return how many exact numbers each site was charged."""
    states = [SiteState(folder / name / "skprivbn_state") for name in NAMES]
    rows = [[dict(row) for row in state.charges("icu", "exact")] for state in states]
    return np.array([sum(row["numbers"] for row in mine) for mine in rows])


def begin_job(sites, killed=None):
    """Return rows of sites that begin anew, of which one may be killed soon."""
    for name, site in sites.items():
        site.start((killed or {}).get(name, 0))
    return connect(sites, "icu", Relay).rows


def ask_all(sites, folder, n_fits, rng):
    """Ask accepted and refused questions in turn, and kill a site now and then.

    Returns
    -------
    n_answered, n_killed : int
        Fits that came to their end, and others.
    surplus : ndarray of shape (3,)
        Numbers charged for fits that ended with a site.
    """
    n_answered = n_killed = 0
    surplus = np.zeros(3, dtype=int)
    rows, victim = begin_job(sites), None
    while n_answered < 2 * n_fits:
        column = ("age", "sick")[n_answered % 2]
        if victim:
            rows, victim = begin_job(sites), None
        if n_killed == 0 or rng.random() < 0.2:
            victim = NAMES[rng.integers(3)]
            rows = begin_job(sites, {victim: int(rng.integers(10, 200))})
        before = charged(folder)
        try:
            FederatedStandardScaler().fit(rows([column]))
            code = None
        except PartyError as error:
            code = error.code
        more = charged(folder) - before
        is_killed = code == "timeout"
        assert victim or not is_killed
        if is_killed:
            n_killed += 1
            surplus += more
            # whole or not at all; nothing for a question that would be refused
            assert set(more.tolist()) <= {0, N_NUMBERS * (column == "age")}
        elif column == "age":
            n_answered += 1
            assert code is None
            assert more.tolist() == [N_NUMBERS] * 3
        else:
            n_answered += 1
            assert code == "too-few-rows"
            assert more.tolist() == [0] * 3
    return n_answered, n_killed, surplus


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("n_fits", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_accepted_fits_are_charged_alike_and_refused_ones_cost_nothing(
    sites, tmp_path, n_fits
):
    rng = np.random.default_rng(n_fits)
    n_answered, n_killed, surplus = ask_all(sites, tmp_path, n_fits, rng)
    assert n_answered == 2 * n_fits and n_killed > 0
    assert charged(tmp_path).tolist() == (n_fits * N_NUMBERS + surplus).tolist()


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_they_would_cost_something_if_sites_charged_before_they_know(
    sites, tmp_path, monkeypatch
):
    # the twin: all is charged when all have signed
    begin = Account.begin

    def begin_and_pay(self):
        begin(self)
        self._charge(N_NUMBERS)

    monkeypatch.setattr(Account, "begin", begin_and_pay)
    with pytest.raises(AssertionError):
        ask_all(sites, tmp_path, 2, np.random.default_rng(2))
