"""What benchmarks say of the machine: its CPU and PyTorch, and what it cannot measure (tests/bench/machine.py)."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pykaldist.nnet import arithmetic, int8
from pykaldist.nnet.dnn import DnnOptions, make_dnn

LACKS = "this one (Abacus 3)"


@pytest.fixture
def bench(monkeypatch, root):
    """`bench(name, words)` runs a benchmark's main() in this process with one thread, on a CPU with AVX2 alone."""

    def run(name: str, *words: str, **changed: object) -> None:
        module = importlib.import_module(name)
        monkeypatch.setattr(sys, "argv", [name, *words])
        for what, by in changed.items():
            monkeypatch.setattr(module, what, by)
        module.main()

    before, threads, grad = set(sys.modules), torch.get_num_threads(), torch.is_grad_enabled()
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(root / "tests" / "bench")
    monkeypatch.setattr(arithmetic, "cpu", lambda: arithmetic.Cpu("Abacus 3", "Abacus", {"avx2", "fpu"}))
    monkeypatch.setattr(int8, "cpu", arithmetic.cpu)
    yield run
    torch.set_num_threads(threads)
    torch.set_grad_enabled(grad)
    for name in set(sys.modules) - before:
        if str(root / "tests" / "bench") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def nothing(*args: object) -> None:
    raise AssertionError("it is measured")


def test_bf16(bench, capsys):
    bench("bf16", measure=nothing)
    assert capsys.readouterr().out.splitlines() == [
        f"Abacus 3 (avx2), torch {torch.__version__}, 1 thread",
        f"bf16 is not measured: --dtype bf16 on a CPU needs AMX or AVX512-BF16, and {LACKS} has AVX2; use float32."]


def test_workers(bench, capsys):
    bench("workers", "--dtype", "bf16", on_ranks=nothing)
    said = capsys.readouterr().out
    assert said.startswith("bf16 is not measured: ") and LACKS in said
    host = SimpleNamespace(fabrics=[SimpleNamespace(seconds={"compute": 3.0, "exchange": 1.0})])
    seconds = {"one": [(2.0, 2.0)], "ranks": [(2.0, 2.0)]}
    bench("workers", on_ranks=lambda ranks, measure: measure(None),
          measure=lambda folder, args: sys.modules["workers"].report(seconds, 2, SimpleNamespace(host=host), args))
    assert capsys.readouterr().out.startswith(f"Abacus 3 (avx2), torch {torch.__version__}, 1 thread\n440-512x4-712, sgd, ma,")


def test_int8(bench, capsys):
    network = make_dnn(DnnOptions(1, 8), 4, 3, torch.device("cpu"))

    def load(folder, forwarding):
        """What loading a model checks."""
        if forwarding.dtype == "int8":
            int8.check_int8(network)
        arithmetic.arithmetic(forwarding.dtype.replace("int8", "float32"), torch.device("cpu"))
        return SimpleNamespace(features=lambda data, utt: np.zeros((7, 4)), loglikes=lambda feats: feats)

    bench("int8", "--rates-only", "--runs", "1", "exp", "graph", "data", load_acoustic_model=load,
          DataDir=lambda path: SimpleNamespace(utt2spk=["utt1", "utt2"]))
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"Abacus 3 (avx2), torch {torch.__version__}, 1 thread")
    assert said[1] == f"bf16 is not measured: --dtype bf16 on a CPU needs AMX or AVX512-BF16, and {LACKS} has AVX2; use float32."
    assert said[2] == f"int8 is not measured: --dtype int8 needs a CPU with AMX, AVX512-VNNI, AVX-VNNI, and {LACKS} has none of them; " \
                      "use float32."
    assert said[3].startswith("2 utterances, 14 frames") and [line.split()[1] for line in said[7:]] == ["float32"]
