"""The same programs with every party in a process of its own."""

import os
import signal

import numpy as np
import pytest

from skprivbn.exceptions import PartyError
from skprivbn.federation import HostPolicy, InProcessFederation
from tests.federation.processes import ProcessFederation
from tests.federation.protocol import MeanTerms, mean


def open_processes(blocks, backend="masking", **options):
    options.setdefault("timeout", 60)
    return ProcessFederation(
        blocks, mean, MeanTerms(), backend, policy=HostPolicy(), **options
    )


def messages_of(ledger):
    return [
        (e.operation, e.sender, e.receiver, e.n_bytes, e.kind) for e in ledger.entries
    ]


@pytest.mark.parametrize(
    "backend", ["masking", pytest.param("ckks", marks=pytest.mark.slow)]
)
def test_same_result_and_same_ledger_as_in_process(blocks, backend):
    with open_processes(blocks, backend) as processes:
        found = processes.run()
    with InProcessFederation(blocks, mean, MeanTerms(), backend) as reference:
        expected = reference.run()
    np.testing.assert_array_equal(found["mean"], expected["mean"])
    assert messages_of(processes.ledger) == messages_of(reference.ledger)


def test_a_killed_party_is_named_and_all_processes_end(blocks):
    federation = open_processes(blocks)
    with federation, pytest.raises(PartyError, match="south"):
        os.kill(federation.processes["south"].pid, signal.SIGKILL)
        federation.processes["south"].join()
        federation.run()
    assert not any(p.is_alive() for p in federation.processes.values())


@pytest.mark.slow
def test_a_frozen_party_is_late(blocks):
    federation = open_processes(blocks)
    with federation:
        # the others answer within that, also on a machine with much else to do
        federation.timeout = 3.0
        os.kill(federation.processes["west"].pid, signal.SIGSTOP)
        try:
            with pytest.raises(PartyError, match="west.*in time"):
                federation.run()
        finally:
            os.kill(federation.processes["west"].pid, signal.SIGCONT)
