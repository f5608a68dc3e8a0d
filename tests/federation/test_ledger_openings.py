"""What becomes known in fits of every protocol is what their ledgers say."""

import warnings
from collections import defaultdict
from importlib import import_module

import pytest

from skprivbn.crypto.sealing import SealedChannel
from skprivbn.datasets import make_partitioned_blobs
from skprivbn.federation import Federation, InProcessFederation, decode
from skprivbn.partition import HorizontalPartition
from tests.golden.cases import CASES
from tests.golden.recording import current_name

#: one of every protocol and kind of start; K2 and oblivious transfers take seconds
FITS = [
    "FederatedBayesianNetwork: hill_climbing",
    "FederatedBayesianNetwork: k2",
    "PPEMGaussianMixture: full",
    "PPEMGaussianMixture: start k-means++",
    "PPEMGaussianMixture: start random_from_data",
    "PPEMGaussianMixture: start local_em",
    "PPEMGaussianMixture: start given",
    "PPEMGaussianMixture: told bounds",
    "PPEMGaussianMixture: gaps",
    "PPEMGaussianMixture: laplace",
    "FederatedGaussianBayesianNetwork: sigmoids",
    "FederatedGaussianBayesianNetwork: laplace",
    "FederatedNotearsADMM: linear",
    "FederatedNotearsADMM: ckks",
    "VotingStructureLearner: vote",
    "DPCGMLearner: laplace",
    "DPCGMLearner: ckks",
    "DPCGMLearner: tree",
    "PrivateGLMM: quadrature",
    "PrivateGLMMRegressor: linear",
    "FederatedPCA: all",
    "FederatedStandardScaler: laplace",
    "FederatedKBinsDiscretizer: quantile",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "PPEMGaussianMixture: ckks",
            "FederatedGaussianBayesianNetwork: columns",
            "PrivateGLMM: metropolis",
            "PrivateK2StructureLearner: two parties",
            "CollectiveBayesianNetwork: bic",
            "CollectiveBayesianNetwork: rows, mixed",
        )
    ),
]


class Opened:
    """Fields of messages in the clear, by operation, as they are sent."""

    def __init__(self, monkeypatch):
        self.told, self.peers = defaultdict(set), defaultdict(set)
        self.sums, self.operations = {}, {}
        exchange, seal = InProcessFederation._exchange, SealedChannel.seal
        add = Federation.secure_sum

        def watch_answers(federation, requests, timeout):
            replies = exchange(federation, requests, timeout)
            self.operations |= federation.party_class.operations()
            for name, message in requests.items():
                operation = decode(message)["operation"]
                if operation in federation.party_class.operations():
                    payload = decode(replies[name]).get("payload", {})
                    self.told[operation] |= payload.keys() - {"vector", "sealed"}
            return replies

        def watch_peers(channel, operation, message):
            self.peers[operation] |= decode(message).keys()
            return seal(channel, operation, message)

        def watch_sums(federation, operation, payload=None):
            total = add(federation, operation, payload)
            self.sums[operation] = not isinstance(total, dict)
            return total

        monkeypatch.setattr(InProcessFederation, "_exchange", watch_answers)
        monkeypatch.setattr(SealedChannel, "seal", watch_peers)
        monkeypatch.setattr(Federation, "secure_sum", watch_sums)


NETWORK = "the network, as all parties know it: "
#: words of the ledger that stand for a field which is told in the clear
WORDS = {
    "assign": {"status": "whether the parties' centres are enough"},
    **dict.fromkeys(
        ("cluster_sizes", "cluster_sums"), {"status": "whether the centres still move"}
    ),
    **dict.fromkeys(
        ("component_sizes", "start", "statistics"), {"status": "whether to go on"}
    ),
    "check_entries": {"status": "whether every column has entries in enough rows"},
    "begin": {"status": "whether EM can start"},
    "update": dict.fromkeys(("status", "go_on"), "whether to go on"),
    "step": {"go_on": "whether there is another step"},
    "search": {"go_on": "whether to go on"},
    "solve": {"go_on": "whether there are closed clusters"},
    "outline": {
        "best": "which start was best",
        "reference": "its means rounded",
        "scale": "its standard deviations rounded",
    },
    "hand_over": dict.fromkeys(
        ("weights", "means", "covariances"), "the mixture made of the noisy sums"
    ),
    "finish": {
        "consensus": "the consensus",
        "n_iter": "after how many rounds",
        "converged": "whether parties agree",
    },
    "release": {
        "tables": "the noisy sum of all tables",
        "quantiles": "the quantiles of all rows",
        "n_samples": NETWORK + "number of records",
        "states": "labels",
        "parents": "parents",
        "counts": "counts",
        "n_hash_calls": "hash calls",
    },
    "labels": {
        "classes": "which classes",
        "clusters": "clusters it holds",
        "labels": "labels that occur in columns without declared states",
    },
    "summary": {
        "n_rows": "number of records",
        "mean": "means",
        "scale": "covariance of its own columns",
        "correlation": "covariance of its own columns",
    },
    "shares": {"shares": "its shares of cross-products"},
    "learn_local": {
        "n_samples": "number of rows",
        "states": "states of its columns",
        "parents": "network of its own columns",
        "counts": "with its counts",
    },
    "own_counts": {"counts": "counts of some of its own columns"},
    "open_counts": {"shares": "shares of counts"},
    "offer": {"chosen": "which of its rows are among its least likely ones"},
    "tell": {
        "n_rows": "number of rows",
        "present": "and of missing values",
        "counts": "counts of categories",
        "tables": "tables",
        "quantiles": "quantiles of all rows",
    },
    "send_rows": {
        "rows": "rows, chosen by their likelihood or at random",
        "cut": "how likely the most likely of the unlikely ones is",
    },
}
PEERS = {
    "share_centroids": {"centroids": "centres", "sizes": "sizes of every other"},
    "choose_rows": {
        "row": "rows of the other parties",
        "mass": "exact numbers of rows and, with k-means++, sums of squared distances",
    },
}
#: how fields begin that look random to whom they reach
SHARES = ("messages", "part")
#: a keyed digest of totals that the peer has verified as well
DIGEST = "digest"


def unlisted(opened, rows):
    """Return what was opened and is not in a ledger, given who learns what in it."""
    known = defaultdict(str)
    for who, what, *_ in rows:
        known["coordinator" if "coordinator" in who else "parties"] += what + "\n"
    found = []
    for operation, fields in opened.told.items():
        words = WORDS.get(operation, {})
        found += [
            f"{operation}.{field}"
            for field in fields - {"done"}
            if words.get(field, "(no words)") not in known["coordinator"]
        ]
    for operation in opened.peers.keys() - {"session.keys"}:
        says = opened.operations[operation].peers
        words = PEERS.get(operation, {})
        for field in opened.peers[operation] - {DIGEST}:
            hidden = field.startswith(SHARES) and says
            wanted = says if hidden else words.get(field, "(no words)")
            if wanted not in known["parties"]:
                found.append(f"{operation}.{field}")
    for operation, is_open in opened.sums.items():
        whose = "coordinator" if is_open else "parties"
        what = f"sum over parties of: {opened.operations[operation].tells}"
        if what not in known[whose] or not opened.operations[operation].tells:
            found.append(operation)
    return sorted(found)


def fit(name):
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = case.make(current_name, import_module)
        estimator.fit(*case.data.rows, **case.data.metadata)
    return list(estimator.ledger_.who_learns_what())


@pytest.mark.parametrize("name", FITS)
def test_what_is_opened_is_listed(name, monkeypatch):
    opened = Opened(monkeypatch)
    rows = fit(name)
    assert opened.sums or opened.peers or opened.told
    assert unlisted(opened, rows) == []


@pytest.mark.parametrize("epsilon", [None, 5.0])
def test_what_a_description_opens_is_listed(epsilon, monkeypatch):
    opened = Opened(monkeypatch)
    X, _, party = make_partitioned_blobs(120, n_parties=3, random_state=0)
    options = {} if epsilon is None else {"epsilon": epsilon, "bounds": (-15, 15)}
    summary = HorizontalPartition.from_rows(X, party).describe(**options)
    assert opened.sums
    assert unlisted(opened, list(summary.ledger.who_learns_what())) == []


def test_what_a_ledger_leaves_out_is_found(monkeypatch):
    """The twin: numbers of rows went unlisted once, and so would any other."""
    opened = Opened(monkeypatch)
    rows = fit("PPEMGaussianMixture: start k-means++")
    silent = [
        (who, what.replace("exact numbers of rows", ""), *rest)
        for who, what, *rest in rows
        if not what.startswith("sum over parties of: its number of rows")
    ]
    assert unlisted(opened, silent) == ["centre", "choose_rows.mass"]
