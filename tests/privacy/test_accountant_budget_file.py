import json
import math
import os
import pickle
import subprocess
import sys
import textwrap

import pytest

from skprivbn.exceptions import BudgetExceededError
from skprivbn.privacy import PrivacyAccountant


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.json"


def run(code, path):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), os.fspath(path)],
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_later_session_goes_on_counting(path):
    PrivacyAccountant(epsilon=1.0, delta=1e-6, budget_file=path).spend(
        epsilon=0.5, delta=1e-7, rho=0.01, what="first"
    )
    again = PrivacyAccountant(epsilon=1.0, delta=1e-6, budget_file=path)
    assert [(s.what, s.epsilon, s.delta, s.rho) for s in again.history] == [
        ("first", 0.5, 1e-7, 0.01)
    ]
    assert again.history[0].at
    with pytest.raises(BudgetExceededError):
        again.spend(epsilon=0.6)


def test_two_objects_see_each_other_at_once(path):
    one = PrivacyAccountant(epsilon=1.0, budget_file=path)
    other = PrivacyAccountant(epsilon=1.0, budget_file=path)
    for accountant in (one, other) * 5:
        accountant.spend(epsilon=0.1)
    assert one.spent() == other.spent()
    for accountant in (one, other):
        with pytest.raises(BudgetExceededError):
            accountant.spend(epsilon=0.1)


def test_a_refused_exact_release_is_not_in_the_file(path):
    with pytest.raises(BudgetExceededError):
        PrivacyAccountant(epsilon=1.0, budget_file=path).spend(epsilon=math.inf)
    PrivacyAccountant(epsilon=1.0, budget_file=path).spend(epsilon=1.0)


def test_another_budget_is_an_error(path):
    PrivacyAccountant(epsilon=1.0, budget_file=path)
    with pytest.raises(ValueError, match="was made for epsilon=1, delta=0"):
        PrivacyAccountant(epsilon=2.0, budget_file=path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace("budget-1", "budget-9"),
        lambda text: text.replace('"epsilon": 0.5', '"epsilon": -0.5'),
        lambda text: text.replace('"epsilon": 0.5', '"epsilon": null'),
        lambda text: text.replace('"what"', '"who"'),
    ],
)
def test_a_damaged_file_never_counts_as_empty(path, damage):
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    accountant.spend(epsilon=0.5)
    text = path.read_text()
    assert damage(text) != text
    path.write_text(damage(text))
    for attempt in (
        lambda: accountant.spend(epsilon=0.1),
        lambda: PrivacyAccountant(epsilon=1.0, budget_file=path),
    ):
        with pytest.raises(ValueError, match="not a readable budget file"):
            attempt()


def test_a_lost_file_is_not_a_fresh_budget(path):
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    copy = pickle.loads(pickle.dumps(accountant))
    accountant.spend(epsilon=1.0)
    path.unlink()
    for holder in (accountant, copy):
        with pytest.raises(FileNotFoundError, match="restore"):
            holder.spend(epsilon=0.1)


def test_a_pickled_copy_keeps_counting_from_another_directory(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    accountant = PrivacyAccountant(epsilon=1.0, budget_file="budget.json")
    copy = pickle.loads(pickle.dumps(accountant))
    monkeypatch.chdir("/")
    copy.spend(epsilon=0.25)
    assert json.loads(path.read_text())["spends"][0]["epsilon"] == 0.25


def test_a_crash_before_the_write_leaves_a_whole_file(path):
    PrivacyAccountant(epsilon=1.0, budget_file=path).spend(epsilon=0.25)
    crash = run(
        """
        import os, sys
        from skprivbn.privacy import PrivacyAccountant
        accountant = PrivacyAccountant(epsilon=1.0, budget_file=sys.argv[1])
        os.replace = lambda *names: os._exit(9)
        accountant.spend(epsilon=0.5)
        print("data touched")
        """,
        path,
    )
    assert crash.returncode == 9, crash.stderr
    assert crash.stdout == ""
    # not granted, so not counted; and the dead process's lock is gone
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    assert accountant.spent().epsilon == 0.25
    accountant.spend(epsilon=0.75)


def test_a_crash_after_the_reservation_costs(path):
    crash = run(
        """
        import os, sys
        from skprivbn.privacy import PrivacyAccountant
        PrivacyAccountant(epsilon=1.0, budget_file=sys.argv[1]).spend(epsilon=0.75)
        os._exit(9)  # before any data were touched
        """,
        path,
    )
    assert crash.returncode == 9, crash.stderr
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    assert accountant.spent().epsilon == 0.75


def test_a_failed_write_is_no_reservation(path, monkeypatch):
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError()))
        with pytest.raises(OSError):
            accountant.spend(epsilon=0.5)
    assert accountant.spent().epsilon == 0
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "budget.json",
        "budget.json.lock",
    ]


@pytest.mark.slow
def test_processes_do_not_overspend_together(path):
    code = """
        import sys
        from skprivbn.exceptions import BudgetExceededError
        from skprivbn.privacy import PrivacyAccountant
        accountant = PrivacyAccountant(epsilon=1.0, budget_file=sys.argv[1])
        granted = 0
        for _ in range(15):
            try:
                accountant.spend(epsilon=0.05)
                granted += 1
            except BudgetExceededError:
                pass
        print(granted)
    """
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), os.fspath(path)],
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    granted = [int(worker.communicate()[0]) for worker in workers]
    assert sum(granted) == 20
    accountant = PrivacyAccountant(epsilon=1.0, budget_file=path)
    assert accountant.spent().epsilon == pytest.approx(1.0)
