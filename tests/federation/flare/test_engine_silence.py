"""Jobs of researchers who were killed end by themselves; nobody waits for ever."""

import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from contextlib import nullcontext

import pytest

from skprivbn.federation._wire import decode
from skprivbn.federation.flare import _relay
from skprivbn.federation.flare._relay import Heartbeat, Relay, within


def test_a_call_that_takes_too_long_is_given_up():
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match="the login took longer than 0.2 seconds"):
        within(0.2, "the login", lambda: time.sleep(30))
    assert time.monotonic() - begun < 5
    assert within(5, "a sum", lambda: 1 + 1) == 2
    with pytest.raises(KeyError, match="who"):
        within(5, "a failure", lambda: {}["who"])


def test_a_heartbeat_goes_on_whatever_goes_wrong():
    beats = threading.Semaphore(0)

    def beat():
        beats.release()
        raise OSError("the network is down")

    heart = Heartbeat(beat, interval=0.01)
    assert all(beats.acquire(timeout=5) for _ in range(3))
    heart.end()


class Signal:
    triggered = False


def test_a_job_ends_when_its_researcher_is_silent(monkeypatch):
    engine = pytest.importorskip("skprivbn.federation.flare.engine")
    monkeypatch.setattr(engine, "MAX_SILENCE", 0.5)
    controller = engine.RelayController()
    job = threading.Thread(target=controller.control_flow, args=(Signal, None))
    job.start()
    for _ in range(4):
        # a sign of life, as sessions give that ask nothing
        assert controller._relay("skprivbn", {"here": True}, None) == {}
        time.sleep(0.3)
        assert job.is_alive()
    job.join(10)
    assert not job.is_alive()


@pytest.mark.parametrize("connected, noticed", [(False, True), (True, False)])
def test_a_server_that_is_gone_is_noticed_before_the_call_ends(
    monkeypatch, connected, noticed
):
    monkeypatch.setattr(_relay, "LOOK_INTERVAL", 0.02)
    ended = threading.Event()
    begun = time.monotonic()
    with pytest.raises(ConnectionError) as caught:
        within(1.0, "a message", lambda: ended.wait(30), lambda: connected)
    assert ("no connection" in str(caught.value)) is noticed
    assert (time.monotonic() - begun < 0.9) is noticed
    ended.set()


class Sites:
    """Stands for the engine: sites that never answer, and what leads to them."""

    def __init__(self, codes):
        self.codes, self.ended = codes, threading.Event()

    def get_engine(self):
        return self

    def send_aux_request(self, sites, topic, request, timeout, fl_ctx, optional):
        from nvflare.apis.shareable import make_reply

        if topic == "skprivbn.here":
            return {site: make_reply(self.codes[site]) for site in sites}
        (site,) = sites
        if site == "east":
            reply = make_reply("OK")
            reply["message"] = b"answer"
            return {site: reply}
        self.ended.wait(timeout)
        return {site: make_reply("TIMEOUT")}


def test_a_site_that_is_gone_is_noticed_and_a_busy_one_has_its_time(monkeypatch):
    engine = pytest.importorskip("skprivbn.federation.flare.engine")
    monkeypatch.setattr(engine, "LOOK_INTERVAL", 0.05)
    body = b64encode(b"question").decode()

    def ask(timeout, **codes):
        sites, begun = Sites(codes), time.monotonic()
        roster = dict.fromkeys([*codes, "east"], 0)
        data = {"topic": "skprivbn.message", "timeout": timeout, "bodies": [body]}
        relay, data = engine.RelayController()._relay, data | {"number": 1}
        told = relay("", data | {"sites": roster}, sites)
        while "replies" not in told:
            # whoever asks comes back: this job is there
            assert told == {"number": 1}
            told = relay("", told, sites)
        sites.ended.set()
        assert list(told["replies"]) == ["east"]
        return told["lost"], time.monotonic() - begun

    lost, seconds = ask(20.0, west="COMMUNICATION_ERROR")
    assert lost == ["west"] and seconds < 10
    # one that computes, or was frozen, is still connected
    for code in ("TIMEOUT", "OK"):
        lost, seconds = ask(1.0, west=code)
        assert lost == [] and seconds > 0.9


class Server:
    def set_timeout(self, seconds):
        pass

    def do_app_command(self, job, command, data):
        return {"replies": {"north": b64encode(b"told").decode()}, "lost": ["west"]}

    api = property(lambda self: self)
    get_cell = is_cell_connected = lambda self, *name: self


def test_what_the_server_knows_of_a_site_is_passed_on():
    replies = Relay(Server(), "job").ask("topic", {"north": b"", "west": b""}, 1.0)
    assert replies["north"] == b"told"
    assert decode(replies["west"]) == {"ok": False, "code": "lost"}


class KilledJob(Server):
    """A job that answers late, and is killed or not."""

    def __init__(self, *said):
        self.said, self.asked = list(said), []

    def do_app_command(self, job, command, data):
        self.asked.append("sites" in data)
        said = self.said.pop(0)
        if said == "late":
            time.sleep(0.1)
        if said != "waiting":
            raise LookupError("no reply")
        return (
            {"number": data["number"]} if self.said else super().do_app_command(*"jcd")
        )


@pytest.mark.parametrize(
    "said, lost",
    [
        (["waiting", "waiting", "late", "waiting", "waiting"], False),
        (["waiting", "late", "gone"], True),
        (["gone"], True),
        (["late", "late", "late"], True),
    ],
)
def test_a_job_at_the_server_that_is_killed_is_noticed(monkeypatch, said, lost):
    monkeypatch.setattr(_relay, "COMMAND_TIME", 0.1)
    server = KilledJob(*said)
    with pytest.raises(ConnectionError, match="again") if lost else nullcontext():
        replies = Relay(server, "job").ask("topic", {"north": b""}, 5.0)
        assert replies == {"north": b"told"}
    # what sites are asked travels once, whatever is late
    assert server.said == [] and server.asked == [True] + [False] * (len(said) - 1)


LOCAL = """
import subprocess, sys, time
from skprivbn.federation.flare import LocalFederation

class Sleepers(LocalFederation):
    def provision(self):
        pass

    def start(self, name):
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        self.processes[name] = subprocess.Popen(sleep)

with Sleepers("unused", {"north": "", "south": "", "west": ""}) as local:
    print(*(process.pid for process in local.processes.values()), flush=True)
    time.sleep(600)
"""


def test_a_local_federation_that_is_told_to_end_leaves_no_process():
    psutil = pytest.importorskip("psutil")
    pytest.importorskip("nvflare")
    command = [sys.executable, "-c", LOCAL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        members = list(map(int, process.stdout.readline().split()))
        assert len(members) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not any(psutil.pid_exists(number) for number in members)
