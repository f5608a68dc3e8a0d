"""Write the three files of the README: invented stays, as hospitals export them.

Each hospital has another order of columns, missing values are empty cells, -9 or
"unknown", and one file has an extra column.
"""

from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = Path(__file__).parent
ORDERS = {
    "north": ["age", "sex", "smoker", "diabetes", "bmi", "pressure", "stroke", "days"],
    "south": ["sex", "age", "bmi", "pressure", "smoker", "diabetes", "days", "stroke"],
    "west": ["id", "stroke", "days", "diabetes", "smoker", "sex", "age", "bmi"]
    + ["pressure"],
}


def stays(n_rows, rng):
    """Draw stays: what depends on what is what the README finds."""
    sex = rng.integers(2, size=n_rows)
    smoker = rng.random(n_rows) < np.where(sex, 0.45, 0.2)
    diabetes = rng.random(n_rows) < 0.3
    stroke = rng.random(n_rows) < 0.05 + 0.2 * smoker + 0.25 * diabetes
    age = rng.normal(64, 12, n_rows)
    bmi = rng.normal(25, 2.5, n_rows) + 5 * diabetes
    pressure = 70 + 0.5 * age + 1.2 * bmi + rng.normal(0, 7, n_rows)
    days = 4 + 6 * stroke + rng.gamma(4, 0.6, n_rows)
    words = {"smoker": smoker, "diabetes": diabetes, "stroke": stroke}
    return pd.DataFrame(
        {"id": rng.integers(10**6, size=n_rows), "sex": np.where(sex, "m", "f")}
        | {name: np.where(values, "yes", "no") for name, values in words.items()}
        | {"age": age.round(), "bmi": bmi.round(1), "pressure": pressure.round()}
        | {"days": days.round(1)}
    ).astype(object)


def main():
    rng = np.random.default_rng(7)
    sizes, gaps = {"north": 420, "south": 310, "west": 270}, {"north": "", "south": -9}
    for name, columns in ORDERS.items():
        table = stays(sizes[name], rng)[columns]
        holes = rng.random(table.shape) < 0.02
        table = table.mask(holes, gaps.get(name, "unknown"))
        table.to_csv(FOLDER / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
