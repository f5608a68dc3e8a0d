"""What the pages of the console show, read off the files of a site."""

import math
from dataclasses import dataclass
from datetime import datetime

from skprivbn.federation.flare._health import approvals_of, look_at_kit
from skprivbn.federation.flare._policy import SITE_FILE
from skprivbn.federation.site._account import spent_epsilon
from skprivbn.federation.site._audit import plain, read_audit
from skprivbn.federation.site._explained import explain_lines
from skprivbn.federation.site._file import SiteFile
from skprivbn.federation.site._state import SiteState

#: bars of a chart
MAX_BARS = 40
#: size of a chart, in pixels
WIDTH, HEIGHT = 640, 120


def read_questions(kit):
    """Return the questions that wait, by number."""
    return _plain(approvals_of(kit).waiting())


def _plain(value):
    """Return what somebody else wrote without marks that turn text around."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return plain(value) if isinstance(value, str) else value


def read_log(kit):
    """Return records, the last first, problems of the chain, and the last hash."""
    path = SiteFile.load(kit / "local" / SITE_FILE).audit_log
    if not path.exists():
        return [], [], None
    records, problems, last = read_audit(path)
    return records[::-1], problems, last


def read_site_file(kit):
    """Return lines of the site file and what they mean."""
    text = (kit / "local" / SITE_FILE).read_text(encoding="utf-8-sig")
    return list(explain_lines(text))


def read_health(kit):
    """Return (name, is it well, words) of what is looked at, data apart."""
    return look_at_kit(kit)


@dataclass
class Chart:
    """What was spent or told so far, a bar after each answer.

    Attributes
    ----------
    title : str
    total, limit : float
        Spent so far, and at most; `limit` is infinite if there is none.
    bars : list of (x, y, width, height, title)
        In pixels.
    share : int
        Percent of the limit that is spent.
    """

    title: str
    total: float
    limit: float
    bars: list
    share: int

    @property
    def has_limit(self):
        """Whether there is a limit."""
        return math.isfinite(self.limit)

    @property
    def summary(self):
        """The total in words."""
        most = f" of {self.limit:g}" if math.isfinite(self.limit) else ""
        return f"{self.total:.3g}{most}"


def draw(title, steps, limit):
    """Draw totals over time.

    Parameters
    ----------
    title : str
    steps : list of (str, float, str)
        Time, total after it, and words.
    limit : float

    Returns
    -------
    chart : Chart
    """
    steps = steps[-MAX_BARS:]
    total = steps[-1][1] if steps else 0.0
    top = limit if math.isfinite(limit) else max(total, 1.0)
    width = WIDTH / max(len(steps), 12)
    bars = []
    for i, (at, value, words) in enumerate(steps):
        height = max(HEIGHT * min(value / top, 1.0), 1.0)
        when = datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")
        place = round(i * width, 1), round(HEIGHT - height, 1)
        size = round(0.8 * width, 1), round(height, 1)
        bars.append((*place, *size, f"{when}: {value:.3g} after {words}"))
    share = round(100 * min(total / top, 1.0)) if math.isfinite(limit) else 0
    return Chart(title, total, limit, bars, share)


def read_budgets(kit):
    """Return the charts of each dataset, by name."""
    site_file = SiteFile.load(kit / "local" / SITE_FILE)
    return {
        name: list(_charts(dataset)) for name, dataset in site_file.datasets.items()
    }


def _charts(dataset):
    with SiteState.copy_for(dataset) as state:
        noisy, exact = (
            [c for c in state.charges(dataset.account, kind) if c["is_charged"]]
            for kind in ("noisy", "exact")
        )
        _, contents = state.contents(dataset.account)
    if dataset.budget is not None:
        totals = [
            (charge["at"], spent_epsilon(dataset, noisy[: i + 1]), _what(charge))
            for i, charge in enumerate(noisy)
        ]
        yield draw("epsilon spent", totals, dataset.budget[0])
    told, steps = 0, []
    for charge in exact:
        if charge["version"] == dataset.version:
            told += charge["numbers"]
            steps.append((charge["at"], told, _what(charge)))
    n_rows = [
        content["sketch"]["n_rows"]
        for content in contents
        if content["version"] == dataset.version
    ]
    # rows are counted with the first exact question
    most = dataset.max_exact_numbers * max(n_rows) if n_rows else math.inf
    yield draw(f"exact numbers told of version {dataset.version}", steps, most)


def _what(charge):
    return charge["what"].rpartition(".")[2]
