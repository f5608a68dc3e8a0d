"""What k permitted fits tell a hostile researcher: pairs that differ by one patient.

Run with ``python benchmarks/study_pairs_of_fits.py`` (two minutes; ``--seed 1`` for
other patients). Three hospitals of 400 patients, real sites in one process, with the
recommended site file. Four attacks, none of which knows any patient beforehand:

- starts of a mixture: one step of EM from two sharp components, whose border moves a
  little from fit to fit. Weights and means, times the number of rows, are sums over a
  half-space; two of them that differ by one patient tell the whole row of that patient.
- starts of 12 components: the same with eleven borders in each fit.
- soft borders: of the eleven borders, some have one patient within the width that the
  components leave, who belongs to both in part. All others count as whole numbers: the
  fraction of a component's weight is that patient's part, and the fraction of a sum of
  ages, which have one decimal, tells the age. One fit, no pair.
- edges of bins: the same border as the edge between two bins of one column. A scaler of
  the bins and a regression of another column on them, two fits for each edge, tell that
  column of a patient.

A line is one attack after so many fits:

- alone: patients who are the only ones between two neighbouring borders, or whom the
  fractions of one soft border seem to tell;
- read: those of them whose values are told, to four digits;
- read of rounded: the same if results had four significant digits;
- error of rounded: median, as a share, of the value that is then known worst;
- ended by: what the sites said to the next fit; nothing if the attack was over.
"""

import argparse
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _record import record

from skprivbn.exceptions import PartyError
from skprivbn.mixed_model import PrivateGLMMRegressor
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.preprocessing import FederatedKBinsDiscretizer, FederatedStandardScaler

# the hospitals stand with the tests
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.federation.site.study import COMPLETE, NAMES, make_patients, open_study

N_ROWS, DIGITS = 400, 4
#: borders after which it is counted what is known, beside all
COUNTED = (2, 10, 40)
#: distance of the borders of many components, and how sharp soft ones are
GAP, SOFT = 0.35, 3e4
#: errors of sums that are told
ROUNDING = 1e-5
#: what everybody knows of COMPLETE: limits and decimals of values, and about the mean
#: and the spread of each column
KNOWN = ((18, 99, 0.1), (40, 200, 1), (20, 150, 1), (3, 40, 0.1))
CENTRE, SCALE = np.array([64.0, 120.0, 85.0, 7.0]), np.array([15.0, 20.0, 15.0, 3.0])


def patients(columns, seed):
    """Return the rows of all hospitals, which the attacks are to find."""
    tables = [make_patients(N_ROWS, [seed, place]) for place in range(len(NAMES))]
    rows = [np.column_stack([table[name] for name in columns]) for table in tables]
    return np.vstack(rows).astype(np.float64)


def components(rows, border, direction, n_components=2, sharpness=1e6):
    """Return weights and means of components side by side, after one step of EM.

    The borders between them are `GAP` apart, and the middle one moves.
    """
    gap = 2.0 if n_components == 2 else GAP
    places = border + gap * (np.arange(n_components) - (n_components - 1) / 2)
    mixture = PPEMGaussianMixture(
        n_components,
        covariance_type="diag",
        max_iter=1,
        means_init=CENTRE + places[:, np.newaxis] * direction * SCALE,
        weights_init=np.full(n_components, 1 / n_components),
        precisions_init=np.tile(sharpness / SCALE**2, (n_components, 1)),
    ).fit(rows)
    return np.column_stack([mixture.weights_, mixture.means_])


def beyond(numbers):
    """Return numbers of rows and sums beyond each border, from shares and means."""
    sums = numbers[:, :1] * len(NAMES) * N_ROWS
    sums = np.hstack([sums, sums * numbers[:, 1:]])
    return np.cumsum(sums[::-1], axis=0)[-2::-1]


def read_fractions(numbers):
    """Return the rows that the fractions of sums beyond each border tell."""
    found = []
    for count, *sums in beyond(numbers):
        part = count - np.floor(count)
        row = []
        for total, (low, high, unit) in zip(sums, KNOWN):
            values = np.arange(round(low / unit), round(high / unit) + 1)
            off = (values * part - total / unit) % 1.0
            fits = np.minimum(off, 1 - off) < ROUNDING
            row += [values[fits][0] * unit] if fits.sum() == 1 else []
        if ROUNDING < part < 1 - ROUNDING and len(row) == len(KNOWN):
            found.append(row)
    return np.array(found).reshape(-1, len(KNOWN))


def beyond_edge(rows, edge):
    """Return the share and the mean age of rows beyond an edge of two bins."""
    bins = FederatedKBinsDiscretizer(
        2, strategy="uniform", bounds=(edge - 100, edge + 100)
    )
    binned = bins.fit(rows).transform(rows)
    share = FederatedStandardScaler().fit(binned).mean_
    model = PrivateGLMMRegressor().fit(binned, y="age")
    return np.array([[0.0, 0.0], [share[0], (model.intercept_ + model.coef_).item()]])


def attack(ask, borders):
    """Return what is told of each border until sites refuse, and what they say."""
    told = []
    for border in borders:
        try:
            told.append(ask(border))
        except PartyError as error:
            return told, error.code
    return told, None


def rounded(numbers):
    """Return numbers with four significant digits."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"))(numbers)


def errors_of(told, places, borders, truth):
    """Return relative errors of what differences tell of rows between two borders.

    Of those that are alone there: the largest error of all values of each.
    """
    sums, errors = np.stack([beyond(numbers)[:, 1:] for numbers in told]), []
    n_borders = sums.shape[1]
    away = GAP * (np.arange(n_borders) - (n_borders - 1) / 2)
    for j, off in enumerate(away):
        ends = np.array(borders) + off
        for first, second, low, high in zip(sums[:, j], sums[1:, j], ends, ends[1:]):
            inside = (low < places) & (places <= high)
            if inside.sum() == 1:
                row = truth[inside][0]
                errors.append(np.max(np.abs(first - second - row) / row))
    return np.array(errors)


def measure(name, fits_of_border, ask, borders, places, truth):
    """Return a line for each number of fits."""
    told, code = attack(ask, borders)
    lines = []
    for n in [*(n for n in COUNTED if n < len(told)), len(told)]:
        exact = errors_of(told[:n], places, borders, truth)
        blunted = errors_of(list(map(rounded, told[:n])), places, borders, truth)
        line = {
            "alone": len(exact),
            "read": np.sum(exact < 10.0**-DIGITS),
            "read of rounded": np.sum(blunted < 10.0**-DIGITS),
            "error of rounded": np.median(blunted) if len(blunted) else None,
        }
        ended = code if n == len(told) else None
        fits = n * fits_of_border
        lines.append({"attack": name, "fits": fits, **line, "ended by": ended})
    return lines


def measure_soft(ask, borders, truth):
    """Return a line for each number of fits with soft borders."""
    told, code = attack(ask, borders)
    lines = []
    for n in [*(n for n in (1, *COUNTED) if n < len(told)), len(told)]:

        def count(numbers_of, n=n):
            rows = np.unique(np.vstack(list(map(numbers_of, told[:n]))), axis=0)
            same = np.abs(rows[:, np.newaxis] - truth).max(axis=2, initial=0) < 1e-6
            return len(rows), np.count_nonzero(same.any(axis=1))

        (alone, read), (_, few) = (
            count(read_fractions),
            count(lambda x: read_fractions(rounded(x))),
        )
        line = {"alone": alone, "read": read, "read of rounded": few}
        ended = code if n == len(told) else None
        line |= {"error of rounded": None, "ended by": ended}
        lines.append({"attack": "soft borders", "fits": n, **line})
    return lines


def main():
    """Attack, print what was read and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=200, help="borders of one attack")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, most, seed = np.random.default_rng(options.seed), options.most, options.seed
    direction = rng.normal(size=len(COMPLETE))
    direction /= np.linalg.norm(direction)
    X = patients(COMPLETE, seed)
    days, ages = patients(["los"], seed)[:, 0], patients(["age"], seed)
    places, borders = (X - CENTRE) / SCALE @ direction, 0.002 * np.arange(most)
    lines = []
    for name, n in (("starts of a mixture", 2), ("starts of 12 components", 12)):
        with tempfile.TemporaryDirectory() as folder:
            rows = open_study(Path(folder), N_ROWS, seed).rows(COMPLETE)
            ask = partial(components, rows, direction=direction, n_components=n)
            lines += measure(name, 1, ask, borders, places, X)
    with tempfile.TemporaryDirectory() as folder:
        rows = open_study(Path(folder), N_ROWS, seed).rows(COMPLETE)
        ask = partial(
            components, rows, direction=direction, n_components=12, sharpness=SOFT
        )
        lines += measure_soft(ask, borders, X)
    with tempfile.TemporaryDirectory() as folder:
        rows = open_study(Path(folder), N_ROWS, seed).rows(["los"])
        lines += measure(
            "edges of bins",
            2,
            lambda edge: beyond_edge(rows, edge),
            # days have one decimal
            11.05 + 0.1 * np.arange(most),
            days,
            ages,
        )
    for line in lines:
        print(*line.values(), sep=" | ")
    print("kept in", record("pairs_of_fits", lines))


if __name__ == "__main__":
    main()
