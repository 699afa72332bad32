"""nnet1 files: byte for byte, every component, both ways, and run as Kaldi runs them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.tables import MatrixWriter, read_archive
from pykaldist.nnet.components import Activation, Affine
from pykaldist.nnet.convert import from_nnet1, to_nnet1
from pykaldist.nnet.convolution import BatchNorm
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import LAYOUTS, Nnet1, Nnet1Component
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.onnx_export import export_onnx
from pykaldist.nnet.priors import log_priors, read_counts

RNG = np.random.default_rng(0)


def make(marker: str, out: int, into: int, **options: float | int | str) -> Nnet1Component:
    """A component with random contents."""
    component = Nnet1Component(marker, out, into, {**LAYOUTS[marker].options, **options})
    for name, shape in LAYOUTS[marker].shapes(out, into, component.options).items():
        component.arrays[name] = RNG.normal(0, 0.3, shape).astype(np.float32)
    if marker == "Splice":
        component.arrays["frame_offsets"] = np.array([-1, 0, 2], np.int32)
    if marker == "Copy":
        component.arrays["copy_from_indices"] = np.array([3, 0, 1, 1], np.int32)
    return component


EXAMPLES = {
    "AffineTransform": lambda: make("AffineTransform", 4, 6, MaxNorm=1.5),
    "LinearTransform": lambda: make("LinearTransform", 4, 6),
    "Sigmoid": lambda: make("Sigmoid", 6, 6),
    "Tanh": lambda: make("Tanh", 6, 6),
    "Softmax": lambda: make("Softmax", 6, 6),
    "HiddenSoftmax": lambda: make("HiddenSoftmax", 6, 6),
    "ParametricRelu": lambda: make("ParametricRelu", 6, 6, ClipGradient=2.0),
    "Dropout": lambda: make("Dropout", 6, 6, DropoutRate=0.25),
    "Splice": lambda: make("Splice", 18, 6),
    "Copy": lambda: make("Copy", 4, 6),
    "AddShift": lambda: make("AddShift", 6, 6),
    "Rescale": lambda: make("Rescale", 6, 6),
    "ConvolutionalComponent": lambda: make("ConvolutionalComponent", 3 * 5, 2 * 8, PatchDim=4, PatchStep=1, PatchStride=8),
    "MaxPoolingComponent": lambda: make("MaxPoolingComponent", 9, 12, PoolSize=2, PoolStep=1, PoolStride=3),
    "AveragePoolingComponent": lambda: make("AveragePoolingComponent", 6, 12, PoolSize=2, PoolStep=2, PoolStride=3),
    "LstmProjected": lambda: make("LstmProjected", 3, 6, CellDim=5, CellClip=0.5),
    "BlstmProjected": lambda: make("BlstmProjected", 4, 6, CellDim=5),
    "Rbm": lambda: make("Rbm", 4, 6, vis_type="gauss"),
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_lstm(c, x, prefix=""):
    """One frame and one gate at a time, in double precision."""
    a = {k[len(prefix):]: v.astype(np.float64) for k, v in c.arrays.items() if k.startswith(prefix)}
    cells = len(a["peephole_i_c"])
    r, s, out = np.zeros(a["w_r_m"].shape[0]), np.zeros(cells), []
    for frame in x:
        g, i, f, o = np.split(a["w_gifo_x"] @ frame + a["w_gifo_r"] @ r + a["bias"], 4)
        i, f = sigmoid(i + a["peephole_i_c"] * s), sigmoid(f + a["peephole_f_c"] * s)
        s = np.clip(np.tanh(g) * i + s * f, -c.options["CellClip"], c.options["CellClip"])
        r = a["w_r_m"] @ (sigmoid(o + a["peephole_o_c"] * s) * np.tanh(s))
        out.append(r)
    return np.array(out)


def slow(c, x):
    """A second opinion on every component, in double precision."""
    a, o = {k: v.astype(np.float64) for k, v in c.arrays.items()}, c.options
    match c.marker:
        case "AffineTransform":
            return x @ a["linearity"].T + a["bias"]
        case "LinearTransform":
            return x @ a["linearity"].T
        case "Sigmoid":
            return sigmoid(x)
        case "Tanh":
            return np.tanh(x)
        case "Softmax" | "HiddenSoftmax":
            return np.exp(x) / np.exp(x).sum(1, keepdims=True)
        case "ParametricRelu":
            return np.maximum(x, 0) * a["alpha"] + np.minimum(x, 0) * a["beta"]
        case "Dropout":
            return x
        case "Splice":
            return np.stack([np.concatenate([x[min(max(t + k, 0), len(x) - 1)] for k in (-1, 0, 2)]) for t in range(len(x))])
        case "Copy":
            return x[:, [3, 0, 1, 1]]
        case "AddShift":
            return x + a["shift"]
        case "Rescale":
            return x * a["scale"]
        case "ConvolutionalComponent":  # patch p of a frame: bands p..p+3 of both spliced frames
            patches = [np.concatenate([x[:, p : p + 4], x[:, 8 + p : 12 + p]], 1) for p in range(5)]
            return np.concatenate([patch @ a["Filters"].T + a["Bias"] for patch in patches], 1)
        case "MaxPoolingComponent":
            return np.concatenate([np.maximum(x[:, 3 * p : 3 * p + 3], x[:, 3 * p + 3 : 3 * p + 6]) for p in range(3)], 1)
        case "AveragePoolingComponent":
            return np.concatenate([(x[:, 6 * p : 6 * p + 3] + x[:, 6 * p + 3 : 6 * p + 6]) / 2 for p in range(2)], 1)
        case "LstmProjected":
            return slow_lstm(c, x)
        case "BlstmProjected":
            return np.concatenate([slow_lstm(c, x, "f_"), slow_lstm(c, x[::-1], "b_")[::-1]], 1)
        case "Rbm":
            return sigmoid(x @ a["vis_hid"].T + a["hid_bias"]) if o["hid_type"] == "bern" else x @ a["vis_hid"].T + a["hid_bias"]


def test_every_layout_has_an_example():
    assert set(EXAMPLES) == set(LAYOUTS)


@pytest.mark.parametrize("marker", EXAMPLES)
@pytest.mark.parametrize("binary", [True, False])
def test_round_trip_of_every_component(tmp_path, marker, binary):
    component = EXAMPLES[marker]()
    Nnet1([component]).write(tmp_path / "a.nnet", binary)
    loaded = Nnet1.read(tmp_path / "a.nnet")
    assert loaded.components[0].options == component.options
    for name, array in component.arrays.items():
        assert np.allclose(loaded.components[0].arrays[name], array, rtol=0 if binary else 1e-6)
    loaded.write(tmp_path / "b.nnet", binary)
    assert (tmp_path / "a.nnet").read_bytes() == (tmp_path / "b.nnet").read_bytes()


@pytest.mark.parametrize("marker", EXAMPLES)
def test_every_component_computes_what_it_should(marker):
    component = EXAMPLES[marker]()
    x = RNG.normal(size=(7, component.input_dim)).astype(np.float32)
    assert np.allclose(Nnet1Forward(Nnet1([component]))(x), slow(component, x.astype(np.float64)), atol=1e-5)


@pytest.mark.parametrize("marker", EXAMPLES)
def test_every_component_computes_on_the_device_of_the_network(marker, monkeypatch):
    """On `meta`, which refuses what lies elsewhere and has no values."""
    component, left = EXAMPLES[marker](), []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: left.append(tensor.device.type) or torch.zeros(tensor.shape))
    outputs = Nnet1Forward(Nnet1([component]), "meta")(np.zeros((7, component.input_dim), np.float32))
    assert outputs.shape == (7, component.output_dim) and left and set(left) == {"meta"}


def test_old_files_without_end_of_component_and_with_old_names(tmp_path):
    nnet = Nnet1([EXAMPLES["LinearTransform"](), make("Sigmoid", 4, 4), make("LstmProjected", 3, 4, CellDim=5)])
    nnet.write(tmp_path / "new.nnet")
    content = (tmp_path / "new.nnet").read_bytes().replace(b"<!EndOfComponent> ", b"")
    old = content.replace(b"<LstmProjected>", b"<LstmProjectedStreams>").replace(b"<GradClip>", b"<ClipGradient>")
    (tmp_path / "old.nnet").write_bytes(old)
    Nnet1.read(tmp_path / "old.nnet").write(tmp_path / "again.nnet")
    assert (tmp_path / "again.nnet").read_bytes() == (tmp_path / "new.nnet").read_bytes()


def test_networks_put_behind_each_other_read_as_one(tmp_path):
    first, second = Nnet1([EXAMPLES["AffineTransform"]()]), Nnet1([make("Sigmoid", 4, 4)])
    for binary in (True, False):
        for name, nnet in (("a", first), ("b", second)):
            nnet.write(tmp_path / name, binary)
        (tmp_path / "ab").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
        assert [c.marker for c in Nnet1.read(tmp_path / "ab").components] == ["AffineTransform", "Sigmoid"]


@pytest.mark.parametrize(("content", "words"), [
    (b"<Nnet> <Frob> 3 3 </Nnet> ", "expected a component, found '<Frob>'"),
    (b"<Nnet> <Sigmoid> 3 4 </Nnet> ", "output dimension 3, input dimension 4"),
    (b"<Nnet> <Sigmoid> -3 -3 </Nnet> ", "dimensions of <Sigmoid>"),
    (b"<Nnet> <Sigmoid> 3 3 ", "found the end of the file"),
    (b"<Nnet> <Sigmoid> 3 3 <Tanh> 4 4 </Nnet> ", "takes 4 inputs"),
    (b"<Nnet> <AffineTransform> 2 1 [ 1 2 ] [ 1 2 ] </Nnet> ", r"linearity of \(1, 2\)"),
    (b"<Nnet> </Nnet> ", "no components"),
    (b"hello", "expected <Nnet>"),
])
def test_wrong_files_are_refused_in_words(tmp_path, content, words):
    (tmp_path / "x.nnet").write_bytes(content)
    with pytest.raises(UserError, match=words):
        Nnet1.read(tmp_path / "x.nnet")


def test_kaldi_files_are_written_again_byte_for_byte(golden, tmp_path):
    for name, binary in (("final.nnet", True), ("final.feature_transform", False)):
        path = golden / "an4_kaldi" / "dnn" / name
        Nnet1.read(path).write(tmp_path / name, binary)
        assert (tmp_path / name).read_bytes() == path.read_bytes()


def test_forward_equals_kaldi(golden, tmp_path):
    dnn = golden / "an4_kaldi" / "dnn"
    assert main(["nnet-forward", "--no-softmax=true", "--class-frame-counts", str(dnn / "ali_train_pdf.counts"), "--feature-transform",
                 str(dnn / "final.feature_transform"), str(dnn / "final.nnet"), str(golden / "an4_kaldi" / "fmllr" / "test.ark"),
                 str(tmp_path / "loglikes.ark")]) == 0
    found = dict(read_archive(tmp_path / "loglikes.ark"))
    expected = dict(read_archive(dnn / "loglikes4.txt.gz"))
    assert len(found) == 130 and len(expected) == 4
    for utt, scores in expected.items():
        assert np.abs(found[utt] - scores).max() < 1e-3


SHAPES = [("sigmoid", {}), ("tanh", {}), ("relu", {}), ("sigmoid", {"dropout": 0.25}), ("relu", {"bottleneck_dim": 3}),
          ("tanh", {"dropout": 0.5, "bottleneck_dim": 2, "learn_rate_coefs": "1,0.5,0.1,0.1,2", "bias_learn_rate_coef": 0.5})]


@pytest.mark.parametrize(("activation", "shape"), SHAPES)
def test_our_networks_as_nnet1_and_back(make_network, activation, shape, tmp_path):
    network = make_network(activation, **shape)
    feats = RNG.normal(size=(50, 2)).astype(np.float32)
    network.save(tmp_path / "final.pt")
    assert main(["copy-nnet", "--binary=false", "--feature-transform", str(tmp_path / "t.nnet"), str(tmp_path / "final.pt"),
                 str(tmp_path / "f.nnet")]) == 0
    nnet, transform = Nnet1.read(tmp_path / "f.nnet"), Nnet1.read(tmp_path / "t.nnet")
    posteriors = Nnet1Forward(Nnet1(transform.components + nnet.components))(feats)
    counts = network.counts.numpy()
    assert np.allclose(np.log(posteriors) - log_priors(counts), network.loglikes(feats), atol=1e-3)
    assert np.allclose(from_nnet1(nnet, transform, counts).loglikes(feats), network.loglikes(feats), atol=1e-4)
    exact = from_nnet1(*to_nnet1(network), counts)
    assert torch.equal(exact.model.params, network.model.params) and exact.options == network.options


def test_rates_and_dropout_stand_in_the_file_as_in_kaldi(make_network):
    nnet, _ = to_nnet1(make_network("sigmoid", dropout=0.25, bottleneck_dim=3, learn_rate_coefs="1,1,0.5,0.5,2", bias_learn_rate_coef=0.5))
    assert [c.marker for c in nnet.components] == [*["AffineTransform", "Sigmoid", "Dropout"] * 2, "LinearTransform", "AffineTransform",
                                                   "Sigmoid", "Dropout", "AffineTransform", "Softmax"]
    assert nnet.components[2].options == {"DropoutRate": 0.25} and nnet.components[6].options == {"LearnRateCoef": 0.5}
    assert nnet.components[10].options == {"LearnRateCoef": 2.0, "BiasLearnRateCoef": 1.0, "MaxNorm": 0.0}


def test_bottleneck_features(make_network, tmp_path, capsys):
    network = make_network("tanh", bottleneck_dim=2, dropout=0.5)
    network.save(tmp_path / "final.pt")
    feats = RNG.normal(size=(9, 2)).astype(np.float32)
    with MatrixWriter(tmp_path / "f.ark", tmp_path / "f.scp") as writer:
        writer.write("utt1", feats)
    command = ["nnet-forward", "--bottleneck=true", str(tmp_path / "final.pt"), str(tmp_path / "f.scp"), str(tmp_path / "out.ark")]
    assert main(command) == 0
    (_, found), = read_archive(tmp_path / "out.ark")
    x = network.transform(torch.from_numpy(feats))
    for layer in [c for c in network.model.components if c.maps][:2]:
        x = torch.tanh(x @ layer.weight.t() + layer.bias)
    assert np.allclose(found, x @ network.model.components[6].weight.t(), atol=1e-5)
    make_network("tanh").save(tmp_path / "final.pt")
    assert main(command) == 1
    assert "has no <LinearTransform>" in capsys.readouterr().err


def test_a_network_of_features_has_no_softmax(make_network, tmp_path):
    network = make_network("tanh")
    network.counts = None
    nnet, transform = to_nnet1(network)
    assert nnet.components[-1].marker == "AffineTransform"
    assert torch.equal(from_nnet1(nnet, transform, None).model.params, network.model.params)
    feats = RNG.normal(size=(9, 2)).astype(np.float32)
    expected = network.model.forward(network.transform(torch.from_numpy(feats))).numpy()
    assert np.allclose(Nnet1Forward(Nnet1(transform.components + nnet.components))(feats), expected, atol=1e-5)
    export_onnx(network, tmp_path / "a.onnx")
    [found] = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"]).run(None, {"feats": feats})
    assert np.allclose(found, expected, atol=1e-5)


def test_kaldi_network_becomes_ours(golden):
    dnn = golden / "an4_kaldi" / "dnn"
    nnet = Nnet1.read(dnn / "final.nnet")
    network = from_nnet1(nnet, Nnet1.read(dnn / "final.feature_transform"),
                         read_counts(dnn / "ali_train_pdf.counts", nnet.output_dim, dnn / "final.nnet"))
    feats = dict(read_archive(golden / "an4_kaldi" / "fmllr" / "test.ark"))
    for utt, expected in read_archive(dnn / "loglikes4.txt.gz"):
        found = network.loglikes(feats[utt])
        assert np.allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-3)  # Kaldi's lack the softmax's constant


def test_other_networks_do_not_become_ours(make_network):
    nnet, transform = to_nnet1(make_network("sigmoid"))
    with pytest.raises(UserError, match="expected affine transforms"):
        from_nnet1(Nnet1(nnet.components[1:]), transform, np.ones(4))
    with pytest.raises(UserError, match="expected <Splice> <AddShift> <Rescale>"):
        from_nnet1(nnet, Nnet1([*transform.components, nnet.components[0]]), np.ones(4))
    with pytest.raises(UserError, match="3 pdfs, the network 4"):
        from_nnet1(nnet, transform, np.ones(3))


@pytest.mark.parametrize(("activation", "shape"), SHAPES)
def test_onnx_equals_our_own(make_network, activation, shape, tmp_path):
    network = make_network(activation, **shape)
    export_onnx(network, tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    for frames in (1, 2, 30):
        feats = RNG.normal(size=(frames, 2)).astype(np.float32)
        [found] = session.run(None, {"feats": feats})
        expected = network.loglikes(feats)
        seen = [0, 2, 3]
        assert np.abs(found[:, seen] - expected[:, seen]).max() < 1e-4 and (found[:, 1] < -1e9).all()


def test_batch_normalisation_is_a_scale_and_a_shift(make_network, tmp_path):
    network = make_network("relu", batch_norm=True)
    network.model.params.add_(torch.rand(len(network.model.params), generator=torch.Generator().manual_seed(3)), alpha=0.5)
    for component in network.model.components:
        if isinstance(component, BatchNorm):
            component.mean_square.add_(component.mean.square())  # a variance above zero
    feats = RNG.normal(size=(30, 2)).astype(np.float32)
    nnet, transform = to_nnet1(network)
    assert [c.marker for c in nnet.components[:4]] == ["AffineTransform", "Rescale", "AddShift", "ParametricRelu"]
    expected = network.log_posteriors(feats)
    assert np.allclose(np.log(Nnet1Forward(Nnet1(transform.components + nnet.components))(feats)), expected, atol=1e-4)
    export_onnx(network, tmp_path / "a.onnx")
    [found] = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"]).run(None, {"feats": feats})
    assert np.abs(found[:, [0, 2, 3]] - network.loglikes(feats)[:, [0, 2, 3]]).max() < 1e-4
    network.save(tmp_path / "final.pt")
    again = Network.load(tmp_path / "final.pt")
    assert again.options.batch_norm and np.array_equal(again.log_posteriors(feats), expected)
    model = network.model  # in training rows are normalised by their own moments
    x = network.transform(torch.from_numpy(feats))
    outputs = model.forward(x, training=True)
    y = x
    for component in model.components:
        if isinstance(component, BatchNorm):
            y = torch.nn.functional.batch_norm(y, None, None, component.gamma, component.beta, True)
        else:
            y = torch.relu(y) if not component.maps else y @ component.weight.t() + component.bias
    assert torch.allclose(outputs, y, atol=1e-5)


class Square(Activation):
    """An activation of which no file format knows."""

    def forward(self, x, y, run):
        torch.square(x, out=y)

    def backward(self, x, y, dy, dx, grads, beta, rule, run):
        raise NotImplementedError  # these tests write the component to nnet1 files, where it is refused; no test trains it


class Doubled(Affine):
    """Derived from a component that the formats know, and another function."""

    def forward(self, x, y, run):
        super().forward(2.0 * x, y, run)


@pytest.mark.parametrize("component", [Square(7), Doubled(7, 7)])
def test_components_that_a_format_does_not_know_are_refused_by_name(make_network, component, tmp_path):
    network = make_network("sigmoid")
    place = next(i for i, c in enumerate(network.model.components) if isinstance(component, type(c).__mro__[1]) and c.input_dim == 7)
    network.model.components[place] = component
    with pytest.raises(UserError, match=type(component).__name__):
        to_nnet1(network)
    with pytest.raises(UserError, match=type(component).__name__):
        export_onnx(network, tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_info_names_every_component(make_network, tmp_path, capsys):
    make_network("relu").save(tmp_path / "final.pt")
    assert main(["nnet-info", str(tmp_path / "final.pt")]) == 0
    out = capsys.readouterr().out
    for words in ("1 Affine ", "2 Relu ", "nnet dnn: 3 x 7 relu", "parameters 221\n", "receptive field 1 frames before, 3 after",
                  "6.bias 4 (min"):
        assert words in out
    assert main(["copy-nnet", "--feature-transform", str(tmp_path / "ft"), str(tmp_path / "final.pt"), str(tmp_path / "final.nnet")]) == 0
    assert main(["nnet-info", str(tmp_path / "final.nnet")]) == 0 and main(["nnet-info", str(tmp_path / "ft")]) == 0
    out = capsys.readouterr().out
    for words in ("num-components 8", "input-dim 10", "output-dim 4", "component 2 : <ParametricRelu>", "component 1 : <Splice>"):
        assert words in out


@pytest.mark.parametrize(("options", "words"), [
    (["--class-frame-counts", "c"], "needs --no-softmax=true or --apply-log=true"),
    (["--no-softmax=true", "--apply-log=true"], "exclude each other"),
    (["--bottleneck=true", "--no-softmax=true"], "of which --bottleneck=true makes none"),
])
def test_options_that_make_no_sense_are_refused(make_network, tmp_path, capsys, options, words):
    make_network("relu").save(tmp_path / "final.pt")
    assert main(["nnet-forward", *options, str(tmp_path / "final.pt"), "feats.ark", str(tmp_path / "out.ark")]) == 1
    assert words in capsys.readouterr().err


def test_features_of_another_dimension_are_refused(make_network, tmp_path, capsys):
    make_network("relu").save(tmp_path / "final.pt")
    with MatrixWriter(tmp_path / "f.ark", tmp_path / "f.scp") as writer:
        writer.write("utt1", np.zeros((3, 5), np.float32))
    assert main(["nnet-forward", str(tmp_path / "final.pt"), str(tmp_path / "f.scp"), str(tmp_path / "out.ark")]) == 1
    assert "utt1: expected frames of dimension 2, found (3, 5)" in capsys.readouterr().err
    assert not (tmp_path / "out.ark").exists()
