"""Small fixed inputs, as several parties hold them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from skprivbn.partition import HorizontalPartition, VerticalPartition


@dataclass(frozen=True)
class Data:
    """What goes into a fit, and what the fitted estimator is asked about."""

    rows: tuple
    metadata: dict = field(default_factory=dict)
    #: rows or columns of several holders, to score
    partition: Any = None
    #: metadata of predictions
    asked: dict = field(default_factory=dict)
    #: rows to predict and transform; what was fitted if None
    shown: Any = None


def blobs():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]])
    X = np.vstack([centre + rng.normal(size=(30, 2)) for centre in centres])
    party = np.array(["north", "south", "west"])[rng.integers(3, size=len(X))]
    order = rng.permutation(len(X))
    X, party = X[order], party[order]
    return rows_of(X, party)


def blobs_with_gaps():
    (X,), party = BLOBS.rows, BLOBS.metadata["party"]
    X = X.copy()
    X[::4, 0] = X[1::5, 1] = np.nan
    return rows_of(X, party)


def rows_of(X, party, **aligned):
    partition = HorizontalPartition.from_rows(X, party, **aligned)
    return Data((X,), {"party": party, **aligned}, partition)


def linear_rows(n_rows=150):
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(n_rows, 4))
    X = noise.copy()
    X[:, 1] += 1.5 * X[:, 0]
    X[:, 2] -= 1.2 * X[:, 0]
    X[:, 3] += 1.1 * X[:, 1] + 0.9 * X[:, 2]
    return X + [1.0, -2.0, 0.5, 3.0]


def blobs_of_people():
    """Blobs whose rows are 30 people's, each with all rows at one party."""
    (X,) = BLOBS.rows
    person = np.arange(len(X)) % 30
    return rows_of(X, np.array(["a", "b", "c"])[person % 3], individual=person)


def sem(units=1.0):
    X = linear_rows() * units
    return rows_of(X, np.array(["a", "b", "c"])[np.arange(len(X)) % 3])


def sem_columns():
    frame = pd.DataFrame(linear_rows(60), columns=["u", "v", "w", "z"])
    blocks = {"left": frame[["u", "w"]], "right": frame[["v", "z"]]}
    return Data((frame,), {}, VerticalPartition(blocks, order=list(frame.columns)))


def sem_with_keys():
    """Columns of two holders whose records overlap, in another order each."""
    frame = pd.DataFrame(linear_rows(60), columns=["u", "v", "w", "z"])
    here, there = np.arange(0, 55), np.arange(59, 4, -1)
    blocks = {"left": frame[["u", "w"]].iloc[here], "right": frame[["v", "z"]]}
    blocks["right"] = blocks["right"].iloc[there]
    keys = {"left": [f"k{i}" for i in here], "right": [f"k{i}" for i in there]}
    partition = VerticalPartition(
        blocks, order=list(frame.columns), keys=keys, reveal_membership=True
    )
    return Data((partition,), {}, partition, shown=frame)


def time_series():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    for t in range(1, len(X)):
        X[t] += 0.6 * X[t - 1] * (t % 50 > 0)
        X[t, 1] += 1.2 * X[t, 0]
    series = np.repeat([0, 1, 2], 50)
    party = np.array(["a", "b", "c"])[series]
    data = rows_of(X, party, series=series)
    return Data(data.rows, data.metadata, data.partition, {"series": series})


def table(n_rows=120):
    rng = np.random.default_rng(3)
    first = rng.integers(2, size=n_rows)
    second = np.where(rng.random(n_rows) < 0.8, first, 1 - first)
    third = rng.integers(3, size=n_rows)
    fourth = np.where(rng.random(n_rows) < 0.8, (second + third) % 2, third)
    return np.column_stack([first, second, third, fourth])


def discrete_columns():
    X = table()
    blocks = {"hospital": X[:, :2], "lab": X[:, 2:]}
    columns = {"hospital": ["x0", "x1"], "lab": ["x2", "x3"]}
    return Data((X,), {}, VerticalPartition(blocks, columns))


def discrete_columns_with_keys():
    """Three holders of columns, each of whom lacks some records."""
    X, blocks, keys = table(), {}, {}
    held = {"hospital": [0], "lab": [1, 3], "register": [2]}
    rng = np.random.default_rng(5)
    for name, columns in held.items():
        mine = rng.permutation(len(X))[:115]
        blocks[name], keys[name] = X[mine][:, columns], [f"k{i}" for i in mine]
    names = {name: [f"x{j}" for j in columns] for name, columns in held.items()}
    order = [f"x{j}" for j in range(4)]
    partition = VerticalPartition(
        blocks, names, keys=keys, order=order, reveal_membership=True
    )
    return Data((partition,), {}, partition, shown=X)


def labelled_columns():
    frame = pd.DataFrame(table(), columns=["age", "sick", "ward", "test"])
    frame["ward"] = frame["ward"].map(["east", "north", "west"].__getitem__)
    return Data((frame,))


def discrete_rows():
    X = table(300)
    party = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    return rows_of(X, party)


def discrete_rows_with_gaps():
    X = table(300).astype(float)
    X[::7, 1] = X[3::11, 3] = np.nan
    return rows_of(X, np.array(["a", "b", "c"])[np.arange(len(X)) % 3])


def mixed_rows():
    """Two columns of labels and two of numbers that depend on them."""
    rng = np.random.default_rng(6)
    first, second = table(300)[:, :2].T
    third = 2.0 * second + rng.normal(size=300)
    frame = pd.DataFrame({"ward": first, "sick": second, "dose": third})
    frame["days"] = 0.7 * third - first + rng.normal(size=300)
    party = np.array(["a", "b", "c"])[np.arange(300) % 3]
    return rows_of(frame, party)


def patients():
    """Labels, numbers and gaps, as summaries describe them."""
    frame = mixed_rows().rows[0].astype({"ward": object})
    frame["ward"] = frame["ward"].map({0: "east", 1: "west"})
    frame.loc[::9, "dose"] = np.nan
    return rows_of(frame, np.array(["a", "b", "c"])[np.arange(300) % 3])


def one_holder():
    return Data((table(300),))


def people():
    X = table(300)
    party = np.array(["a", "b", "c"])[np.arange(len(X)) % 100 % 3]
    return rows_of(X, party, individual=np.arange(len(X)) % 100)


def centres():
    rng = np.random.default_rng(4)
    X, cluster = rng.normal(size=(240, 2)), np.arange(240) % 8
    log_odds = X @ [1.0, -0.5] + rng.normal(size=8)[cluster]
    y = (rng.random(240) < 1 / (1 + np.exp(-log_odds))).astype(int)
    party = np.array(["a", "b", "c"])[rng.integers(3, size=240)]
    party[cluster == 7] = "a"
    metadata = {"cluster": cluster, "party": party}
    partition = HorizontalPartition.from_rows(X, party, y=y, cluster=cluster)
    return Data((X, y), metadata, partition, {"cluster": cluster})


def amounts():
    data = centres()
    (X, y), metadata = data.rows, data.metadata
    y = X @ [1.0, -0.5] + 0.3 * metadata["cluster"] + y
    partition = HorizontalPartition.from_rows(X, metadata["party"], y=y, **data.asked)
    return Data((X, y), metadata, partition, data.asked)


def counts():
    """Numbers of events of patients who were watched for different times."""
    data = centres()
    (X, _), metadata = data.rows, data.metadata
    rng = np.random.default_rng(7)
    years = rng.uniform(0.5, 2.0, len(X)).round(3)
    effects = rng.normal(scale=0.5, size=8)[metadata["cluster"]]
    rate = np.exp(0.3 + X @ [0.4, -0.2] + effects)
    y, offset = rng.poisson(rate * years), np.log(years)
    asked = {**data.asked, "offset": offset}
    partition = HorizontalPartition.from_rows(X, metadata["party"], y=y, **asked)
    return Data((X, y), {**metadata, "offset": offset}, partition, asked)


def weighted_amounts():
    data = amounts()
    weight = 1.0 + np.arange(240) % 3
    return Data(data.rows, {**data.metadata, "sample_weight": weight})


def crossed_amounts():
    """Rows in clusters of two kinds, neither within the other."""
    data = amounts()
    (X, y), second = data.rows, np.arange(240) // 40
    cluster = np.column_stack([data.metadata["cluster"], second])
    # a spread that is not zero: digits of an estimate of zero are rounding
    y = y + np.array([0.9, -0.7, 0.1, 1.2, -1.5, 0.4])[second]
    return Data((X, y), {**data.metadata, "cluster": cluster})


def classes():
    data = centres()
    return Data(data.rows)


BLOBS, SEM, SEM_COLUMNS, SERIES = blobs(), sem(), sem_columns(), time_series()
SEM_UNITS = sem(np.array([0.1, 1.0, 30.0, 1000.0]))
COLUMNS, LABELS, TABLE, ONE_HOLDER = (
    discrete_columns(),
    labelled_columns(),
    discrete_rows(),
    one_holder(),
)
PEOPLE, CENTRES, AMOUNTS, CLASSES = people(), centres(), amounts(), classes()
BLOBS_WITH_GAPS, BLOBS_OF_PEOPLE = blobs_with_gaps(), blobs_of_people()
SEM_WITH_KEYS, COLUMNS_WITH_KEYS = sem_with_keys(), discrete_columns_with_keys()
GAPPED, MIXED, PATIENTS = discrete_rows_with_gaps(), mixed_rows(), patients()
COUNTS, WEIGHTED, CROSSED = counts(), weighted_amounts(), crossed_amounts()
