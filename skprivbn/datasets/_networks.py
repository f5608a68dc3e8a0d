"""Networks from the literature, shipped as JSON."""

import json
from importlib.resources import files

import numpy as np

from skprivbn.bayesian_network import BayesianNetwork
from skprivbn.utils._sklearn import StrOptions, validate_params

# P(either = yes | lung, tub), parents in this order, states (yes, no).
_NOISY_OR = [[0.99, 0.9], [0.9, 0.1]]


@validate_params(
    {"variant": [StrOptions({"standard", "noisy_or"})]},
    prefer_skip_nested_validation=True,
)
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
