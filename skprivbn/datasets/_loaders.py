"""Data and networks from the literature, shipped with the package."""

import csv
import gzip
import io
import json
from importlib.resources import files

import numpy as np
from sklearn.utils import Bunch

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.utils import import_optional
from skprivbn.utils._sklearn import StrOptions, validate_params


@validate_params({"as_frame": ["boolean"]})
def load_sachs(*, as_frame: bool = False) -> Bunch:
    """Load the protein signalling data of Sachs et al. with the consensus network.

    Concentrations of 11 phosphorylated proteins and lipids in 853 human immune
    cells, observed without intervention, and the 17 edges that biologists agree
    on.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame.

    Returns
    -------
    sachs : Bunch
        Dictionary-like object with attributes:

        data : ndarray or DataFrame of shape (853, 11)
            The concentrations, not transformed.
        feature_names : list of str
            Names of the columns.
        adjacency_matrix : ndarray of shape (11, 11), dtype=bool
            The consensus network; ``adjacency_matrix[i, j]`` means that column i
            acts on column j.
        edges : list of (str, str)
            The same as pairs of names.
        frame : DataFrame of shape (853, 11) or None
            Only with ``as_frame=True``.
        DESCR : str
            Description, source and licence.

    See Also
    --------
    make_linear_sem : Simulated data with a known network.

    Examples
    --------
    >>> from skprivbn.datasets import load_sachs
    >>> sachs = load_sachs()
    >>> sachs.data.shape, len(sachs.edges)
    ((853, 11), 17)
    """
    names, rows = _read_rows("sachs.csv")
    edges = [(source, target) for source, target in _read_rows("sachs_truth.csv")[1]]
    adjacency = np.zeros((len(names), len(names)), dtype=bool)
    for source, target in edges:
        adjacency[names.index(source), names.index(target)] = True
    data = np.array(rows, dtype=float)
    frame = _frame(dict(zip(names, data.T))) if as_frame else None
    return Bunch(
        data=data if frame is None else frame,
        feature_names=names,
        adjacency_matrix=adjacency,
        edges=edges,
        frame=frame,
        DESCR=_description("sachs"),
    )


@validate_params({"return_X_y": ["boolean"], "as_frame": ["boolean"]})
def load_parkinsons(
    *, return_X_y: bool = False, as_frame: bool = False
) -> Bunch | tuple:
    """Load voice measurements of people with and without Parkinson's disease.

    22 measures of 195 voice recordings of 32 people, 24 of whom have the disease.
    Recordings of one person are alike: split by ``subject`` when testing.

    Parameters
    ----------
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame and ``target`` and ``subject`` are
        Series.

    Returns
    -------
    parkinsons : Bunch
        Dictionary-like object with attributes:

        data : ndarray or DataFrame of shape (195, 22)
            The measures.
        target : ndarray or Series of shape (195,)
            1 for a recording of somebody who has the disease (the column called
            "status" at the source).
        subject : ndarray or Series of shape (195,)
            Who speaks, such as "S01".
        feature_names : list of str
            Names of the measures.
        target_names : list of str
            "healthy" and "parkinson".
        frame : DataFrame of shape (195, 24) or None
            Measures, "status" and "subject"; only with ``as_frame=True``.
        DESCR : str
            Description, source and licence.

    (data, target) : tuple if ``return_X_y``
        Two arrays, or a DataFrame and a Series.

    See Also
    --------
    sklearn.datasets.load_iris : A smaller classic.

    Examples
    --------
    >>> from skprivbn.datasets import load_parkinsons
    >>> parkinsons = load_parkinsons()
    >>> parkinsons.data.shape, len(set(parkinsons.subject))
    ((195, 22), 32)
    """
    names, rows = _read_rows("parkinsons.csv")
    columns = dict(zip(names, zip(*rows)))
    del columns["name"]
    target = np.array(columns.pop("status"), dtype=int)
    subject = np.array(columns.pop("subject"))
    data = np.array(list(columns.values()), dtype=float).T
    frame = None
    if as_frame:
        measures = dict(zip(columns, data.T))
        frame = _frame({**measures, "status": target, "subject": subject})
        data = frame[list(columns)]
        target, subject = frame["status"], frame["subject"]
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        subject=subject,
        feature_names=list(columns),
        target_names=["healthy", "parkinson"],
        frame=frame,
        DESCR=_description("parkinsons"),
    )


@validate_params(
    {
        "subset": [StrOptions({"train", "test", "all"})],
        "discretized": ["boolean"],
        "return_X_y": ["boolean"],
        "as_frame": ["boolean"],
    }
)
def load_adult(
    *,
    subset: str = "train",
    discretized: bool = False,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Bunch | tuple:
    """Load the Adult census data: 14 attributes of a person, and the income.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The 32561 rows for training, the 16281 for testing, or both one below the
        other.
    discretized : bool, default=False
        Whether every column becomes integer codes over a public domain: for
        discrete density models. Numbers are cut at fixed round values, none of
        them computed from the rows, and a missing entry is a state of its own,
        the last.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame and ``target`` a Series. Unless
        discretised, text columns are categorical with the public categories.

    Returns
    -------
    adult : Bunch
        Dictionary-like object with attributes:

        data : ndarray or DataFrame of shape (n_samples, 14)
            The attributes: an array of objects (numbers, text, NaN for missing),
            or of integers if discretised.
        target : ndarray or Series of shape (n_samples,)
            The income, "<=50K" or ">50K"; 0 or 1 if discretised.
        feature_names : list of str
            Names of the attributes.
        target_names : list of str
            The two incomes.
        categories : dict of str to list of str
            The public domain: the possible values of every text column, or the
            labels of the codes of all 15 columns (attributes and income) if
            discretised.
        frame : DataFrame of shape (n_samples, 15) or None
            Attributes and income; only with ``as_frame=True``.
        DESCR : str
            Description, source and licence.

    (data, target) : tuple if ``return_X_y``
        Two arrays, or a DataFrame and a Series.

    See Also
    --------
    load_msnbc : Binary data with many rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivbn.datasets import load_adult
    >>> adult = load_adult(discretized=True)
    >>> X = np.column_stack([adult.data, adult.target])
    >>> X.shape
    (32561, 15)
    >>> {name: len(states) for name, states in adult.categories.items()}
    {'age': 12, 'workclass': 9, 'fnlwgt': 9, ..., 'income': 2}
    """
    rows = []
    for part in ["train", "test"] if subset == "all" else [subset]:
        names, more = _read_rows(f"adult_{part}.csv.gz")
        rows += more
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows))}
    domain = read_domain()
    categories = domain["categories"]
    if discretized:
        columns, categories = discretize(columns, domain)
    else:
        columns = {
            name: _text(column) if name in categories else column.astype(int)
            for name, column in columns.items()
        }
    *feature_names, target_name = columns
    frame = None
    if as_frame:
        frame = _frame(columns, {} if discretized else categories)
        data, target = frame[feature_names], frame[target_name]
    else:
        data = np.stack([columns[name] for name in feature_names], axis=1)
        target = columns[target_name]
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        feature_names=feature_names,
        target_names=categories[target_name],
        categories=categories,
        frame=frame,
        DESCR=_description("adult"),
    )


@validate_params({"as_frame": ["boolean"]})
def load_msnbc(*, as_frame: bool = False) -> Bunch:
    """Load which page categories of a news site visitors looked at in one day.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether ``data`` is a pandas DataFrame.

    Returns
    -------
    msnbc : Bunch
        Dictionary-like object with attributes:

        data : ndarray or DataFrame of shape (97108, 17)
            A row per visitor, 1 where at least one page of the category was seen.
        feature_names : list of str
            Names of the page categories.
        frame : DataFrame of shape (97108, 17) or None
            Only with ``as_frame=True``.
        DESCR : str
            Description, source and licence.

    See Also
    --------
    load_adult : Discrete data with more states.

    Examples
    --------
    >>> from skprivbn.datasets import load_msnbc
    >>> msnbc = load_msnbc()
    >>> msnbc.data.shape
    (97108, 17)
    """
    with _open("msnbc.csv.gz") as lines:
        names = next(lines).strip().split(",")
        data = np.loadtxt(lines, delimiter=",", dtype=np.int8).astype(int)
    frame = _frame(dict(zip(names, data.T))) if as_frame else None
    return Bunch(
        data=data if frame is None else frame,
        feature_names=names,
        frame=frame,
        DESCR=_description("msnbc"),
    )


def _open(name):
    path = files("skprivbn.datasets") / "data" / name
    if name.endswith(".gz"):
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
        return io.StringIO(text, newline="")
    return path.open("r", encoding="utf-8", newline="")


def _read_rows(name):
    """Return the header and the rows of a table, as text."""
    with _open(name) as lines:
        header, *rows = csv.reader(lines)
    return header, rows


def _description(name):
    path = files("skprivbn.datasets") / "data" / f"{name}.rst"
    return path.read_text(encoding="utf-8")


def _text(column):
    """Return text as objects, NaN where it is empty."""
    objects = column.astype(object)
    objects[column == ""] = np.nan
    return objects


def _frame(columns, categories=None):
    pd = import_optional("pandas", "as_frame=True")
    frame = pd.DataFrame(columns)
    for name, states in (categories or {}).items():
        frame[name] = pd.Categorical(frame[name], categories=states)
    return frame


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


# P(either = yes | lung, tub), parents in this order, states (yes, no).
_NOISY_OR = [[0.99, 0.9], [0.9, 0.1]]


@validate_params({"variant": [StrOptions({"standard", "noisy_or"})]})
def load_asia(*, variant: str = "standard") -> BayesianNetwork:
    """Load the Asia network: 8 binary variables of a chest clinic, 8 edges.

    Parameters
    ----------
    variant : {"standard", "noisy_or"}, default="standard"
        "standard" is the published network [1]_, in which ``either`` is the
        logical or of ``tub`` and ``lung``. "noisy_or" makes it random, as in the
        study of collective learning [2]_: P(either = yes) is 0.99 with both, 0.9
        with one and 0.1 with none of them.

    Returns
    -------
    network : BayesianNetwork
        The network.

    See Also
    --------
    load_alarm : A larger network.

    Notes
    -----
    From the bnlearn Bayesian network repository, CC BY-SA 3.0.

    References
    ----------
    .. [1] Lauritzen and Spiegelhalter (1988). Local computation with probabilities
       on graphical structures and their application to expert systems. Journal of
       the Royal Statistical Society B 50(2), 157-224.
    .. [2] Chen, Sivakumar and Kargupta (2004). Collective mining of Bayesian
       networks from distributed heterogeneous data. Knowledge and Information
       Systems 6(2), 164-187.

    Examples
    --------
    >>> from skprivbn.datasets import load_asia
    >>> network = load_asia()
    >>> network.parents["dysp"]
    ('bronc', 'either')
    """
    fields = read_network("asia")
    if variant == "noisy_or":
        yes = np.array(_NOISY_OR)
        fields["cpts"]["either"] = np.stack([yes, 1 - yes], axis=-1)
    return BayesianNetwork(**fields)


def load_alarm() -> BayesianNetwork:
    """Load the ALARM network: 37 variables of patient monitoring, 46 edges.

    Returns
    -------
    network : BayesianNetwork
        The network.

    See Also
    --------
    load_asia : A smaller network.

    Notes
    -----
    From the bnlearn Bayesian network repository, CC BY-SA 3.0.

    References
    ----------
    .. [1] Beinlich, Suermondt, Chavez and Cooper (1989). The ALARM monitoring
       system: A case study with two probabilistic inference techniques for belief
       networks. Second European Conference on Artificial Intelligence in Medicine.

    Examples
    --------
    >>> from skprivbn.datasets import load_alarm
    >>> len(load_alarm().nodes)
    37
    """
    return BayesianNetwork(**read_network("alarm"))


def load_child() -> BayesianNetwork:
    """Load the Child network: 20 variables of congenital heart disease, 25 edges.

    Returns
    -------
    network : BayesianNetwork
        The network.

    See Also
    --------
    load_insurance : A network of similar size.

    Notes
    -----
    From the bnlearn Bayesian network repository, CC BY-SA 3.0.

    References
    ----------
    .. [1] Spiegelhalter, Dawid, Lauritzen and Cowell (1993). Bayesian analysis in
       expert systems. Statistical Science 8(3), 219-247.

    Examples
    --------
    >>> from skprivbn.datasets import load_child
    >>> len(load_child().nodes)
    20
    """
    return BayesianNetwork(**read_network("child"))


def load_insurance() -> BayesianNetwork:
    """Load the Insurance network: 27 variables of car insurance risk, 52 edges.

    Returns
    -------
    network : BayesianNetwork
        The network.

    See Also
    --------
    load_child : A network of similar size.

    Notes
    -----
    From the bnlearn Bayesian network repository, CC BY-SA 3.0.

    References
    ----------
    .. [1] Binder, Koller, Russell and Kanazawa (1997). Adaptive probabilistic
       networks with hidden variables. Machine Learning 29(2-3), 213-244.

    Examples
    --------
    >>> from skprivbn.datasets import load_insurance
    >>> len(load_insurance().nodes)
    27
    """
    return BayesianNetwork(**read_network("insurance"))


def read_network(name):
    """Read a shipped network as the arguments of ``BayesianNetwork``."""
    path = files("skprivbn.datasets") / "data" / "networks" / f"{name}.json"
    stored = json.loads(path.read_text(encoding="utf-8"))["nodes"]
    states = {node["name"]: node["states"] for node in stored}
    parents = {node["name"]: node["parents"] for node in stored}
    cpts = {}
    for node in stored:
        shape = [len(states[parent]) for parent in node["parents"]]
        table = np.array(node["cpt"], dtype=float)
        cpts[node["name"]] = table.reshape(*shape, len(node["states"]))
    return {"nodes": list(states), "states": states, "parents": parents, "cpts": cpts}
