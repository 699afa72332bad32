"""How the end of one process of a job is told from a fault in the program: by types, whatever an error says."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from pykaldist.cli import _job
from pykaldist.errors import ProcessLostError
from pykaldist.parallel.fabric import torch_distributed
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.launch.watch import DIED


class Failing:
    """An experiment of a process that is alone, which ends with an error."""

    job = SimpleNamespace(host=SimpleNamespace(processes=SingleProcess()))

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self) -> None:
        raise self._error


@pytest.mark.parametrize(("error", "status", "words"), [
    (ProcessLostError("what it says is of no account"), DIED, "lost its connection to another process"),
    (RuntimeError("Connection closed by peer, as a fault of ours may say"), 1, "this is a fault in the program")])
def test_a_lost_process_is_a_type(error, status, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_job, "needs_launcher", lambda options: False)
    monkeypatch.setattr(_job, "started_by", lambda: "mpi")
    monkeypatch.setattr(_job, "join_launched", lambda folder: None)
    monkeypatch.setattr(_job, "sys", SimpleNamespace(stderr=_job.sys.stderr, stdout=_job.sys.stdout, modules={}))
    args = argparse.Namespace(argv=["train"], exp=tmp_path)
    assert _job.run_job(args, SimpleNamespace(timeout=10.0), False, lambda: Failing(error)) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("kind", [RuntimeError, dist.DistBackendError])
def test_an_exchange_that_fails_says_that_a_process_is_lost(monkeypatch, kind):
    """As gloo and NCCL say it."""

    def fail(*args, **kwargs):
        raise kind("[gloo/transport/tcp/pair.cc:534] whatever it may say in the next version")

    monkeypatch.setattr(dist, "all_reduce", fail)
    process = object.__new__(torch_distributed.TorchDistributed)
    process._group = None
    with pytest.raises(ProcessLostError, match="next version"):
        process.control([1.0])
