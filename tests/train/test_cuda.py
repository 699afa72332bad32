"""Weights, soft targets, target features and a moving rate on a GPU: the same training as on a CPU, in steps that are recorded."""

from __future__ import annotations

import json

import pytest

from pykaldist.cli import main

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("extras", "options"), [
    (("weights",), []), (("posteriors",), ["--bottleneck-dim", "5"]), (("weights", "posteriors"), []),
    (("target_feats",), ["--objective", "mse"]), (("weights", "target_feats"), ["--objective", "mse"]),
    ((), ["--hid-layers", "3", "--layerwise-epochs", "2", "--learn-rate-coefs", "1,0.5,1,2"]),
])
def test_the_cpu_and_the_gpu_agree(make_store, tmp_path, extras, options):
    make_store([200, 350, 150], name="train", extras=extras)
    store = make_store([300], seed=2, name="dev", extras=extras).path.parent
    histories = []
    for device in ("cpu", "cuda"):
        assert main(["train", "--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "64", "--device", device,
                     "--dtype", "float64", "--schedule", "warmup", "--warmup-epochs", "2.5", "--num-epochs", "4", "--momentum", "0.5",
                     *options, str(store), str(tmp_path / device)]) == 0
        lines = (tmp_path / device / "history.jsonl").read_text().splitlines()
        histories.append([{k: v for k, v in json.loads(line).items() if k not in ("seconds", "time")} for line in lines])
    for cpu, gpu in zip(*histories, strict=True):
        assert gpu == pytest.approx(cpu, rel=1e-9)
