"""The paper's Table 1: likelihoods, iterations and times of 39 data sets.

Run with ``python benchmarks/bench_ppem_table_1.py [--most-iterations 100]``. The
paper's own data, start, update and stopping rule, with 2, 6 and 10 clients: 117 rows.
FEM is federated EM without a cipher (three minutes), PPEM adds CKKS, of data sets with
at most so many iterations (two minutes for 100, half an hour for all). The paper
measures both in "ticks" of its own machine, so that ratios of the two can be compared,
and times cannot. Rows are stored one by one, in the place of earlier ones; PPEM that
was measured earlier is kept.
"""

import argparse
import time
import warnings

import numpy as np
from _record import read, record

from skprivbn.mixture import PPEMGaussianMixture

CLIENTS = 2, 6, 10
# n, k: log-likelihood, iterations, ticks of FEM and of PPEM by number of clients
PAPER = {
    (200, 2): (-685.275, 52, (0.703, 0.562, 0.833), (69.812, 195.448, 325.358)),
    (200, 3): (-839.393, 134, (1.504, 2.438, 2.651), (184.353, 518.811, 849.381)),
    (200, 4): (-821.071, 92, (1.54, 1.717, 2.102), (132.292, 369.971, 605.782)),
    (200, 5): (-912.215, 180, (2.477, 3.442, 5.038), (269.087, 764.005, 1258.293)),
    (200, 6): (-962.493, 146, (2.877, 3.505, 6.042), (225.755, 631.135, 1030.984)),
    (1100, 2): (-3853.107, 184, (6.393, 7.883, 7.11), (248.166, 684.927, 1118.505)),
    (1100, 3): (-4285.445, 81, (4.714, 4.411, 5.046), (114.819, 316.279, 514.523)),
    (1100, 4): (-4606.801, 62, (4.442, 4.809, 4.336), (91.017, 251.041, 411.394)),
    (1100, 5): (
        -5092.974,
        316,
        (23.691, 25.008, 29.449),
        (488.138, 1334.075, 2180.295),
    ),
    (1100, 6): (-5449.522, 500, (43.064, 43.549, 43.999), (799.13, 2185.977, 3571.023)),
    (2000, 2): (-7046.019, 188, (8.735, 9.057, 9.534), (257.923, 706.403, 1155.559)),
    (2000, 3): (-7844.166, 142, (9.629, 10.038, 10.528), (204.749, 555.569, 908.755)),
    (2000, 4): (-8427.783, 98, (9.247, 9.162, 9.833), (148.813, 403.987, 654.837)),
    (2000, 5): (-9321.779, 500, (59.89, 57.836, 59.684), (792.812, 2142.922, 3483.985)),
    (2000, 6): (-9590.976, 500, (64.804, 68.354, 71.741), (860.832, 2188.58, 3557.217)),
    (2900, 2): (
        -10200.346,
        316,
        (20.293, 20.798, 21.564),
        (394.18, 1173.492, 1912.396),
    ),
    (2900, 3): (-11361.236, 183, (17.542, 17.974, 18.74), (265.227, 712.645, 1155.797)),
    (2900, 4): (-12202.963, 85, (11.474, 11.346, 11.708), (128.46, 346.489, 560.504)),
    (2900, 5): (-12849.743, 360, (62.264, 57.882, 60.262), (572.1, 1507.571, 2739.166)),
    (2900, 6): (
        -13897.603,
        500,
        (98.11, 96.091, 99.379),
        (718.095, 2003.693, 3052.369),
    ),
    (3800, 2): (-13452.228, 282, (23.673, 24.758, 24.809), (321.929, 855.237, 1386.65)),
    (3800, 3): (
        -14983.354,
        197,
        (24.547, 24.883, 25.746),
        (232.821, 622.494, 1008.962),
    ),
    (3800, 4): (
        -16081.152,
        203,
        (33.368, 33.898, 34.862),
        (254.223, 669.794, 1084.023),
    ),
    (3800, 5): (
        -16929.679,
        291,
        (58.958, 67.247, 62.389),
        (383.993, 1004.027, 1626.837),
    ),
    (4700, 2): (-16641.217, 180, (18.835, 18.853, 19.448), (203.34, 545.521, 884.329)),
    (4700, 3): (-18535.617, 124, (21.334, 23.452, 20.861), (149.073, 395.199, 638.994)),
    (4700, 4): (-19893.635, 92, (18.184, 18.396, 19.022), (118.213, 306.882, 493.189)),
    (4700, 5): (
        -21990.205,
        500,
        (120.72, 134.129, 131.067),
        (683.54, 1747.585, 2818.247),
    ),
    (5600, 2): (-19766.288, 195, (22.787, 23.131, 23.585), (222.804, 593.78, 961.726)),
    (5600, 3): (-22021.374, 181, (31.216, 31.824, 32.14), (222.385, 580.194, 938.742)),
    (5600, 4): (-23635.158, 151, (34.826, 35.31, 36.215), (198.462, 507.595, 817.973)),
    (6500, 2): (
        -22937.709,
        356,
        (54.907, 55.07, 56.285),
        (412.297, 1082.207, 1755.912),
    ),
    (6500, 3): (-25559.145, 204, (46.58, 42.592, 42.982), (254.718, 656.683, 1057.657)),
    (7400, 2): (-26162.33, 349, (55.401, 55.578, 56.433), (414.751, 1081.33, 1747.054)),
    (7400, 3): (-29152.201, 153, (36.154, 36.235, 37.512), (197.151, 501.202, 806.996)),
    (8300, 2): (-29361.698, 344, (60.25, 59.846, 61.546), (415.72, 1058.735, 1712.621)),
    (8300, 3): (-32716.3, 159, (40.898, 41.889, 42.161), (206.822, 520.217, 831.673)),
    (9200, 2): (
        -32523.923,
        422,
        (87.873, 87.733, 89.209),
        (508.324, 1310.76, 2107.598),
    ),
    (9200, 3): (
        -36243.374,
        417,
        (131.225, 133.811, 135.927),
        (551.847, 1372.212, 2197.736),
    ),
}


def make_rows(n, k):
    """Return the paper's data: unit Gaussians at 0, 5, 10, ... in two dimensions."""
    rng = np.random.RandomState(42)
    return np.vstack([rng.randn(n // k, 2) + 5 * i for i in range(k)])


def fit(n, k, clients, backend):
    X = make_rows(n, k)
    mixture = PPEMGaussianMixture(
        k,
        init_params="paper",
        covariance_update="paper",
        key_rotation="iteration",
        random_state=42,
        tol=1e-5 / len(X),
        max_iter=501,
        reg_covar=0,
        backend=backend,
    )
    start = time.process_time()
    mixture.fit(X, party=np.arange(len(X)) % clients)
    return mixture, time.process_time() - start


def measure(n, k, place, with_ckks):
    """Return a row of the table; PPEM's times are none without CKKS."""
    likelihood, n_iter, fem, ppem = PAPER[n, k]
    mixture, plain_seconds = fit(n, k, CLIENTS[place], "plaintext")
    seconds = np.nan
    if with_ckks:
        mixture, seconds = fit(n, k, CLIENTS[place], "ckks")
    found = mixture.lower_bound_ * (n // k * k)
    return {
        "n": n,
        "k": k,
        "clients": CLIENTS[place],
        "log-likelihood": found,
        "difference from the paper's": found - likelihood,
        # the paper evaluates after the update, and counts one less
        "iterations": mixture.n_iter_ - 1,
        "paper's iterations": n_iter,
        "FEM seconds": plain_seconds,
        "PPEM seconds": seconds,
        "PPEM / FEM": seconds / plain_seconds,
        "paper's PPEM / FEM": ppem[place] / fem[place],
    }


def main(most_iterations):
    """Measure row by row, and store after each."""
    warnings.simplefilter("ignore")  # two parties hide nothing from each other
    stored = (read("ppem_table_1") or {"rows": []})["rows"]
    rows = {(row["n"], row["k"], row["clients"]): row for row in stored}
    for place, clients in enumerate(CLIENTS):
        for (n, k), (_, n_iter, *_) in PAPER.items():
            case, with_ckks = (n, k, clients), n_iter <= most_iterations
            if with_ckks or not rows.get(case, {}).get("PPEM seconds"):
                rows[case] = measure(n, k, place, with_ckks)
            print(rows[case], flush=True)
            record("ppem_table_1", [rows[case] for case in sorted(rows)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most-iterations", type=int, default=501, help="with CKKS")
    main(parser.parse_args().most_iterations)
