"""Kaldi's command lines in the words of the trainer: what each option becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.convert import from_feature_transform, from_nnet1, to_component, to_feature_transform
from pykaldist.nnet.network import FeatureTransform
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.prototype import read_prototype, read_splice
from pykaldist.train.kaldi_forms import Form, embedded, read_form, shape_of, split

SIX = ["tr", "cv", "lang", "ali_tr", "ali_cv", "exp"]


def train(*options: str) -> Form:
    return read_form("train", [*options, *SIX])


def pretrain(*options: str) -> Form:
    return read_form("pretrain_dbn", [*options, "tr", "exp"])


@pytest.fixture
def dbn(tmp_path: Path) -> Path:
    """A pretraining folder of Kaldi: two layers of 3 units on 2 features of 3 frames."""
    components = []
    for into in (6, 3):
        components += [to_component("AffineTransform", 3, into, linearity=np.ones((3, into), np.float32), bias=np.zeros(3, np.float32)),
                       to_component("Sigmoid", 3, 3)]
    Nnet1(components).write(tmp_path / "2.dbn")
    to_feature_transform(FeatureTransform([-1, 0, 1], torch.zeros(6), torch.ones(6))).write(tmp_path / "final.feature_transform")
    (tmp_path / "cmvn_opts").write_text("--norm-means=true --norm-vars=true\n")
    (tmp_path / "delta_opts").write_text("--delta-order=2\n")
    return tmp_path


def test_defaults_are_those_of_kaldi():
    form = train()
    assert [str(path) for path in form.arguments] == SIX and form.lang_check and form.labelled
    assert form.pack == {"cmvn_opts": "--norm-means=false", "delta_opts": "--delta-order=0"}
    assert form.job == {"hid_layers": "4", "hid_dim": "1024", "activation": "sigmoid", "init": "nnet1", "splice": "5",
                        "input_stddev_factor": f"{12 ** -0.5:.9g}", "seed": "777", "randomizer_seed": "777"}
    form = pretrain()
    assert form.job == {"hid_layers": "6", "hid_dim": "2048", "splice": "5", "param_stddev": "0.1", "param_stddev_first": "0.1",
                        "input_vis_type": "gauss"}
    assert not form.labelled


def test_options_of_other_programs_become_the_trainers():
    job = train("--scheduler-opts", "--momentum 0.9 --max-iters=7 --keep-lr-iters 2 --halving-factor 0.3",
                "--train-tool-opts", "--minibatch-size=512 --randomizer-size=32768 --randomizer-seed=3", "--seed", "5").job
    assert {name: job[name] for name in ("momentum", "num_epochs", "keep_lr_iters", "halving_factor", "minibatch_size", "seed",
                                         "randomizer_seed")} == {
        "momentum": "0.9", "num_epochs": "7", "keep_lr_iters": "2", "halving_factor": "0.3", "minibatch_size": "512", "seed": "5",
        "randomizer_seed": "3"}
    job = train("--train-tool", "nnet-train-frmshuff --objective-function=mse", "--proto-opts",
                "--no-softmax --activation-type=<Tanh> --hid-bias-mean=0.0 --hid-bias-range=1.0 --param-stddev-factor=0.01",
                "--hid_layers", "2").job
    assert (job["objective"], job["activation"], job["hid_bias_mean"], job["param_stddev_factor"], job["hid_layers"]) == (
        "mse", "tanh", "0.0", "0.01", "2")


def test_a_bottleneck_has_a_hidden_layer_behind_it_and_slow_maps_about_it():
    job = train("--hid-layers", "2", "--hid-dim", "1500", "--bn-dim", "80").job
    assert (job["hid_layers"], job["bottleneck_dim"], job["learn_rate_coefs"]) == ("3", "80", "1,1,0.1,0.1,1")
    assert "learn_rate_coefs" not in train("--bn-dim", "80", "--proto-opts", "--no-bottleneck-trick").job


def test_recurrent_networks_and_cnns(tmp_path):
    proto = tmp_path / "delay5.proto"
    proto.write_text("<NnetProto>\n<Splice> <InputDim> 40 <OutputDim> 40 <BuildVector> 5 </BuildVector>\n</NnetProto>\n")
    form = train("--network-type", "lstm", "--learn-rate", "0.0001", "--feature-transform-proto", str(proto), "--train-tool",
                 "nnet-train-multistream", "--train-tool-opts", "--num-streams=10 --batch-size=20")
    assert form.job == {"nnet": "lstm", "hid_layers": "2", "hid_dim": "320", "projection_dim": "400", "peepholes": "true", "splice": "0",
                        "target_delay": "5", "sequences": "streams", "num_streams": "10", "chunk": "20", "learn_rate": "0.0001",
                        "seed": "777", "randomizer_seed": "777"}
    form = train("--network-type", "blstm", "--splice", "0", "--train-tool", "nnet-train-multistream-perutt", "--proto-opts",
                 "--cell-dim 10 --proj-dim 4 --proj-dim-last 4")
    assert (form.job["hid_dim"], form.job["projection_dim"], form.job["sequences"], form.notes) == ("20", "8", "whole", [])
    job = train("--network-type", "cnn1d", "--delta-opts", "--delta-order=1", "--cnn-proto-opts", "--patch-dim1 7 --num-filters1 16").job
    assert (job["nnet"], job["conv"], job["channels"], job["hid_layers"]) == ("cnn", "0x7x16/3,0x4x256", "2", "4")


def test_a_dbn_brings_its_features_its_transform_and_its_layers(dbn):
    form = train("--dbn", str(dbn / "2.dbn"), "--hid-layers", "0", "--cmvn-opts", "--norm-vars=false")
    assert form.pack == {"cmvn_opts": "--norm-means=true --norm-vars=true", "delta_opts": "--delta-order=2"}
    assert form.job["feature_transform"] == str(dbn / "final.feature_transform") and "splice" not in form.job
    assert (form.job["hid_layers"], form.job["hid_dim"], form.job["dbn"]) == ("2", "3", str(dbn / "2.dbn"))
    assert train("--dbn", str(dbn / "2.dbn"), "--hid-layers", "1", "--hid-dim", "3").job["hid_layers"] == "3"
    with pytest.raises(UserError, match="the DBN has layers of 3, 3 units"):
        train("--dbn", str(dbn / "2.dbn"), "--hid-layers", "1", "--hid-dim", "4")


def test_posteriors_take_the_place_of_the_alignment():
    form = train("--labels", "ark:post.ark", "--num-tgt", "9", "--frame-weights", "ark:w.ark")
    assert not form.labelled
    assert (form.pack["posteriors"], form.pack["num_pdfs"], form.pack["frame_weights"]) == ("ark:post.ark", "9", "ark:w.ark")


def test_the_trainers_own_options_are_handed_on_and_win():
    job = train("--ngpu", "4", "--strategy=bmuf", "--block-momentum", "0.75", "--minibatch-size", "64", "--learn-rate", "0.1").job
    assert (job["ngpu"], job["strategy"], job["block_momentum"], job["minibatch_size"], job["learn_rate"]) == ("4", "bmuf", "0.75", "64",
                                                                                                           "0.1")
    job = train("--nnet", "su2015-dnn").job
    assert job["nnet"] == "su2015-dnn" and "hid_layers" not in job


@pytest.mark.parametrize(("options", "words"), [
    (["--ivector", "ark:i.ark"], "--ivector ark:i.ark: i-vectors are not appended"),
    (["--feat-type", "traps"], "--feat-type traps: features are spliced and normalised alone"),
    (["--online-cmvn-opts", "--norm-vars=true"], "use --cmvn-opts"),
    (["--network-type", "cnn2d"], "choose dnn, cnn1d, lstm or blstm"),
    (["--network-type", "lstm"], "--train-tool nnet-train-frmshuff: networks of recurrent layers are trained as"),
    (["--proto-opts", "--block-softmax-dims='3:4'"], "--proto-opts: --block-softmax-dims 3:4 has no meaning"),
    (["--scheduler-opts", "--dropout-schedule 0.1,0"], "--scheduler-opts: --dropout-schedule 0.1,0 has no meaning"),
    (["--train-tool", "nnet-train-frmshuff --objective-function=multitask,xent,3,1.0"], "the objectives are xent and mse"),
    (["--num-tgt", "9"], "--num-tgt 9 is for --labels"),
    (["--hid-layers", "four"], "--hid-layers four: expected a whole number"),
    (["--proto-opts", "--activation-type=<Relu>"], "choose among <Sigmoid>, <Tanh>, <ParametricRelu>"),
    (["--utt-weights", "ark:u"], "use --frame-weights"),
    (["--cnn-proto-opts", "--pitch-dim 3", "--network-type", "cnn1d"], "pitch has no place"),
])
def test_what_has_no_meaning_is_refused_in_one_sentence(options, words):
    with pytest.raises(UserError) as raised:
        train(*options)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_words_are_split_into_options_and_arguments():
    assert split(["--a-b", "c d", "--e=f", "g", "--h"]) == ({"a_b": "c d", "e": "f"}, ["g", "--h"])
    with pytest.raises(UserError, match="option --a needs a value"):
        split(["--a"])
    with pytest.raises(UserError, match="found 2 arguments"):
        read_form("train", ["a", "b"])
    assert embedded("x", "--a=1 --b 2 --c --d", ("c",)).rest == {"a": "1", "b": "2", "c": "true", "d": "true"}


PROTO = """<NnetProto>
<AffineTransform> <InputDim> 6 <OutputDim> 400 <BiasMean> -2.0 <BiasRange> 4.0 <ParamStddev> 0.5 <MaxNorm> 0.0
<Sigmoid> <InputDim> 400 <OutputDim> 400
<AffineTransform> <InputDim> 400 <OutputDim> 5 <BiasMean> 0.0 <BiasRange> 0.0 <ParamStddev> 0.1 <LearnRateCoef> 0.5 <BiasLearnRateCoef> 0.5
<Softmax> <InputDim> 5 <OutputDim> 5
</NnetProto>
"""


def test_a_prototype_becomes_a_network_and_its_options(tmp_path):
    path = tmp_path / "nnet.proto"
    path.write_text(PROTO)
    nnet = read_prototype(path, np.random.default_rng(1))
    first, last = nnet.components[0], nnet.components[2]
    assert first.arrays["linearity"].std() == pytest.approx(0.5, rel=0.05)
    assert last.arrays["linearity"].std() == pytest.approx(0.1, rel=0.05)
    assert -4 <= first.arrays["bias"].min() < -3.9 and -0.1 < first.arrays["bias"].max() <= 0 and not last.arrays["bias"].any()
    again = read_prototype(path, np.random.default_rng(1))
    assert (again.components[0].arrays["linearity"] == first.arrays["linearity"]).all()
    nnet.write(tmp_path / "nnet.init")
    assert shape_of(tmp_path / "nnet.init", 3) == {"nnet": "dnn", "hid_layers": "1", "hid_dim": "400", "learn_rate_coefs": "1,0.5"}
    plain = to_feature_transform(FeatureTransform([-1, 0, 1], torch.zeros(6), torch.ones(6)))
    model = from_nnet1(Nnet1.read(tmp_path / "nnet.init"), plain, None).model
    assert torch.equal(model.params[:2400].view(400, 6), torch.from_numpy(first.arrays["linearity"]))


def test_frames_of_a_splice(tmp_path):
    (tmp_path / "p").write_text("<Splice> <InputDim> 1 <OutputDim> 7 <BuildVector> -10 -2:2 10 </BuildVector>\n")
    assert read_splice(tmp_path / "p") == [-10, -2, -1, 0, 1, 2, 10]
    with pytest.raises(UserError, match="the network takes as many frames on each side"):
        train("--feature-transform-proto", str(tmp_path / "p"))
    (tmp_path / "p").write_text("<Sigmoid> <InputDim> 1 <OutputDim> 1\n")
    with pytest.raises(UserError, match="expected a <Splice> alone"):
        read_splice(tmp_path / "p")


def test_a_feature_transform_in_other_words_is_the_same_function():
    rng = np.random.default_rng(0)
    shift, scale, last = (rng.uniform(0.5, 2.0, 4).astype(np.float32) for _ in range(3))
    components = [to_component("Rescale", 4, 4, scale=scale), to_component("AddShift", 4, 4, shift=shift),
                  to_component("Rescale", 4, 4, scale=last)]
    transform = from_feature_transform(Nnet1(components))
    x = torch.from_numpy(rng.normal(size=(7, 4)).astype(np.float32))
    assert torch.allclose(transform(x), (x * torch.from_numpy(scale) + torch.from_numpy(shift)) * torch.from_numpy(last), atol=1e-5)
    assert transform.splice == [0]
