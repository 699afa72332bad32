"""Training as a user runs it: it learns, resumes bit for bit, and refuses what it cannot use."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.errors import UserError
from pykaldist.frames.shards import combine
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.io import container
from pykaldist.io.lock import locked
from pykaldist.io.posteriors import Posterior
from pykaldist.io.tables import MatrixWriter, read_archive
from pykaldist.nnet.dnn import make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import Network
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.train import trainer as trainer_module
from pykaldist.train.checkpoints import Checkpoints

COMMON = ["--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1",
          "--device", "cpu"]
VARIANTS = {
    "newbob": ["--schedule", "newbob", "--num-epochs", "5", "--momentum", "0.5"],
    "newbob that rejects": ["--schedule", "newbob", "--num-epochs", "6", "--learn-rate", "2.0"],
    "ngsgd": ["--optimizer", "ngsgd", "--momentum", "0.5", "--rank-in", "3", "--max-change", "0.75", "--num-epochs", "4"],
    "exponential": ["--schedule", "exponential", "--num-epochs", "4", "--l2-penalty", "1e-4", "--activation", "relu"],
    "newbob on accuracy": ["--newbob-on", "accuracy", "--num-epochs", "4"],
    "fixed": ["--schedule", "fixed", "--learn-rates", "0.02,0.01,0.03,0.005"],
    "warmup": ["--schedule", "warmup", "--num-epochs", "4", "--warmup-epochs", "1.5", "--anneal-from", "3"],
    "dropout": ["--schedule", "exponential", "--num-epochs", "4", "--dropout", "0.3", "--activation", "relu", "--bottleneck-dim", "6"],
    "layerwise": ["--schedule", "exponential", "--num-epochs", "2", "--hid-layers", "3", "--layerwise-epochs", "1", "--activation", "tanh",
                  "--learn-rate-coefs", "1,0.5,1,2", "--bias-learn-rate-coef", "0.5", "--init", "glorot",
                  "--glorot-distribution", "uniform"],
    "weights and soft targets": ["--schedule", "exponential", "--num-epochs", "4", "--momentum", "0.5"],
    "blocks": ["--schedule", "exponential", "--num-epochs", "3", "--randomizer-size", "80", "--randomizer-block", "20"],
    "mse": ["--objective", "mse", "--num-epochs", "4", "--activation", "tanh", "--learn-rate", "0.005"],
}


EXTRAS = {"weights and soft targets": ("weights", "posteriors"), "mse": ("weights", "target_feats")}


def make_stores(make_store, extras=()):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train", extras=extras)
    return make_store([30, 40], seed=2, name="dev", extras=extras).path.parent


@pytest.fixture
def store(make_store):
    return make_stores(make_store)


def train(store: Path, exp: Path, *options: str) -> int:
    rate = [] if "fixed" in options else ["--learn-rate", "0.02"]
    return main(["train", *COMMON, *rate, *options, str(store), str(exp)])


def outcome_history(exp: Path):
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in history]


def outcome(exp: Path):
    return container.load(exp / "final.pt")["params"], outcome_history(exp)


def test_it_learns_and_leaves_what_it_should(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["newbob"]) == 0
    _, history = outcome(tmp_path / "exp")
    assert history[-1]["cv_acc"] > 0.6  # five pdfs: chance is 0.2
    assert history[0]["frames"] == 265 and history[0]["updates"] == 9 and history[0]["time"] == "measured"
    assert (tmp_path / "exp" / "ali_train_pdf.counts").read_text().startswith(" [ ")
    config = json.loads((tmp_path / "exp" / "config.json").read_text())
    assert config["options"]["momentum"] == 0.5 and config["options"]["schedule"] == "newbob"
    assert "global minibatch  32 frames; 9 updates an epoch" in capsys.readouterr().out
    assert train(store, tmp_path / "exp", *VARIANTS["newbob"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_rates_are_those_of_the_schedule(store, tmp_path):
    """history.jsonl has the rate of an epoch's last minibatch: of the ninth of nine here."""
    assert train(store, tmp_path / "exp", *VARIANTS["warmup"]) == 0
    rates = [line["learn_rate"] for line in outcome_history(tmp_path / "exp")]
    assert rates == pytest.approx([0.02 * (0.1 + 0.9 * (8 / 9) / 1.5), 0.02, 0.02, 0.02 * 0.5**0.5])


def test_layerwise_pretraining_is_what_its_definition_says(store, tmp_path):
    """By hand: a network of one hidden layer, trained; its hidden layer and fresh others make the next."""
    options = ["--schedule", "fixed", "--learn-rates", "0.02,0.02", "--hid-layers", "2"]
    assert train(store, tmp_path / "one", *options, "--hid-layers", "1") == 0
    assert train(store, tmp_path / "two", *options, "--layerwise-epochs", "2") == 0
    one, staged = outcome_history(tmp_path / "one"), outcome_history(tmp_path / "two" / "layerwise" / "1")
    assert [line["cv_loss"] for line in one] == [line["cv_loss"] for line in staged]
    assert train(store, tmp_path / "plain", *options) == 0
    assert outcome_history(tmp_path / "two")[0]["cv_loss"] < outcome_history(tmp_path / "plain")[0]["cv_loss"]
    assert train(store, tmp_path / "two", *options) == 0  # other options: a clean start
    assert not (tmp_path / "two" / "layerwise").exists()


@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
def test_a_layer_with_coefficient_0_stays_as_it_is(store, tmp_path, optimizer):
    assert train(store, tmp_path / "exp", "--optimizer", optimizer, "--num-epochs", "2", "--learn-rate-coefs", "1,0,1") == 0
    network = Network.load(tmp_path / "exp" / "final.pt")
    fresh = make_dnn(network.options, 12, 5)
    init_dnn(fresh, network.options, torch.Generator().manual_seed(777))
    same = [torch.equal(one, other) for one, other in zip(_weights(network.model), _weights(fresh), strict=True)]
    assert same == [False, True, False]


def _weights(model: Model) -> list[torch.Tensor]:
    return [torch.cat([p.flatten() for p in views]) for views in model.views(model.params) if views]


def test_a_store_with_one_hot_posteriors_and_unit_weights_trains_as_without(make_store, tmp_path):
    plain = make_stores(make_store)
    train(plain, tmp_path / "plain", *VARIANTS["fixed"])
    for name in ("train", "dev"):
        stored = FrameStore(plain / name)
        utts = dict(zip(stored.utts, zip(stored.offsets, stored.offsets[1:], strict=False), strict=True))
        pdfs = {utt: np.array(stored.targets[a:b]) for utt, (a, b) in utts.items()}
        feats = {utt: np.array(stored.feats[a:b]) for utt, (a, b) in utts.items()}
        pack(utts, feats.__getitem__, pdfs.get, 5, tmp_path / "extra" / name, extras=Extras(
            {utt: np.ones(len(p)) for utt, p in pdfs.items()}, {utt: Posterior.from_alignment(p) for utt, p in pdfs.items()}))
    train(tmp_path / "extra", tmp_path / "weighted", *VARIANTS["fixed"])
    one, other = outcome(tmp_path / "plain"), outcome(tmp_path / "weighted")
    assert torch.allclose(one[0], other[0], atol=1e-5)
    assert [line["cv_acc"] for line in one[1]] == pytest.approx([line["cv_acc"] for line in other[1]])
    assert (tmp_path / "plain" / "ali_train_pdf.counts").read_text() == (tmp_path / "weighted" / "ali_train_pdf.counts").read_text()


def test_a_network_of_target_features_is_forwarded_and_not_decoded(make_store, tmp_path, capsys):
    store = make_stores(make_store, ("target_feats",))
    assert train(store, tmp_path / "exp", *VARIANTS["mse"], "--bottleneck-dim", "2") == 0
    assert "mse, target features" in capsys.readouterr().out
    assert not (tmp_path / "exp" / "ali_train_pdf.counts").exists()
    dev = FrameStore(store / "dev")
    feats = np.array(dev.feats[: dev.offsets[1]])
    with MatrixWriter(tmp_path / "f.ark", tmp_path / "f.scp") as writer:
        writer.write("utt000", feats)
    for options, dim in (([], 3), (["--bottleneck=true"], 2)):
        for model in (["final.pt"], ["--feature-transform", "final.feature_transform", "final.nnet"]):
            paths = [str(tmp_path / "exp" / word) if word.startswith("final") else word for word in model]
            assert main(["nnet-forward", *options, *paths, str(tmp_path / "f.scp"), str(tmp_path / f"{len(model)}.ark")]) == 0
        (_, one), (_, other) = (next(read_archive(tmp_path / f"{n}.ark")) for n in (1, 3))
        assert one.shape == (30, dim) and np.array_equal(one, other)
    assert np.square(dict(read_archive(tmp_path / "3.ark"))["utt000"]).mean() > 0
    with pytest.raises(UserError, match="cannot be decoded"):
        Network.load(tmp_path / "exp" / "final.pt").loglikes(feats)


@pytest.mark.parametrize("name", VARIANTS)
def test_stopped_and_resumed_equals_undisturbed(make_store, tmp_path, name, monkeypatch, capsys):
    """Stopped after each of several updates, within epochs and at their ends, with a checkpoint at every update. And it learns."""
    store = make_stores(make_store, EXTRAS.get(name, ()))
    assert train(store, tmp_path / "whole", *VARIANTS[name]) == 0
    expected = outcome(tmp_path / "whole")
    before = re.search(r"^before training: cv loss ([\d.]+)", capsys.readouterr().out, re.MULTILINE)
    assert min(line["cv_loss"] for line in expected[1]) < 0.95 * float(before[1])
    assert all(("cv_acc" in line) == (name != "mse") for line in expected[1])
    assert any("backed_off" in line for line in expected[1]) == (name == "newbob that rejects")
    stop_at(monkeypatch, lambda count: count in (3, 9, 14, 21))
    for _ in range(4):
        with pytest.raises(Interrupted):
            train(store, tmp_path / "exp", *VARIANTS[name], "--checkpoint-minutes", "0")
    assert train(store, tmp_path / "exp", *VARIANTS[name], "--checkpoint-minutes", "0") == 0
    params, history = outcome(tmp_path / "exp")
    assert torch.equal(params, expected[0])
    assert history == expected[1]
    if name == "newbob that rejects":
        assert not all(line["accepted"] for line in history)
    if name == "layerwise":
        for layers in ("1", "2"):
            same = [outcome_history(folder / "layerwise" / layers) for folder in (tmp_path / "whole", tmp_path / "exp")]
            assert same[0] == same[1] and len(same[0]) == 1


@pytest.mark.parametrize("options", [["--ngpu", "2", "--fabric", "virtual", "--strategy", "ma"],
                                     ["--randomizer-size", "80", "--randomizer-block", "20"]])
def test_a_store_in_shards_gives_the_model_of_the_whole_one(store, tmp_path, options):
    whole = FrameStore(store / "train")
    for shard, utts in (("1", range(3)), ("2", range(3, 7))):
        pdfs = {whole.utts[n]: whole.targets[whole.offsets[n] : whole.offsets[n + 1]] for n in utts}
        feats = {whole.utts[n]: whole.features(n) for n in utts}
        pack(pdfs, feats.__getitem__, pdfs.get, whole.manifest.num_pdfs, tmp_path / "shards" / shard)
    combine(tmp_path / "joined" / "train", [tmp_path / "shards" / "1", tmp_path / "shards" / "2"])
    (tmp_path / "joined" / "dev").symlink_to(store / "dev")
    command = ["train", *COMMON, "--schedule", "exponential", "--num-epochs", "2", *options]
    assert main([*command, str(store), str(tmp_path / "one")]) == main([*command, str(tmp_path / "joined"), str(tmp_path / "two")]) == 0
    assert (tmp_path / "one" / "final.nnet").read_bytes() == (tmp_path / "two" / "final.nnet").read_bytes()


def test_a_damaged_checkpoint_is_passed_over(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    expected = outcome(tmp_path / "exp")
    (tmp_path / "exp" / "final.pt").unlink()
    *_, newest = list(Checkpoints(tmp_path / "exp" / "ckpt").files().values())[-1].values()
    newest.write_bytes(newest.read_bytes()[:-10])
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    assert "checksum does not match" in capsys.readouterr().err
    params, history = outcome(tmp_path / "exp")
    assert torch.equal(params, expected[0]) and history == expected[1]


@pytest.mark.parametrize("averaged", [False, True])
def test_fisher_matrices_are_averaged_on_request(store, tmp_path, averaged):
    options = ["--optimizer", "ngsgd", "--ngpu", "3", "--fabric", "virtual", "--strategy", "ma", "--num-epochs", "1"]
    assert train(store, tmp_path, *options, "--average-fisher", str(averaged).lower()) == 0
    *_, parts = Checkpoints(tmp_path / "ckpt").files().values()
    spectra = [container.load(parts[rank])["worker"]["optimizer"]["fisher"][1]["input"]["d"] for rank in range(3)]
    assert all(torch.equal(spectra[0], other) for other in spectra[1:]) == averaged


def test_other_options_start_clean(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"], "--seed", "3") == 0
    assert "starting clean" in capsys.readouterr().err
    assert train(store, tmp_path / "fresh", *VARIANTS["exponential"], "--seed", "3") == 0
    assert torch.equal(outcome(tmp_path / "exp")[0], outcome(tmp_path / "fresh")[0])


@pytest.mark.parametrize(("options", "words"), [
    (["--schedule", "exponential", "--halving-factor", "0.3"], "--halving-factor belongs to --schedule newbob"),
    (["--schedule", "fixed", "--learn-rates", "0.1", "--num-epochs", "3"], "--num-epochs belongs to --schedule newbob"),
    (["--objective", "mse"], "has no target features; pack it with --target-feats"),
    (["--init", "he", "--hid-bias-mean", "1"], "--hid-bias-mean belongs to --init nnet1"),
    (["--dbn", "dbn", "--init", "glorot"], "--dbn and the options of --init exclude each other"),
    (["--dbn", "dbn", "--hid-bias-mean", "1"], "--dbn and the options of --init exclude each other"),
    (["--dbn", "dbn", "--layerwise-epochs", "1"], "--dbn and --layerwise-epochs exclude each other"),
    (["--layerwise-learn-rate", "0.1"], "with --layerwise-epochs"),
    (["--layerwise-epochs", "1", "--hid-layers", "1"], "leaves nothing to pretrain"),
    (["--learn-rate-coefs", "1,1"], "has 2 factors, the network 3"),
    (["--ngpu", "0"], "--ngpu 0"),
    (["--ngpu", "2", "--nproc", "3"], "a process without a worker"),
    (["--ngpu", "300", "--fabric", "virtual"], "265 frames, too few for 300 splits"),
    (["--strategy", "ma", "--block-momentum", "0.5"], "--block-momentum belongs to --strategy bmuf"),
    (["--strategy", "ma", "--reduce-type", "butterfly", "--ngpu", "3", "--fabric", "virtual"], "a power of two of workers, found 3"),
    (["--momentum", "1.5"], "--momentum 1.5"),
    (["--randomizer-block", "20"], "--randomizer-block 20: expected a positive number of frames, and --randomizer-size"),
    (["--randomizer-size", "20", "--randomizer-block", "5"], "as many frames as a minibatch (32)"),
    (["--device", "abacus"], "--device abacus"),
    (["--learn-rate", "1e30", "--activation", "relu"], "lower --learn-rate"),
    (["--learn-rate", "1e3"], "for 4 lower rates too; lower --learn-rate (was 1000)"),
    (["--learn-rate", "1e-30"], "no epoch made the cross-validation loss fall"),
    (["--back-off-factor", "1"], "--back-off-factor 1 is outside (0, 1)"),
    (["--back-off-tries", "0"], "use --on-divergence stop"),
    (["--hid-dim", "0"], "--hid-dim 0"),
    (["--num-threads", "-1"], "--num-threads -1"),
    (["--device", "mps"], "--device mps"),
    (["--num-epochs", "0"], "--num-epochs 0"),
    (["--keep-checkpoints", "0"], "--keep-checkpoints 0"),
])
def test_what_it_cannot_do_is_said_in_words(store, tmp_path, capsys, options, words):
    assert train(store, tmp_path / "exp", *options) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "exp" / "final.pt").exists()


def test_frames_are_not_shuffled_in_groups_where_sequences_are(store, tmp_path, capsys):
    assert main(["train", "--nnet", "lstm", "--randomizer-size", "100", "--device", "cpu", str(store), str(tmp_path / "exp")]) == 1
    assert "--randomizer-size 100: utterances are what is shuffled here" in capsys.readouterr().err


def test_a_damaged_store_is_not_trained_on(store, tmp_path, capsys):
    path = store / "train" / "feats.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert train(store, tmp_path / "exp") == 1
    assert "feats.bin does not match its checksum" in capsys.readouterr().err


def test_one_process_at_a_time(store, tmp_path, capsys):
    with locked(tmp_path / "exp"):
        assert train(store, tmp_path / "exp") == 1
    assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
    assert train(store, tmp_path / "exp") == 0


def test_an_unfinished_network_is_not_taken_for_a_gmm(store, tmp_path):
    assert train(store, tmp_path / "exp") == 0
    (tmp_path / "exp" / "final.pt").unlink()
    (tmp_path / "exp" / "final.mdl").write_bytes(b"a model")
    with pytest.raises(UserError, match="has not ended"):
        load_acoustic_model(tmp_path / "exp")


def test_stores_of_different_systems_are_refused(make_store, tmp_path, capsys):
    make_store([20, 30], name="train")
    store = make_store([30, 40], num_pdfs=6, name="dev").path.parent
    assert train(store, tmp_path / "exp") == 1
    assert "num_pdfs 5, dev 6" in capsys.readouterr().err


def test_the_loss_is_watched_within_an_epoch(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainer_module, "LOSS_CHECK_INTERVAL", 1)
    assert train(store, tmp_path / "exp", "--learn-rate", "1e30", "--activation", "relu", "--on-divergence", "stop") == 1
    assert "near update 2:" in capsys.readouterr().err
