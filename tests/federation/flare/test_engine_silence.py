"""Jobs of researchers who were killed end by themselves; nobody waits for ever."""

import threading
import time

import pytest

from skprivbn.federation.flare._patience import Heartbeat, within


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
