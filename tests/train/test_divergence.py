"""Divergence is seen: the detector by itself, and as a user meets it, with every schedule, strategy and objective."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jobs import Run
from jobs import outcome as run_outcome
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.errors import Terminated
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.io import container
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.train import divergence, trainer
from pykaldist.train.divergence import EPOCH, HELD_OUT, LEAST_FRAMES, TRAIN, Bounds, Detector, Diverged, Finding

DNN = ["--hid-layers", "1", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "16"]
LSTM = ["--nnet", "lstm", "--hid-layers", "1", "--hid-dim", "8", "--num-streams", "2"]
HERE = ["--num-threads", "1", "--device", "cpu"]
FRAMES = 100 * 50
FAR = "2"  # a rate that nothing here bears
SCHEDULES = {
    "newbob": ["--schedule", "newbob", "--num-epochs", "3", "--learn-rate", FAR],
    "exponential": ["--schedule", "exponential", "--num-epochs", "3", "--learn-rate", FAR],
    "fixed": ["--schedule", "fixed", "--learn-rates", f"0.01,{FAR},0.01"],
    "warmup": ["--schedule", "warmup", "--num-epochs", "3", "--learn-rate", "20", "--warmup-epochs", "1"]}
STRATEGIES = {
    "local": [], "ssgd": [], "onebit": [], "ma": ["--average-period", "5"], "ma, overlap": ["--overlap", "true"], "bmuf": [],
    "asgd": [], "adpsgd": [], "adpsgd, delay-by-one": ["--pattern", "delay-by-one"], "hadpsgd": ["--group-size", "2"]}
CHANGES = {"ma": "or shorten --average-period (was 5).", "bmuf": "shorten --average-period (was 10) or lower --block-gain (was 1).",
           "asgd": "bound the staleness by --max-distance", "adpsgd": "or let models mix faster by --pattern random-ring."}
OBJECTIVE = {"xent": DNN, "mse": [*DNN, "--objective", "mse"],
             "ctc": [*LSTM, "--sequences", "whole", "--objective", "ctc"], "xent, lstm": [*LSTM, "--chunk", "10"]}


@pytest.fixture
def store(make_store) -> Path:
    extras = ("target_feats", "labels")
    make_store([50] * 100, seed=1, name="train", extras=extras)
    return make_store([50] * 8, seed=2, name="dev", extras=extras).path.parent


@pytest.fixture
def short_store(make_store) -> Path:
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


def train(store: Path, exp: Path, *options: str, network: list[str] = DNN) -> int:
    return main(["train", *network, *HERE, *options, str(store), str(exp)])


def history(exp: Path) -> list[dict]:
    lines = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def outcome(exp: Path):
    return container.load(exp / "final.pt")["params"], history(exp)


def several(strategy: str) -> list[str]:
    return ["--ngpu", "4", "--fabric", "virtual", "--strategy", strategy.split(",")[0], *STRATEGIES[strategy]]


losses = st.floats(1e-3, 1e3)


@given(losses, losses, st.lists(st.tuples(losses, losses), max_size=8), losses, st.sampled_from([TRAIN, EPOCH, HELD_OUT]),
       st.floats(0.1, 10))
def test_what_the_bounds_promise(priors, first, epochs, loss, kind, scale):
    """`first`: the held-out loss before training; `epochs`: losses in training and on held-out data."""
    detector = Detector()
    detector.start(priors, first)
    for i, (train, held_out) in enumerate(epochs):
        before = detector.bounds.bound(kind)
        detector.accept(train, held_out)
        assert detector.bounds.bound(kind) <= before or (i == 0 and kind != HELD_OUT)  # what has been learnt can only be asked for again
    bounds, best, least = detector.bounds, min([first, *(b for _, b in epochs)]), min((a for a, _ in epochs), default=0.0)
    assert bounds == Bounds(priors, best, least)
    assert not bounds.exceeded(kind, best) and not bounds.exceeded(HELD_OUT, priors)  # a plateau at the priors
    assert not bounds.exceeded(TRAIN, 0.5 * priors) and not bounds.exceeded(TRAIN, 1.4999 * least)  # nor one in training
    assert bounds.exceeded(HELD_OUT, 1.1001 * priors) or best > priors  # falling is enough only where it has not been below them yet
    assert bounds.exceeded(kind, 1.5001 * max(priors, best, least)) and bounds.exceeded(kind, math.nan) and bounds.exceeded(kind, math.inf)
    scaled = Bounds(scale * priors, scale * best, scale * least)
    assert scaled.bound(kind) == pytest.approx(scale * bounds.bound(kind))
    assert any(f"{value:.3g}" in bounds.described(kind, loss) for value in (priors, best, least))
    again = Detector()
    again.load_state_dict(detector.state_dict())
    assert again.bounds == bounds


class Counting:
    """As much of a worker, and of its learner, as the detector looks at: totals are a loss and frames."""

    def __init__(self) -> None:
        self.learner, self.frames, self.updates, self.loss = self, 0, 0, 0.0

    def metrics(self, totals):
        return {"loss": totals[0] / totals[1]}

    def train(self, frames, loss):
        self.frames, self.updates, self.loss = self.frames + frames, self.updates + 1, self.loss + frames * loss
        return [self.loss, float(self.frames)]


@given(st.lists(st.tuples(st.integers(1, 3 * LEAST_FRAMES), st.floats(0.1, 20)), min_size=1, max_size=20), st.integers(0, 19))
def test_looks_are_at_what_came_since_the_last_and_survive_a_stop(steps, cut):
    detector, worker = Detector(), Counting()
    detector.start(5.0, 5.0)
    expected, frames, total = None, 0, 0.0
    for i, (count, loss) in enumerate(steps):
        if i == cut:
            state, detector = detector.worker_state(3), Detector()
            detector.start(5.0, 5.0)
            detector.load_worker_state(3, state)
        detector.look(3, worker, worker.train(count, loss))
        frames, total = frames + count, total + count * loss
        if frames >= LEAST_FRAMES:
            if expected is None and total / frames > 7.5:
                expected = i + 1, frames
            frames, total = 0, 0.0
    found = detector.found.get(3)
    assert (found and (found.updates, found.frames)) == expected
    if found:
        with pytest.raises(Diverged) as raised:
            detector.agree(SingleProcess())
        assert raised.value.finding == found
        assert re.search(r"in epoch 2, near update \d+: over the last [\d,]+ frames of worker 3, the training loss is .* than 1.5 times",
                         detector.described(found, 1, 4))
    else:
        detector.agree(SingleProcess())
    detector.forget_epoch()
    assert not detector.found and not detector.worker_state(3)["totals"]


def test_early_statistics_of_batch_normalisation_are_no_divergence():
    detector = Detector()
    detector.start(0.8, 0.8)
    detector.check_held_out(16.0, 6, 1000, statistics=True)
    for loss, updates, statistics in ((math.nan, 6, True), (16.0, 50, True), (16.0, 6, False)):
        with pytest.raises(Diverged):
            detector.check_held_out(loss, updates, 1000, statistics)


def test_no_number_is_seen_however_few_frames():
    detector, worker = Detector(), Counting()
    detector.start(5.0, 5.0)
    detector.look(0, worker, worker.train(1, math.nan))
    assert Finding.of(detector.found[0].numbers()).updates == 1 and "became nan" in detector.described(detector.found[0], 0, 1)


def test_the_loss_of_the_priors_is_that_of_the_best_constant_outputs(store, capsys, tmp_path):
    """As it is logged before training, on held-out data."""
    train_store, dev = FrameStore(store / "train"), FrameStore(store / "dev")
    priors = np.bincount(train_store.targets, minlength=5) / len(train_store)
    error = 0.5 * np.square(dev.target_feats - np.array(train_store.target_feats, np.float64).mean(0)).sum(1).mean()
    expected = {"xent": -np.log(priors[dev.targets]).mean(), "mse": error}
    for name in ("xent", "mse", "ctc"):
        assert train(store, tmp_path / name, "--num-epochs", "1", network=OBJECTIVE[name]) == 0
        logged = float(re.search(r"loss of the priors alone ([\d.]+)", capsys.readouterr().out)[1])
        assert logged == pytest.approx(expected.get(name, logged), abs=1e-4)
    outputs = OBJECTIVES["ctc"]().prior_outputs(train_store)
    assert np.exp(outputs).sum() == pytest.approx(1) and np.exp(outputs[1:]).sum() == pytest.approx(len(train_store.labels) / FRAMES)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_ends_with_a_sentence_within_the_epoch(store, tmp_path, capsys, schedule):
    exp = tmp_path / "exp"
    assert train(store, exp, *SCHEDULES[schedule], "--on-divergence", "stop") == 1
    said = capsys.readouterr().err
    epoch, rate = (2, "--learn-rates (was 2)") if schedule == "fixed" else (1, "--learn-rate (was ")
    assert len(said.splitlines()) == 1 and f"training diverged in epoch {epoch}, near update " in said and f"; lower {rate}" in said
    assert int(re.search(r"near update (\d+)", said)[1]) < epoch * FRAMES // 16
    assert len(history(exp)) == epoch - 1 and not (exp / "final.pt").exists() and not list(exp.rglob("*.tmp"))
    if schedule == "newbob":  # and there again, from its checkpoints
        assert train(store, exp, *SCHEDULES[schedule], "--on-divergence", "stop") == 1
        assert capsys.readouterr().err == said


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_does_and_names_what_to_change(store, tmp_path, capsys, strategy):
    options = [*SCHEDULES["exponential"], *several(strategy), "--num-epochs", "1"]
    assert train(store, tmp_path / "exp", *options, "--on-divergence", "stop") == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "training diverged in epoch 1" in said and "lower --learn-rate (was 2" in said
    assert CHANGES.get(strategy, "") in said
    assert train(store, tmp_path / "exp", *options, "--back-off-factor", "0.02") == 0
    out = capsys.readouterr().out
    assert out.count("WARNING: training diverged in epoch 1") == 1 and "(try 1 of 4)" in out
    (line,) = history(tmp_path / "exp")
    assert line["cv_loss"] < 1.5 and line["learn_rate"] == line["backed_off"][0]["learn_rate"]


@pytest.mark.parametrize("objective", OBJECTIVE)
def test_every_objective_does_and_a_lower_rate_recovers(store, tmp_path, capsys, objective):
    options = [*SCHEDULES["exponential"], "--learn-rate", "20", "--num-epochs", "2"]
    assert train(store, tmp_path / "exp", *options, "--on-divergence", "stop", network=OBJECTIVE[objective]) == 1
    assert "training diverged in epoch 1" in capsys.readouterr().err
    assert train(store, tmp_path / "exp", *options, "--back-off-factor", "0.02", network=OBJECTIVE[objective]) == 0
    out = capsys.readouterr().out
    before = float(re.search(r"^before training: cv loss ([\d.]+)", out, re.MULTILINE)[1])
    assert history(tmp_path / "exp")[-1]["cv_loss"] < before and "WARNING: training diverged in epoch 1" in out


def test_rbms_do(store, tmp_path, capsys):
    words = ["pretrain-dbn", "--hid-layers", "2", "--hid-dim", "8", "--splice", "1", *HERE, "--rbm-lrate-low", "30"]
    stores = [str(store), str(tmp_path / "dbn")]
    assert main([*words, "--on-divergence", "stop", *stores]) == 1
    assert "lower --rbm-lrate-low (was 30)" in capsys.readouterr().err
    assert main([*words, "--back-off-factor", "0.001", *stores]) == 0
    lines = history(tmp_path / "dbn")
    assert [len(line.get("backed_off", [])) for line in lines] == [1, 0, 0] and lines[1]["cv_loss"] < 1.0


def test_a_model_worse_than_the_priors_is_not_passed_over(store, tmp_path, capsys):
    for rate, warned in (("1e-5", True), ("0.05", False)):
        assert train(store, tmp_path / rate, "--schedule", "fixed", "--learn-rates", rate) == 0
        assert ("is still above that of the priors alone, 1.61" in capsys.readouterr().out) == warned


@pytest.mark.parametrize(("place", "said"), [("train", "training diverged in epoch 1"),
                                             ("dev", "the cross-validation loss is inf before training")])
def test_an_utterance_that_makes_the_loss_infinite_is_named(make_store, tmp_path, capsys, place, said):
    """Its target features are numbers, but not their squares. A lower rate would not help: there is no other try."""
    for name in ("train", "dev"):
        make_store([50] * 20, name=name, extras=["target_feats"])
    pdfs, rng = {f"u{n}": np.zeros(50, int) for n in range(20)}, np.random.default_rng(0)
    targets = {utt: rng.normal(size=(50, 3)).astype(np.float32) for utt in pdfs}
    targets["u7"][20] = 1e22
    pack(pdfs, lambda utt: rng.normal(size=(50, 4)).astype(np.float32), pdfs.get, 5, tmp_path / "store" / place,
         extras=Extras(target_feats=targets))
    assert train(tmp_path / "store", tmp_path / "exp", *SCHEDULES["fixed"], network=OBJECTIVE["mse"]) == 1
    error = capsys.readouterr().err
    assert said in error and f"store/{place}, u7: target features up to 1e+22, where those of others reach about" in error
    assert "look at its audio and make its features again (steps/make_mfcc.sh, steps/make_fbank.sh), or leave it out." in error
    assert error.count("ERROR") == 1


def test_it_gives_up_after_so_many_tries(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *SCHEDULES["warmup"], "--learn-rate", "1e9", "--back-off-tries", "2") == 1
    said = capsys.readouterr()
    assert said.out.count("WARNING") == 2 and "for 2 lower rates too; lower --learn-rate" in said.err


@pytest.mark.parametrize("options", [[], ["--ngpu", "2", "--fabric", "virtual", "--strategy", "ssgd"]])
def test_natural_gradients_of_what_is_no_number_are_no_fault_in_the_program(store, tmp_path, capsys, options):
    words = ["--learn-rate", "1e30", "--activation", "relu", "--optimizer", "ngsgd", "--max-change-per-sample", "0", *options]
    assert train(store, tmp_path / "exp", *words, "--on-divergence", "stop") == 1
    assert "the training loss became nan; lower --learn-rate (was 1e+30)" in capsys.readouterr().err


@pytest.fixture
def often(monkeypatch) -> None:
    """Looks at the loss every few minibatches, which a short epoch needs."""
    monkeypatch.setattr(trainer, "LOSS_CHECK_INTERVAL", 4)
    monkeypatch.setattr(divergence, "LEAST_FRAMES", 64)


RESUMED = {
    "newbob": [*SCHEDULES["newbob"], "--momentum", "0.5"],
    "in the second epoch": ["--learn-rates", "0.01,50,0.01", "--schedule", "fixed", "--optimizer", "ngsgd",
                            "--max-change-per-sample", "0"],
    "lstm": [*SCHEDULES["exponential"], "--learn-rate", "20"],
    **{strategy: [*SCHEDULES["exponential"], *several(strategy), "--num-epochs", "2"] for strategy in ("asgd", "adpsgd", "hadpsgd")},
    **{strategy: [*SCHEDULES["exponential"], *several(strategy), "--average-period", "1"] for strategy in ("ma, overlap", "bmuf")}}


@pytest.mark.parametrize("name", RESUMED)
def test_stopped_and_resumed_equals_undisturbed(short_store, tmp_path, name, monkeypatch, often):
    """Stopped at every third checkpoint, of which there is one at every update."""
    store, network = short_store, OBJECTIVE["xent, lstm"] if name == "lstm" else DNN
    options = [*RESUMED[name], "--back-off-factor", "0.02"]
    assert train(store, tmp_path / "whole", *options, network=network) == 0
    params, lines = outcome(tmp_path / "whole")
    assert [line["epoch"] for line in lines if "backed_off" in line] == [2 if name == "in the second epoch" else 1]
    stop_at(monkeypatch, lambda count: count % 3 == 0)
    status, stops = None, 0
    while status is None:
        try:
            status = train(store, tmp_path / "exp", *options, "--checkpoint-minutes", "0", network=network)
        except Interrupted:
            stops += 1
    again = outcome(tmp_path / "exp")
    assert status == 0 and stops > 2 and torch.equal(again[0], params) and again[1] == lines


@pytest.mark.parametrize("options", [[], [*several("ma"), "--average-period", "2"], several("adpsgd")])
def test_a_signal_with_a_loss_already_found_changes_nothing(short_store, tmp_path, monkeypatch, options, often):
    """The most urgent wish is to stop; what was found stands in the checkpoint."""
    store, options = short_store, [*SCHEDULES["exponential"], *options, "--back-off-factor", "0.02"]
    assert train(store, tmp_path / "whole", *options) == 0
    wish, signals = trainer.Trainer._wish, 0

    def stop_too(self):
        nonlocal signals
        if self.detector.found and not self._stop:
            os.kill(os.getpid(), signal.SIGTERM)
            signals += 1
        return wish(self)

    monkeypatch.setattr(trainer.Trainer, "_wish", stop_too)
    with contextlib.suppress(Terminated):
        train(store, tmp_path / "exp", *options)
    monkeypatch.setattr(trainer.Trainer, "_wish", wish)
    assert signals == 1
    assert train(store, tmp_path / "exp", *options) == 0
    one, other = outcome(tmp_path / "whole"), outcome(tmp_path / "exp")
    assert torch.equal(one[0], other[0]) and one[1] == other[1]


REAL = {"ma": ["--average-period", "5"], "adpsgd": ["--pattern", "pairwise"], "asgd": []}


@pytest.mark.parametrize("strategy", ["adpsgd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ma", "asgd"))])
def test_all_processes_of_a_job_go_back_or_end(store, tmp_path, strategy):
    job = ["--ngpu", "2", "--nproc", "2", "--strategy", strategy, *REAL[strategy], "--learn-rates", "20,0.5,0.5", "--momentum", "0"]
    status, _, err = Run(store, tmp_path / "stop", "--on-divergence", "stop", job=job).end()
    assert status == 1 and len(err.splitlines()) == 1 and "training diverged in epoch 1" in err
    assert not history(tmp_path / "stop") and not list((tmp_path / "stop").rglob("*.tmp"))
    status, out, err = Run(store, tmp_path / "exp", "--back-off-factor", "0.001", job=job).end()
    assert (status, err) == (0, "") and out.count("WARNING: training diverged in epoch 1") == 1
    _, lines = run_outcome(tmp_path / "exp")
    assert [line["frames"] for line in lines] == [FRAMES] * 3 and lines[-1]["cv_loss"] < 1.5


@pytest.mark.parametrize(("strategy", "factor", "ramps"), [("asgd", 4, True), ("adpsgd", 4, True), ("ma", 4, False), ("ssgd", 1, False)])
def test_the_factor_of_asynchronous_workers_rises_in_the_first_epoch(short_store, tmp_path, monkeypatch, capsys, strategy, factor, ramps):
    seen: dict[int, list[float]] = {}
    step = trainer.Trainer._on_step

    def note(self, rank, worker):
        seen.setdefault(worker.epoch, []).append(worker.learn_rate)
        step(self, rank, worker)

    monkeypatch.setattr(trainer.Trainer, "_on_step", note)
    assert train(short_store, tmp_path / "exp", "--schedule", "fixed", "--learn-rates", "0.001,0.001", *several(strategy)) == 0
    assert seen[1] == pytest.approx([0.001 * factor] * len(seen[1]))
    assert seen[0] == pytest.approx(np.linspace(0.001, 0.001 * factor, len(seen[0]) + 1)[:-1] if ramps else seen[1])
    assert ("x 4, linear, reached at the end of the first epoch" in capsys.readouterr().out) == ramps
