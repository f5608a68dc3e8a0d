"""What k permitted fits tell a hostile researcher: pairs that differ by one patient.

Run with ``python benchmarks/study_pairs_of_fits.py`` (two minutes; ``--seed 1`` for
other patients). Three hospitals of 400 patients, real sites in one process, with the
recommended site file. Two attacks, neither of which knows any patient beforehand:

- starts of a mixture: one step of EM from two sharp components, whose border moves a
  little from fit to fit. Weights and means, times the number of rows, are sums over a
  half-space; two of them that differ by one patient tell the whole row of that patient.
- edges of bins: the same border as the edge between two bins of one column. A scaler of
  the bins and a regression of another column on them, two fits for each edge, tell that
  column of a patient.

A line is one attack after so many fits:

- alone: patients who are the only ones between two neighbouring borders;
- read: those of them whose values the differences tell, to four digits;
- read of rounded: the same if results had four significant digits;
- error of rounded: median, as a share, of the value that is then known worst;
- ended by: what the sites said to the next fit; nothing if the attack was over.
"""

import argparse
import sys
import tempfile
import warnings
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
#: what everybody knows of COMPLETE: about the mean and the spread of each column
CENTRE, SCALE = np.array([64.0, 120.0, 85.0, 7.0]), np.array([15.0, 20.0, 15.0, 3.0])


def patients(columns, seed):
    """Return the rows of all hospitals, which the attacks are to find."""
    tables = [make_patients(N_ROWS, [seed, place]) for place in range(len(NAMES))]
    rows = [np.column_stack([table[name] for name in columns]) for table in tables]
    return np.vstack(rows).astype(np.float64)


def beyond_border(rows, border, direction):
    """Return the share and the mean of rows beyond a border, by one step of EM."""
    middle, step = CENTRE + border * direction * SCALE, direction * SCALE
    mixture = PPEMGaussianMixture(
        2,
        covariance_type="diag",
        max_iter=1,
        means_init=np.stack([middle - step, middle + step]),
        weights_init=[0.5, 0.5],
        precisions_init=np.tile(1e6 / SCALE**2, (2, 1)),
    ).fit(rows)
    return np.append(mixture.weights_[1], mixture.means_[1])


def beyond_edge(rows, edge):
    """Return the share and the mean age of rows beyond an edge of two bins."""
    bins = FederatedKBinsDiscretizer(
        2, strategy="uniform", bounds=(edge - 100, edge + 100)
    )
    binned = bins.fit(rows).transform(rows)
    share = FederatedStandardScaler().fit(binned).mean_
    model = PrivateGLMMRegressor().fit(binned, y="age")
    return np.append(share, model.intercept_ + model.coef_)


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
    return np.array([float(f"{x:.{DIGITS}g}") for x in numbers])


def errors_of(told, places, borders, truth):
    """Return relative errors of what differences tell of rows between two borders.

    Of those that are alone there: the largest error of all values of each.
    """
    sums, errors = [numbers[0] * len(truth) * numbers[1:] for numbers in told], []
    for first, second, low, high in zip(sums, sums[1:], borders, borders[1:]):
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
        few_digits = [rounded(numbers) for numbers in told[:n]]
        blunted = errors_of(few_digits, places, borders, truth)
        lines.append(
            {
                "attack": name,
                "fits": n * fits_of_border,
                "alone": len(exact),
                "read": np.sum(exact < 10.0**-DIGITS),
                "read of rounded": np.sum(blunted < 10.0**-DIGITS),
                "error of rounded": np.median(blunted) if len(blunted) else None,
                "ended by": code if n == len(told) else None,
            }
        )
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
    with tempfile.TemporaryDirectory() as folder:
        rows = open_study(Path(folder), N_ROWS, seed).rows(COMPLETE)
        lines = measure(
            "starts of a mixture",
            1,
            lambda border: beyond_border(rows, border, direction),
            0.002 * np.arange(most),
            (X - CENTRE) / SCALE @ direction,
            X,
        )
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
