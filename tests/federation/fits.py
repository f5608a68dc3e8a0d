"""Fits of every kind of protocol, through a relay."""

import warnings
from functools import cache
from importlib import import_module

import pytest

from skprivbn.exceptions import PartyError, ProtocolError
from tests.federation.hostile import Relay, hidden_vectors
from tests.golden.cases import CASES
from tests.golden.recording import current_name, differences, plain, silence

#: one of every kind of protocol; what takes longer than seconds is slow
FITS = [
    "FederatedStandardScaler: masking",
    "FederatedKBinsDiscretizer: quantile",
    "FederatedOneHotEncoder: auto",
    "PPEMGaussianMixture: diag",
    "FederatedGaussianBayesianNetwork: bic",
    "FederatedBayesianNetwork: hill_climbing",
    "PrivateGLMMRegressor: linear",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "FederatedStandardScaler: ckks",
            "FederatedPCA: all",
            "describe: exact",
            "PPEMGaussianMixture: gaps",
            "PPEMGaussianMixture: signed sums",
            "PPEMGaussianMixture: ckks",
            "PPEMGaussianMixture: laplace",
            "FederatedGaussianBayesianNetwork: columns",
            "FederatedNotearsADMM: ckks",
            "FederatedDynotears: one lag",
            "VotingStructureLearner: vote",
            "DPCGMLearner: columns",
            "PrivateGLMMClassifier: ckks",
            "PrivateK2StructureLearner: two parties",
            "CollectiveBayesianNetwork: keys",
        )
    ),
]
N_CHANGES = 6


def found_by(estimator):
    """Return what was learnt, as plain data."""
    names = [n for n in vars(estimator) if n.endswith("_") and n[0] != "_"]
    return plain({n: getattr(estimator, n) for n in names if n != "ledger_"})


def fit(name, relay):
    """Fit a golden case through a relay; return what was learnt, without noise."""
    case = CASES[name]
    estimator = case.make(current_name, import_module)
    with relay.carrying(), warnings.catch_warnings(), silence():
        warnings.simplefilter("ignore")
        estimator.fit(*case.data.rows, **case.data.metadata)
    return found_by(estimator)


@cache
def honest(name):
    """Return what an honest fit learns, and the relay that carried it."""
    relay = Relay()
    return fit(name, relay), relay


def outcome(name, relay):
    """Return "refused", "same" or "other" result; nothing else may be raised."""
    try:
        found = fit(name, relay)
    except (PartyError, ProtocolError):
        return "refused"
    rtol = CASES[name].rtol
    return "other" if differences(honest(name)[0], found, rtol, "") else "same"


def rounds_with_totals(relay):
    """Return the rounds in which parties were handed a hidden vector."""
    requests = [m for m in relay.requests if list(hidden_vectors(m.value))]
    return sorted({message.round for message in requests})
