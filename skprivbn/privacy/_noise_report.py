"""How much of a private result is noise, in words and numbers that cost no privacy.

Everything here is computed of noisy numbers and public scales: post-processing.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from skprivbn.privacy._composition import public_delta
from skprivbn.privacy._options import delta_of, warn_of_fit
from skprivbn.utils import import_optional

#: noise that is worth a word: as a share of what it was added to, in the middle
_MUCH = 0.1
#: what a delta has to leave of the noise to be worth a word
_WORTH = 2 / 3
#: more than 64-bit counts hold
_MOST_ROWS = 2.0**63


class NoisyNumber(NamedTuple):
    """A released number, or a function of released numbers, and its noise.

    Attributes
    ----------
    what : str
        In plain words.
    value : float
        As released, with noise.
    std : float
        Standard deviation of the noise on it.
    share : float
        The same relative to the value, or to a standard deviation of the rows if the
        value may be near zero.
    """

    what: str
    value: float
    std: float
    share: float


def noisy_number(what: str, value: float, std: float, scale: float | None = None):
    """Return a number with its noise, as a share of a scale (default: its size)."""
    # Python's floats: a share beyond them is infinite, and no warning of NumPy's
    value, std = float(value), float(std)
    scale = abs(value) if scale is None else float(scale)
    share = std / scale if scale > 0 else math.inf
    return NoisyNumber(what, value, std, share)


@dataclass(frozen=True)
class NoiseReport:
    """Effect of the noise of a private fit on its result.

    The attribute ``noise_report_`` of every estimator that was fitted with `epsilon`.
    Computed from noisy numbers and public scales only: it costs no privacy.

    Parameters
    ----------
    kind : {"laplace", "gaussian", "gumbel"}
        Distribution of the noise.
    epsilon, delta : float
        Guarantee of the noise.
    protects : {"rows", "individuals", "values"}
        Whom it hides: a row, all rows of a person, or the values of one record.
    std : float
        Standard deviation of the noise on a sum, in rows: what one row adds is at most
        1. NaN where no sums are released.
    numbers : tuple of NoisyNumber
        What was released, or follows from it, with its noise.
    suggested_delta : float or None
        A delta that would reduce Laplace noise.
    delta_share : float or None
        Share of the noise that would remain.
    warnings : tuple of str
        Warnings of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.preprocessing import FederatedStandardScaler
    >>> X = np.random.default_rng(0).normal(size=(5000, 1))
    >>> scaler = FederatedStandardScaler(epsilon=1.0, bounds=(-5, 5)).fit(X)
    >>> report = scaler.noise_report_
    >>> [number.what for number in report.numbers]
    ['number of rows', "mean of 'x0'", "variance of 'x0'"]
    >>> round(report.std, 2)
    4.24
    """

    kind: str
    epsilon: float
    delta: float
    protects: str
    std: float
    numbers: tuple[NoisyNumber, ...] = ()
    suggested_delta: float | None = None
    delta_share: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Median of the shares of the numbers, NaN without any."""
        shares = [number.share for number in self.numbers]
        return float(np.median(shares)) if shares else math.nan

    def to_frame(self) -> Any:
        """Return the numbers as a DataFrame: `what`, `value`, `std` and `share`."""
        pandas = import_optional("pandas", "to_frame")
        return pandas.DataFrame(list(self.numbers), columns=NoisyNumber._fields)

    def __repr__(self):
        guarantee = f"epsilon={self.epsilon:g}"
        guarantee += f", delta={self.delta:g}" if self.delta else ""
        lines = [f"{self.kind.capitalize()} noise, {guarantee}, hides {self.protects}"]
        width = max((len(number.what) for number in self.numbers), default=0)
        lines += [
            f"  {n.what:<{width}}  {n.value:12,.4g}  +- {n.std:.3g} ({n.share:.1%})"
            for n in self.numbers
        ]
        return "\n".join([*lines, *self.warnings])


def report_noise(
    estimator: Any,
    noise: Any,
    protects: str,
    std: float,
    numbers: Iterable[NoisyNumber] = (),
    warnings: Iterable[str] = (),
    *,
    n_rows: float = math.nan,
    std_with: Callable[[float], float] | None = None,
    decisive: NoisyNumber | None = None,
) -> None:
    """Set ``noise_report_`` of an estimator, and warn of what it has to warn of.

    Parameters
    ----------
    estimator : estimator
        Fitted, with `epsilon`.
    noise : CountMechanism, DistributedNoise or ChoiceNoise
        Says of which kind it is; the guarantee is the estimator's.
    protects : {"rows", "individuals", "values"}
    std : float
        Standard deviation of the noise on a sum, in rows.
    numbers : iterable of NoisyNumber
    warnings : iterable of str
        Of noisy numbers and public scales.
    n_rows : float
        Noisy, or public, number of rows.
    std_with : callable, default=None
        From a delta to the standard deviation that the noise would have with it.
    decisive : NoisyNumber, default=None
        On which the others depend: much noise on it alone is worth a word.
    """
    numbers, said, delta, share = tuple(numbers), list(warnings), None, None
    if delta_of(estimator) == 0 and std_with is not None and std > 0:
        delta, share = _suggest_delta(n_rows, std, std_with)
    report = NoiseReport(
        noise.kind,
        float(estimator.epsilon),
        float(delta_of(estimator)),
        protects,
        float(std),
        numbers,
        delta,
        share,
    )
    much = report.share >= _MUCH or (decisive is not None and decisive.share >= _MUCH)
    if share is not None and 0 < share <= _WORTH and much:
        said.append(f"delta={delta:g} would cut the noise to {_in_words(share)}")
    for words in said:
        warn_of_fit(estimator, words, UserWarning)
    estimator.noise_report_ = replace(report, warnings=tuple(said))


def _suggest_delta(n_rows, std, std_with):
    """Return a delta, and what it would leave of the noise; None if that does not fit.

    For any number of rows: noise may have made it negative, huge or NaN.
    """
    # a number that is NaN is no larger than 1
    delta = public_delta(min(max(1.0, float(n_rows)), _MOST_ROWS))
    try:
        return delta, std_with(delta) / std
    except ValueError:  # noise that counts have no room for
        return None, None


def _in_words(share):
    """Return a share below one as people say it."""
    words = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 10: "a tenth"}
    nearest = min(words, key=lambda n: abs(math.log(share * n)))
    if abs(math.log(share * nearest)) < 0.12:
        return words[nearest]
    return f"{share:.0%}"
