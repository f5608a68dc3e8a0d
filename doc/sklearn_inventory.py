"""An index of the pages of scikit-learn that ours point to.

Sphinx usually downloads such an index. Building without network needs one that is
here already, and the few names below are all we use. A missing name shows up as a
warning, which the build treats as an error.
"""

import zlib

CLASSES_AND_FUNCTIONS = [
    "base.BaseEstimator",
    "base.clone",
    "cluster.KMeans",
    "compose.make_column_selector",
    "datasets.load_iris",
    "datasets.make_blobs",
    "decomposition.PCA",
    "mixture.GaussianMixture",
    "model_selection.GridSearchCV",
    "model_selection.LeaveOneGroupOut",
    "pipeline.Pipeline",
    "preprocessing.KBinsDiscretizer",
    "preprocessing.OrdinalEncoder",
    "preprocessing.StandardScaler",
    "utils.Bunch",
]

# label, page, title
LABELS = [
    (
        "df_output_transform",
        "auto_examples/miscellaneous/plot_set_output.html",
        "Introducing the set_output API",
    ),
    ("metadata_routing", "metadata_routing.html#metadata-routing", "Metadata Routing"),
    (
        "sphx_glr_auto_examples_miscellaneous_plot_set_output.py",
        "auto_examples/miscellaneous/plot_set_output.html",
        "Introducing the set_output API",
    ),
]

TERMS = [
    "array-like",
    "cross-validation splitter",
    "estimator",
    "meta-estimator",
    "random_state",
    "scorer",
]


def write_inventory(path):
    """Write the index in the format of Sphinx's objects.inv and return its path."""
    lines = []
    for name in CLASSES_AND_FUNCTIONS:
        role = "class" if name.rpartition(".")[2][0].isupper() else "function"
        page = f"modules/generated/sklearn.{name}.html"
        lines.append(f"sklearn.{name} py:{role} 1 {page}#sklearn.{name} -")
    lines += [f"{label} std:label -1 {page} {title}" for label, page, title in LABELS]
    for term in TERMS:
        anchor = term.replace(" ", "-")
        lines.append(f"{term} std:term -1 glossary.html#term-{anchor} -")
    header = (
        "# Sphinx inventory version 2\n"
        "# Project: scikit-learn\n"
        "# Version: stable\n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join([*lines, ""]).encode()
    path.write_bytes(header.encode() + zlib.compress(body))
    return path
