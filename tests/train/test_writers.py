"""Curves for TensorBoard, MLflow and Weights & Biases, read back by their own readers; a run that resumes goes on in them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.train.writers import names_in, numbers, open_writers

LINE = {"epoch": 3, "updates": 9, "learn_rate": 0.1, "cv_loss": 1.5, "accepted": True, "time": "measured", "staleness": {"1": 4},
        "seconds": {"compute": 2.0, "total": 3.0}}


def test_the_numbers_of_a_line():
    assert numbers(LINE) == {"updates": 9.0, "learn_rate": 0.1, "cv_loss": 1.5, "seconds/compute": 2.0, "seconds/total": 3.0}


def test_writers_are_named(monkeypatch, tmp_path):
    assert names_in("") == [] and names_in("mlflow,tensorboard") == ["mlflow", "tensorboard"]
    with pytest.raises(UserError, match="there is no writer aim; known are tensorboard, mlflow, wandb,"):
        names_in("aim")
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)  # as where it is not installed
    with pytest.raises(UserError, match="--log-to mlflow takes the package mlflow; install it with pip install mlflow"):
        open_writers("mlflow", tmp_path, 0)


def train(stores: Path, exp: Path, writer: str, epochs: int) -> list[dict]:
    options = "--hid-layers 1 --hid-dim 16 --schedule fixed --device cpu --learn-rates"
    rates = ",".join(["0.01"] * epochs)
    assert main(["train", *options.split(), rates, "--log-to", writer, str(stores), str(exp)]) == 0
    return [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]


@pytest.fixture
def stores(make_store) -> Path:
    make_store([50] * 4, seed=2, name="dev")
    return make_store([50] * 20, name="train").path.parent


def test_tensorboard(stores, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                      reason="TensorBoard is not installed (pip install tensorboard)")
    lines = train(stores, tmp_path / "exp", "tensorboard", 3)
    events = accumulator.EventAccumulator(str(tmp_path / "exp/tensorboard"))
    events.Reload()
    assert [(e.step, pytest.approx(e.value)) for e in events.Scalars("cv_loss")] == [(line["epoch"], line["cv_loss"]) for line in lines]
    assert len(events.Scalars("seconds/compute")) == 3
    # A run that was stopped after its second epoch, when a third had been written: that is written again.
    [writer] = open_writers("tensorboard", tmp_path / "exp", 2)
    writer.write({**LINE, "cv_loss": 7.0})
    writer.close()
    events = accumulator.EventAccumulator(str(tmp_path / "exp/tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("cv_loss")] == [1, 2, 3] and events.Scalars("cv_loss")[-1].value == 7.0


def test_mlflow(stores, tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed (pip install mlflow)")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    exp = tmp_path / "exp"
    lines = train(stores, exp, "mlflow", 3)
    [writer] = open_writers("mlflow", exp, 3)
    writer.write({**LINE, "epoch": 4})
    writer.close()
    client, run = tracking.MlflowClient(f"sqlite:///{exp / 'mlflow.db'}"), (exp / "mlflow_run").read_text().strip()
    found = client.get_metric_history(run, "cv_loss")
    assert [(m.step, pytest.approx(m.value)) for m in found] == [*((line["epoch"], line["cv_loss"]) for line in lines), (4, 1.5)]
    assert client.get_run(run).info.status == "FINISHED"


def logged(path: Path) -> list[bytes]:
    """The records of a run's file: W&B's header, then blocks of 32 KiB with pieces of records (checksum, length, kind) as of LevelDB."""
    content, records, at, record = path.read_bytes(), [], 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4:at + 6], "little"), content[at + 6]
        record, at = record + content[at + 7:at + 7 + length], at + 7 + length
        if kind in (1, 4):  # whole, or the last piece
            records.append(record)
            record = b""
    return records


def test_weights_and_biases(stores, tmp_path, monkeypatch):
    """By its own messages; a run that resumes has the same name."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason="Weights & Biases is not installed (pip install wandb)")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    exp = tmp_path / "exp"
    lines = train(stores, exp, "wandb", 3)
    time.sleep(1.1)  # a run's folder has the name of the second in which it began
    [writer] = open_writers("wandb", exp, 3)
    writer.write({**LINE, "epoch": 4})
    writer.close()
    found = {}
    files = sorted(exp.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    for path in files:
        for content in logged(path):
            record = messages.Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
                found[record.history.step.num] = items["cv_loss"]
    assert found == {**{line["epoch"]: pytest.approx(line["cv_loss"]) for line in lines}, 4: 1.5}
    assert len(files) == 2 and {path.stem for path in files} == {f"run-{(exp / 'wandb_run').read_text().strip()}"}
