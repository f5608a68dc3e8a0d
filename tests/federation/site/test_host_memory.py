"""Parameters that would take a site's memory come to nothing where it is taken."""

import resource
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np
import pytest

from skprivbn.exceptions import PartitionError, PartyError
from skprivbn.federation import Terms
from skprivbn.federation._models import describe_model, rebuild_model
from skprivbn.federation.program import PartyRefusal
from skprivbn.federation.site import _host
from skprivbn.federation.site._host import limited_memory
from skprivbn.graphical_model import DPCGMLearner, MarkovRandomField
from skprivbn.mixture import PPEMGaussianMixture
from skprivbn.partition import RemoteRows
from skprivbn.preprocessing import FederatedPCA, FederatedStandardScaler
from skprivbn.structure import (
    FederatedDynotears,
    FederatedGaussianBayesianNetwork,
    FederatedNotearsADMM,
)
from tests.federation.flare.hospitals import make_rows, site_files, write_tables
from tests.federation.site.loopback import connect, make_sites
from tests.federation.test_remote_guide import CASES

pytestmark = pytest.mark.filterwarnings(
    "ignore::skprivbn.exceptions.PrivacyLeakWarning"
)
#: of 2**26 numbers, which take half a gigabyte
MANY = 1 << 26


@pytest.fixture
def sites(tmp_path):
    write_tables(tmp_path, *make_rows())
    files = site_files(max_exact_fits=1, budget="budget = {epsilon = 9.0}")
    return connect(make_sites(tmp_path, files), "icu")


def refused(attempt, *arguments):
    with pytest.raises(PartyError) as caught:
        attempt(*arguments)
    return caught.value.code


def test_memory_is_limited_where_it_is_taken():
    with limited_memory(1 << 28):
        assert np.zeros(1 << 20).nbytes == 1 << 23
        with pytest.raises(MemoryError):
            np.zeros(MANY)
    # the twin: nobody counts
    with nullcontext():
        assert np.zeros(MANY).nbytes == 1 << 29


def test_the_limit_is_that_of_a_session():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(KeyError), limited_memory(1 << 28):
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
        raise KeyError
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize(
    "estimator",
    [
        PPEMGaussianMixture(MANY),
        PPEMGaussianMixture(MANY, epsilon=0.1, bounds=(-9, 9)),
        FederatedDynotears(MANY),
    ],
    ids=["components", "noisy components", "lags"],
)
def test_attack_a_small_message_that_takes_gigabytes(sites, estimator, monkeypatch):
    rows, limit = sites.rows(["a", "b"]), limited_memory
    monkeypatch.setattr(_host, "limited_memory", lambda: limit(1 << 28))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((PartyError, ValueError)) as caught:
        estimator.fit(rows)
    assert getattr(caught.value, "code", "too-large") in ("too-large", "too-few-rows")
    # in kilobytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 1 << 18


def test_without_the_limit_the_memory_is_taken(sites, monkeypatch):
    monkeypatch.setattr(_host, "limited_memory", nullcontext)
    taken = []

    def take(self, rows):
        taken.append(np.zeros(MANY).nbytes)
        raise InterruptedError

    monkeypatch.setattr(_host, "prepare_rows", take)
    assert refused(FederatedPCA().fit, sites.rows(["a", "b"])) == "failed"
    assert taken[0] == 1 << 29
    monkeypatch.setattr(_host, "limited_memory", lambda: limited_memory(1 << 28))
    assert refused(FederatedPCA().fit, sites.rows(["a", "b"])) == "too-large"


def test_a_field_that_cannot_be_summed_over():
    nodes = [f"x{i}" for i in range(26)]
    states = dict.fromkeys(nodes, (0, 1))
    pairs = [(u, v) for i, u in enumerate(nodes) for v in nodes[:i]]
    tree = list(zip(nodes, nodes[1:]))

    def model(cliques, inference):
        estimator = DPCGMLearner()
        estimator.network_ = MarkovRandomField(
            nodes, states, {clique: np.zeros((2, 2)) for clique in cliques}, inference
        )
        return describe_model(estimator)

    assert rebuild_model(model(tree, "exact"), 26).network_.nodes == tuple(nodes)
    assert rebuild_model(model(pairs, "loopy"), 26).network_.nodes == tuple(nodes)
    with pytest.raises(PartyRefusal, match="too-large"):
        rebuild_model(model(pairs, "exact"), 26)


#: whole numbers among the terms that do not make anything larger
HARMLESS = {
    "max_iter",
    "max_parents",
    "min_cell_count",
    "min_honest",
    "min_parties",
    "min_rows",
    "n_variables",
    "seed",
    "min_cluster_rows",
}


def test_attack_every_whole_number_of_a_session(sites, monkeypatch):
    """However large a parameter is, a site says no, or takes little memory."""
    seen, federate, limit = [], RemoteRows.federate, limited_memory

    def watch(self, program, terms, *arguments, **options):
        seen.append((self, program, terms, arguments, options))
        raise InterruptedError

    monkeypatch.setattr(RemoteRows, "federate", watch)
    noisy = {"epsilon": 1.0, "bounds": (-9, 9)}
    more = [
        (FederatedNotearsADMM("mlp"), ["a", "b"], {}),
        (FederatedStandardScaler(**noisy), ["a", "b"], {}),
        (FederatedGaussianBayesianNetwork(**noisy), ["a", "b"], {}),
        (PPEMGaussianMixture(2, **noisy), ["a", "b"], {}),
    ]
    for estimator, names, beside in [*CASES, *more]:
        with suppress(InterruptedError, PartitionError):
            estimator.fit(sites.rows(names), **beside)
    monkeypatch.setattr(_host, "limited_memory", lambda: limit(1 << 29))
    looked_at = set()
    for rows, program, terms, arguments, options in seen:
        if not isinstance(terms, Terms):
            continue
        for field, value in terms.to_payload().items():
            where = type(terms), field
            if type(value) is not int or field in HARMLESS or where in looked_at:
                continue
            looked_at.add(where)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with suppress(PartyError, ValueError):
                large = replace(terms, **{field: 2**40})
                with federate(rows, program, large, *arguments, **options) as session:
                    session.run()
            taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
            assert taken < 1 << 20, where
    fields = {field for _, field in looked_at}
    assert {"n_components", "n_hidden", "n_lags"} <= fields
