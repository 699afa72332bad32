"""Training and pretraining with --dtype bf16 on a CPU, as a user runs them: they learn, and leave float32 in every file."""

from __future__ import annotations

import json

import pytest
import torch

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.nnet import arithmetic
from pykaldist.nnet.nnet1 import Nnet1

SHAPE = ["--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--device", "cpu", "--num-threads", "1", "--dtype", "bf16"]


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25, 40], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


@pytest.fixture
def cpu(tmp_path, monkeypatch):
    """`cpu(flags)`: a CPU that has them, whatever there is; without its own, bfloat16 is only slow."""

    def has(flags):
        (tmp_path / "cpuinfo").write_text(f"model name\t: Abacus 9\nflags\t: {flags}\n")
        monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")

    return has


@pytest.mark.parametrize("verb", ["train", "pretrain-dbn"])
def test_a_cpu_without_it_is_refused_in_a_sentence(store, tmp_path, cpu, capsys, verb):
    cpu("avx2")
    assert main([verb, *SHAPE, str(store), str(tmp_path / "exp")]) == 1
    assert "--dtype bf16 on a CPU needs AMX or AVX512-BF16, and this one (Abacus 9) has AVX2; use float32." in capsys.readouterr().err
    assert not (tmp_path / "exp" / "final.pt").exists()


@pytest.mark.parametrize("options", [[], ["--optimizer", "ngsgd", "--ngpu", "2", "--strategy", "ma", "--fabric", "virtual"]],
                         ids=["sgd", "ngsgd, ma"])
def test_it_learns_from_a_dbn_and_leaves_float32(store, tmp_path, cpu, options):
    cpu("avx512_bf16")
    assert main(["pretrain-dbn", *SHAPE, "--minibatch-size", "32", "--gauss-minibatch-size", "32", str(store), str(tmp_path / "dbn")]) == 0
    exp = tmp_path / "exp"
    assert main(["train", *SHAPE, "--dbn", str(tmp_path / "dbn"), "--minibatch-size", "16", "--learn-rate", "0.02", *options,
                 str(store), str(exp)]) == 0
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    assert history[-1]["cv_acc"] > 0.8 and history[-1]["cv_loss"] < 0.5 * history[0]["train_loss"]
    params = container.load(exp / "final.pt")["params"]
    assert params.dtype == torch.float32 and not torch.equal(params.bfloat16().float(), params)
    first = torch.from_numpy(Nnet1.read(exp / "final.nnet").components[0].arrays["linearity"])
    assert torch.equal(first.flatten(), params[: first.numel()])
    start = container.load(tmp_path / "dbn" / "dbn.pt")["layers"][0][0]
    assert start.dtype == torch.float32 and not torch.equal(start.bfloat16().float(), start)
    assert torch.corrcoef(torch.stack([start.flatten(), first.flatten()]))[0, 1] > 0.3  # it started from there
