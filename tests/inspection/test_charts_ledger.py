import matplotlib as mpl
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skprivbn.federation import Ledger
from skprivbn.inspection import LedgerDisplay

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ledger():
    ledger = Ledger(parties=("north", "south"))
    for n_bytes in (100, 10, 0, 30):
        ledger.n_rounds += 1
        if n_bytes:
            ledger.record("ask", "coordinator", "north", b"x" * 5, "public", "go")
            ledger.record(
                "sum", "north", "coordinator", b"x" * n_bytes, "masked", "its sum"
            )
            ledger.record("sum", "south", "coordinator", b"xx", "masked", "its sum")
    yield ledger
    plt.close("all")


def test_bytes_by_sender_and_round(ledger):
    display = LedgerDisplay.from_estimator(ledger)
    assert display.rounds.tolist() == [1, 2, 3, 4]
    assert {name: v.tolist() for name, v in display.n_bytes.items()} == {
        "north": [100, 10, 0, 30],
        "south": [2, 2, 0, 2],
        "coordinator": [5, 5, 0, 5],
    }
    tops = [bar.get_y() + bar.get_height() for bar in display.bars_["coordinator"]]
    assert tops == [107, 17, 0, 37]
    assert display.ax_.get_ylabel() == "bytes sent"


def test_from_estimator(ledger):
    class Learner(BaseEstimator):
        def fit(self, X=None):
            self.ledger_ = ledger
            return self

    _, ax = plt.subplots()
    display = LedgerDisplay.from_estimator(Learner().fit(), ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    with pytest.raises(NotFittedError):
        LedgerDisplay.from_estimator(Learner())


def test_a_ledger_without_messages_is_refused():
    with pytest.raises(ValueError, match="no messages"):
        LedgerDisplay.from_estimator(Ledger())
