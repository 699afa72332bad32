"""Training by objectives of lattices: it lifts them, for DNNs and BLSTMs and many workers; Kaldi's command lines; what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.network import Network
from pykaldist.train import trainer
from pykaldist.train.best import BestModel
from pykaldist.train.sequence_forms import read_sequence_form

HERE = ["--device", "cpu", "--num-threads", "1", "--schedule", "fixed", "--learn-rates", "0.02,0.02,0.02"]
DNN = ["--hid-layers", "1", "--hid-dim", "16", "--splice", "1"]


@pytest.fixture
def store(make_store: Callable[..., FrameStore], make_denlats: Callable[..., Path], tmp_path: Path) -> Path:
    """Frame stores of 12 and 4 utterances, and in `denlats` lattices of all but one of these."""
    lengths = [20, 35, 50, 44, 60, 31, 25, 40, 38, 22, 51, 47]
    stores = [make_store(lengths, seed=1), make_store([30, 40, 25, 33], seed=2, name="dev", utt="dev")]
    stores[1].utts[3] = "renamed"
    make_denlats(stores[0].path.parent / "denlats", *stores)
    return stores[0].path.parent


def train(store: Path, exp: Path, *options: str) -> int:
    return main(["train", *HERE, "--denlats", str(store / "denlats"), *options, str(store), str(exp)])


def history(exp: Path) -> list[dict]:
    return [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("objective", "options"), [
    ("smbr", DNN), ("mpe", [*DNN, "--minibatch-utts", "3", "--one-silence-class", "false"]), ("mmi", [*DNN, "--boost", "0.1"]),
    ("smbr", [*DNN, "--xent-smoothing", "0.2", "--optimizer", "ngsgd"]),
    ("mmi", [*DNN, "--ngpu", "2", "--strategy", "ma", "--average-period", "2", "--fabric", "virtual"]),
    ("smbr", ["--nnet", "blstm", "--hid-layers", "1", "--hid-dim", "8", "--sequences", "whole", "--num-streams", "2"])],
    ids=lambda value: value if isinstance(value, str) else value[0] + value[-1])
def test_training_lifts_the_objective(store: Path, tmp_path: Path, objective: str, options: list[str],
                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert train(store, tmp_path / "exp", "--objective", objective, *options) == 0
    lines = history(tmp_path / "exp")
    value = "mmi" if objective == "mmi" else "expected_accuracy"
    assert len(lines) == 3 and "lattices of 12 of 12 utterances" in capsys.readouterr().out
    for part in ("cv", "train"):
        assert lines[-1][f"{part}_{value}"] > lines[0][f"{part}_{value}"]
    assert lines[-1]["cv_loss"] < lines[0]["cv_loss"]
    assert Network.load(tmp_path / "exp" / "final.pt").counts is not None


@pytest.mark.parametrize(("options", "said"), [
    (["--objective", "smbr", "--boost", "0.1"], "--boost belongs to --objective mmi"),
    (["--objective", "smbr", "--minibatch-size", "64"], "minibatches of --objective smbr are --minibatch-utts utterances"),
    (["--objective", "mmi", "--partition-level", "frame"], "--objective mmi trains on sequences"),
    (["--objective", "smbr", "--nnet", "lstm"], "is of whole utterances; add --sequences whole"),
    (["--objective", "smbr", "--nnet", "lstm", "--sequences", "whole", "--minibatch-utts", "2"], "are --num-streams utterances"),
    (["--objective", "smbr", "--xent-smoothing", "1"], "expected a share"), (["--objective", "mmi", "--boost", "-1"], "is negative"),
    (["--objective", "smbr", "--l2-to-start", "0.1"], "--l2-to-start 0.1 needs --nnet-init"),
    (["--objective", "smbr", "--acwt", "0"], "expected a positive scale"), (["--objective", "xent"], "--denlats belongs to --objective")])
def test_what_does_not_fit_is_refused(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str],
                                      said: str) -> None:
    assert train(store, tmp_path / "exp", *options) == 1
    assert said in capsys.readouterr().err


def test_changed_lattices_are_found(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store / "denlats" / "graph.bin"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    assert train(store, tmp_path / "exp", "--objective", "smbr", *DNN) == 1
    assert "graph.bin does not match its checksum" in capsys.readouterr().err


def test_lattices_of_another_model_are_refused(store: Path, tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "final.mdl").write_bytes(gzip.decompress((golden / "seq/trans.mdl.txt.gz").read_bytes()))
    assert train(store, tmp_path / "exp", "--objective", "smbr", *DNN) == 1
    assert "has lattices of another model than" in capsys.readouterr().err


@pytest.fixture
def src(store: Path, tmp_path: Path) -> Path:
    """A network that was trained with cross-entropy."""
    exp = tmp_path / "xent"
    assert main(["train", *HERE[:4], "--num-epochs", "1", "--schedule", "exponential", *DNN, str(store), str(exp)]) == 0
    return exp


def test_kaldis_command_lines_go_on_from_a_network(store: Path, src: Path, tmp_path: Path) -> None:
    arguments = ["data", "lang", str(src), "ali", "denlats", str(tmp_path / "exp")]
    form = read_sequence_form("train_mpe", ["--num-iters", "3", "--halving-factor=0.5", "--do-smbr", "false", "--acwt", "0.2", *arguments])
    assert form.job.items() >= {"objective": "mpe", "learn_rates": "1e-05,5e-06,2.5e-06", "acwt": "0.2", "hid_layers": "1", "hid_dim": "16",
                                "nnet_init": str(src / "final.nnet"), "denlats": str(tmp_path / "exp/denlats"), "nnet": "dnn"}.items()
    assert form.pack == {"cmvn_opts": "--norm-means=false", "delta_opts": "--delta-order=0", "cv_percent": "10"} and not form.lattices
    mmi = read_sequence_form("train_mmi", ["--boost=0.1", "--unkphonelist", "3:4", "--add-reference", "true", *arguments])
    assert mmi.job["objective"] == "mmi" and mmi.job["boost"] == "0.1"
    assert mmi.lattices == {"unkphonelist": "3:4", "reference_data": arguments[0]}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in form.job.items() if name != "denlats"]
    assert main(["train", *HERE[:4], *words, "--denlats", str(store / "denlats"), str(store), str(tmp_path / "exp")]) == 0
    before, after = (Network.load(exp / "final.pt").model.params for exp in (src, tmp_path / "exp"))
    assert 0 < (before - after).abs().max() < 0.01  # it went on from there, at small rates


def test_a_penalty_keeps_the_network_near_its_start(store: Path, src: Path, tmp_path: Path) -> None:
    """Weights; also where workers compute together (a cross-entropy training, of which stacks are made)."""
    start = Network.load(src / "final.pt").model.params
    stacked = ["--objective", "xent", "--ngpu", "2", "--strategy", "ma", "--average-period", "2", "--fabric", "virtual",
               "--minibatch-size", "64"]
    for kind, options in (("smbr", ["--objective", "smbr", "--denlats", str(store / "denlats")]), ("xent", stacked)):
        moved = []
        for name, penalty in (("free", "0"), ("pulled", "0.3")):
            exp = tmp_path / f"{kind}_{name}"
            assert main(["train", *HERE, *DNN, *options, "--nnet-init", str(src / "final.nnet"), "--feature-transform",
                         str(src / "final.feature_transform"), "--l2-to-start", penalty, str(store), str(exp)]) == 0
            moved.append(float((Network.load(exp / "final.pt").model.params - start).norm()))
        assert 0 < moved[1] < 0.5 * moved[0], (kind, moved)


def test_an_objective_that_falls_ends_training(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """After three epochs in a row; the model is that of the best epoch, also where the run is made again."""
    rates = ["--schedule", "fixed", "--learn-rates", "0.02,0.02,0.02,0.02,0.02,0.02"]
    assert train(store, tmp_path / "short", "--objective", "smbr", *DNN, *rates[:3], "0.02,0.02") == 0
    losses = iter([1.0, 1.0, 0.9, 0.7, 0.8, 0.85, 0.95])  # before training, of the priors, and after each epoch

    def evaluated(*arguments: object) -> dict[str, float]:
        return {**evaluate(*arguments), "loss": next(losses)}

    evaluate = trainer.evaluate
    monkeypatch.setattr(trainer, "evaluate", evaluated)
    capsys.readouterr()
    assert train(store, tmp_path / "exp", "--objective", "smbr", *DNN, *rates) == 0
    said = capsys.readouterr().out
    assert "WARNING: the held-out objective has fallen for 3 epochs in a row; training ends, and the model kept is that of epoch 2" in said
    assert len(history(tmp_path / "exp")) == 5
    best, short = (Network.load(tmp_path / exp / "final.pt").model.params for exp in ("exp", "short"))
    assert torch.equal(best, short)
    (tmp_path / "exp/final.pt").unlink()
    assert train(store, tmp_path / "exp", "--objective", "smbr", *DNN, *rates) == 0
    assert torch.equal(Network.load(tmp_path / "exp/final.pt").model.params, best)


def test_only_objectives_of_lattices_end_so() -> None:
    """And the model before training may be the best."""
    params = torch.zeros(2)
    for patience, ended in ((None, False), (3, True)):
        best = BestModel(params, patience)
        best.start(0.1, params)
        for epoch, loss in enumerate((0.2, 0.3, 0.4), 1):
            best.note(epoch, loss, params + epoch)
        assert best.ended == ended
    assert "the model kept is the one before training, the best; lower --learn-rate" in best.described("--learn-rate")
    again = BestModel(params + 1, 3)
    again.load_state_dict(best.state_dict())
    assert again.ended and again.params is not None and torch.equal(again.params, params)
    best.note(4, 0.35, params)
    assert not best.ended and best.epoch == 0


def test_a_network_that_forgets_is_told(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out words that get worse while the objective improves; of the model that is kept, and also where the run is resumed."""
    wers = iter([0.1, 0.1, 0.1, 0.105, 0.2])  # before training, of the priors, and after each epoch

    def evaluated(*arguments: object) -> dict[str, float]:
        return {**evaluate(*arguments), "wer": next(wers)}

    evaluate = trainer.evaluate
    monkeypatch.setattr(trainer, "evaluate", evaluated)
    assert train(store, tmp_path / "exp", "--objective", "smbr", *DNN) == 0
    said = capsys.readouterr().out
    assert "WER on lattices 10.50 %" in said and [line["cv_wer"] for line in history(tmp_path / "exp")] == [0.1, 0.105, 0.2]
    assert "WARNING: 20.00 % of held-out words are wrong on their lattices, before training 10.00 %: the network forgets" in said
    best = BestModel(torch.zeros(2), 3)
    for epoch, (loss, wer) in enumerate(((0.5, 0.3), (0.4, 0.32), (0.45, 0.9), (0.46, 0.9), (0.47, 0.9))):
        best.start(loss, torch.zeros(2), wer) if epoch == 0 else best.note(epoch, loss, torch.zeros(2), wer)
    assert best.ended and not best.forgets  # the one that is kept is good
    again = BestModel(torch.zeros(2), 3)
    again.load_state_dict(best.state_dict())
    assert (again.first_wer, again.wer) == (0.3, 0.32)
    assert not BestModel(torch.zeros(2), None).forgets


def test_kaldis_command_lines_refuse_what_has_no_meaning(src: Path) -> None:
    arguments = ["data", "lang", str(src), "ali", "denlats", "exp"]
    for words, said in ((["--num-iters", "0", *arguments], "expected 1 or more"), (arguments[1:], "found 5 arguments"),
                        (["--do-smbr", "maybe", *arguments], "expected true or false"), (["--ivector", "x", *arguments], "i-vectors"),
                        (["--nnet", "none.nnet", *arguments], "none.nnet does not exist")):
        with pytest.raises(UserError, match=said):
            read_sequence_form("train_mpe", words)

