"""Recurrent networks: their options, what they see, how utterances go through them, and their nnet1 files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from round_trip import through_nnet1

from pykaldist.errors import UserError
from pykaldist.nnet.convert import from_nnet1, to_nnet1
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.nnet.kinds import KINDS, PRESETS, init_nnet, kind_of, make_nnet
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.onnx_export import export_onnx

FEATS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


def make(options, splice=(0,)) -> Network:
    model = make_nnet(options, 2 * len(splice), 4, len(splice))
    init_nnet(model, options, torch.Generator().manual_seed(1))
    model.params.add_(torch.randn(len(model.params), generator=torch.Generator().manual_seed(2)), alpha=0.3)
    transform = FeatureTransform(list(splice), torch.linspace(-1, 1, 2 * len(splice)), torch.linspace(0.5, 2, 2 * len(splice)))
    return Network(options, model, transform, torch.tensor([10, 0, 30, 60]))


SHAPES = {
    "lstm": LstmOptions(hid_layers=2, hid_dim=6),
    "lstm, all": LstmOptions(hid_layers=2, hid_dim=6, projection_dim=4, peepholes=True, cell_clip=0.5, dropout=0.1, bottleneck_dim=3),
    "blstm": BlstmOptions(hid_layers=2, hid_dim=6),
    "blstm, all": BlstmOptions(hid_layers=2, hid_dim=12, projection_dim=8, peepholes=True, cell_clip=0.0, dropout=0.1, bottleneck_dim=3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_nnet1_files_run_as_the_network_does_and_become_it_again(shape, tmp_path):
    network = make(SHAPES[shape])
    again, expected = through_nnet1(network, tmp_path / "final.nnet", FEATS), network.log_posteriors(FEATS)
    assert np.array_equal(again.log_posteriors(FEATS), expected)
    assert type(again.options) is type(network.options)
    for name in ("hid_layers", "hid_dim", "projection_dim", "peepholes", "cell_clip", "dropout", "bottleneck_dim"):
        assert getattr(again.options, name) == pytest.approx(getattr(network.options, name))


def test_a_network_of_mixed_layers_is_refused():
    nnet, transform = to_nnet1(make(SHAPES["lstm"]))
    other, _ = to_nnet1(make(LstmOptions(hid_layers=1, hid_dim=6, cell_clip=3.0)))
    nnet.components[1] = to_nnet1(make(LstmOptions(hid_layers=2, hid_dim=6, cell_clip=3.0)))[0].components[1]
    with pytest.raises(UserError, match="layers of one kind and size"):
        from_nnet1(nnet, transform, None)
    assert from_nnet1(other, transform, None).options.cell_clip == 3.0


@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_ours_keep_the_kind(shape, tmp_path):
    network = make(SHAPES[shape])
    network.save(tmp_path / "final.pt")
    loaded = Network.load(tmp_path / "final.pt")
    assert loaded.options == network.options and np.array_equal(loaded.loglikes(FEATS), network.loglikes(FEATS))


def test_delayed_targets_see_so_many_frames_of_the_future():
    network = make(LstmOptions(hid_layers=1, hid_dim=6, target_delay=3), splice=(3,))
    before = network.log_posteriors(FEATS)
    changed = FEATS.copy()
    changed[20:] += 1.0
    after = network.log_posteriors(changed)
    assert np.array_equal(before[:17], after[:17]) and not np.allclose(before[17], after[17])


def test_chunks_and_latency_control_that_see_everything_are_the_whole_utterance():
    network = make(SHAPES["blstm, all"])
    whole = network.log_posteriors(FEATS)
    network.forwarding = ForwardOptions("chunks", "0-64+0")
    assert np.allclose(network.log_posteriors(FEATS), whole, atol=1e-5)
    network.forwarding = ForwardOptions("chunks", "50-7+50", 5)
    assert np.allclose(network.log_posteriors(FEATS), whole, atol=1e-5)
    network.forwarding = ForwardOptions("latency-controlled", "7+50")
    assert np.allclose(network.log_posteriors(FEATS), whole, atol=1e-5)


def test_chunks_are_utterances_of_their_own_and_overlaps_are_averaged():
    network = make(SHAPES["blstm"])
    alone = [np.exp(network.log_posteriors(FEATS[a:b])) for a, b in ((0, 20), (10, 30), (20, 40), (30, 50))]
    network.forwarding = ForwardOptions("chunks", "20", 10)
    got = np.exp(network.log_posteriors(FEATS))
    expected = np.concatenate([alone[0][:10], *[(alone[k][10:] + alone[k + 1][:10]) / 2 for k in range(3)], alone[3][10:]])
    assert np.allclose(got, expected, atol=1e-5)


def test_latency_control_knows_the_past_and_a_bit_of_the_future():
    """Of one layer: forward in time everything before, backward in time the chunk and what follows it."""
    network = make(BlstmOptions(hid_layers=1, hid_dim=6))
    network.forwarding = ForwardOptions("latency-controlled", "10+5")
    before = network.log_posteriors(FEATS)
    for place, reach in ((0, 0), (24, 10), (25, 20), (49, 40)):
        changed = FEATS.copy()
        changed[place] += 1.0
        different = np.abs(network.log_posteriors(changed) - before).max(1) > 0
        assert not different[:reach].any() and different[place]
    assert different[40:].all()


@pytest.mark.parametrize(("options", "forwarding", "words"), [
    (SHAPES["lstm"], ForwardOptions("chunks"), "for bidirectional networks"),
    (BlstmOptions(sequences="whole", hid_dim=6), ForwardOptions("chunks"), "say --forward-chunk"),
    (BlstmOptions(hid_dim=6, chunk="20"), ForwardOptions("chunks"), "less than a chunk's 20")])
def test_ways_that_a_network_does_not_go_are_refused(options, forwarding, words):
    network = make(options)
    network.forwarding = forwarding
    with pytest.raises(UserError, match=words):
        network.log_posteriors(FEATS)


def test_a_recurrent_network_is_not_exported_to_onnx(tmp_path):
    with pytest.raises(UserError, match="--nnet lstm is not exported to ONNX so far"):
        export_onnx(make(SHAPES["lstm"]), tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize(("kind", "options", "words"), [
    (BlstmOptions, {"hid_dim": 5}, "of two directions, and odd"), (BlstmOptions, {"sequences": "streams"}, "bidirectional"),
    (LstmOptions, {"hid_layers": 0}, "a layer or more"), (LstmOptions, {"cell_clip": -1.0}, "--cell-clip -1"),
    (LstmOptions, {"target_delay": -1}, "--target-delay -1"), (LstmOptions, {"dropout": 1.0}, "outside"),
    (LstmOptions, {"learn_rate_coefs": "1,1"}, "has 2 factors, the network 3")])
def test_shapes_that_make_no_sense_are_refused(kind, options, words):
    with pytest.raises(UserError, match=words):
        kind(**options)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_the_published_sizes_and_a_small_version(preset):
    kind, values = PRESETS[preset]
    model = make_nnet(KINDS[kind].options(**values), 1320, 9304, 11, "meta")
    if preset.endswith("-small"):
        assert preset.removesuffix("-small") in PRESETS and len(model.params) < 1.2e7
    else:
        assert f"{preset}-small" in PRESETS and PRESETS[f"{preset}-small"][0] == kind


def test_the_dblstm_of_chen_and_huo_has_its_11_million_parameters():
    """Seed 001: 5 x 512, 9,304 outputs, about 11 million; their features are 52-dimensional or so."""
    kind, values = PRESETS["chen2016-dblstm"]
    options = KINDS[kind].options(**values)
    assert kind_of(options) == "blstm" and 10.5e6 < len(make_nnet(options, 52, 9304, 1, "meta").params) < 12.5e6
