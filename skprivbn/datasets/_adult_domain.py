"""The public domain of the Adult data, as codes and labels."""

import json
from importlib.resources import files

import numpy as np

MISSING = "?"


def read_domain():
    """Return categories, columns that may be missing, and cuts of numbers.

    A number belongs to the state after the last cut that it reaches.
    """
    path = files("skprivbn.datasets") / "data" / "adult_domain.json"
    return json.loads(path.read_text(encoding="utf-8"))


def discretize(columns, domain):
    """Turn columns of text into codes, and list the labels of the codes."""
    codes, labels = {}, {}
    for name, column in columns.items():
        if name in domain["cuts"]:
            cuts = domain["cuts"][name]
            codes[name] = np.digitize(column.astype(int), cuts)
            labels[name] = _interval_labels(cuts)
        else:
            labels[name] = list(domain["categories"][name])
            position = {label: i for i, label in enumerate(labels[name])}
            if name in domain["may_be_missing"]:
                position[""] = len(labels[name])
                labels[name].append(MISSING)
            codes[name] = np.array([position[value] for value in column])
    return codes, labels


def _interval_labels(cuts):
    inner = [
        str(low) if high == low + 1 else f"{low}-{high - 1}"
        for low, high in zip(cuts, cuts[1:])
    ]
    return [f"<{cuts[0]}", *inner, f">={cuts[-1]}"]
