"""ONNX graphs of nnet3 networks, run by ONNX Runtime: the outputs of the forward pass here, and near them with 8-bit integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from recurrent_lines import INPUTS, XCONFIGS, recurrent

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model
from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers

from .test_stream import IF_DEFINED, IVECTOR, PLAIN, network


def outputs(path: Path, **inputs: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(str(path)).run(None, inputs)[0])


def of_lines(*lines: str) -> Nnet3:
    """The network of lines of xconfig, before an output layer of four dimensions, with random parameters."""
    layers = read_layers([*lines, "output-layer name=output dim=4"])
    nnet = initialised(config_lines(layers)["final"], torch.Generator().manual_seed(1))
    output = nnet.components["output.affine"]
    output.values["LinearParams"] = np.random.default_rng(1).normal(size=output.linear.shape).astype(np.float32)
    return nnet


@pytest.mark.parametrize("subsampling", [1, 2, 3])
def test_outputs_are_those_of_the_forward_pass(subsampling: int, tmp_path: Path) -> None:
    """Of layers of several strides, and of a network that takes an i-vector, for any number of frames."""
    spliced = network("""
input-node name=input dim=4
input-node name=ivector dim=3
component-node name=a component=a input=Append(Offset(input, -6), input, ReplaceIndex(Scale(2.0, ivector), t, 0), Const(0.5, 2))
dim-range-node name=part input-node=a dim-offset=1 dim=3
component-node name=b component=b input=Sum(part, Offset(part, 3))
output-node name=output input=b
""", a=(5, 13), b=(6, 3))
    ivector = np.array([[1.0, -2.0, 0.5]], np.float32)
    for number, nnet in enumerate((PLAIN, IVECTOR, spliced)):
        others = {"ivector": ivector} if "ivector" in nnet.nodes else {}
        priors = np.linspace(0.1, 0.9, nnet.dim("output"))
        export_nnet3_onnx(nnet, tmp_path / f"{number}.onnx", subsampling, priors)
        forward = Nnet3Forward(nnet, subsampling=subsampling)
        for frames in (1, 2, 3, 4, 40):
            feats = np.random.default_rng(frames).normal(size=(frames, 4)).astype(np.float32)
            found = outputs(tmp_path / f"{number}.onnx", feats=feats, **others)
            np.testing.assert_allclose(found, forward(feats, **others) - np.log(priors), atol=1e-5)


@pytest.mark.parametrize("subsampling", [1, 2, 3])
@pytest.mark.parametrize("name", XCONFIGS)
def test_recurrent_networks_are_exported(name: str, subsampling: int, tmp_path: Path) -> None:
    """Both ways, whatever number of frames there is behind the last output's."""
    nnet = recurrent(name)
    export_nnet3_onnx(nnet, tmp_path / "model.onnx", subsampling)
    forward, session = Nnet3Forward(nnet, subsampling=subsampling), onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for frames in (1, 2, 3, 4, 5, 6, 40):
        feats = np.random.default_rng(frames).normal(size=(frames, INPUTS)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"feats": feats})[0], forward(feats), atol=2e-5)


def test_a_recurrent_network_takes_an_i_vector_and_8_bit_integers(tmp_path: Path) -> None:
    nnet = of_lines("input dim=3 name=ivector", "input dim=5 name=input",
                    "fast-lstmp-layer name=l input=Append(-1,0,ReplaceIndex(ivector, t, 0)) cell-dim=16 delay=-3")
    rng = np.random.default_rng(2)
    inputs = {"feats": rng.normal(size=(50, 5)).astype(np.float32), "ivector": rng.normal(size=(1, 3)).astype(np.float32)}
    expected = Nnet3Forward(nnet, subsampling=3)(inputs["feats"], ivector=inputs["ivector"])
    export_nnet3_onnx(nnet, tmp_path / "float.onnx", 3)
    np.testing.assert_allclose(outputs(tmp_path / "float.onnx", **inputs), expected, atol=2e-5)
    export_nnet3_onnx(nnet, tmp_path / "int8.onnx", 3, None, quantised)
    assert 0 < np.abs(outputs(tmp_path / "int8.onnx", **inputs) - expected).mean() < 0.05 * np.abs(expected).mean()


@pytest.mark.parametrize("subsampling", [1, 2, 3])
@pytest.mark.parametrize("layer", ["attention-relu-renorm-layer num-heads=2", "attention-renorm-layer output-context=false time-stride=3",
                                   "relu-renorm-attention-layer num-heads=3 time-stride=2"])
def test_attention_is_exported(layer: str, subsampling: int, tmp_path: Path) -> None:
    kind, fields = layer.split(" ", 1)
    nnet = of_lines("input dim=5 name=input", f"{kind} name=a key-dim=2 value-dim=3 num-left-inputs=2 num-right-inputs=1 {fields}",
                    "fast-lstmp-layer name=l cell-dim=6 recurrent-projection-dim=3 non-recurrent-projection-dim=2")
    export_nnet3_onnx(nnet, tmp_path / "model.onnx", subsampling)
    forward = Nnet3Forward(nnet, subsampling=subsampling)
    for frames in (1, 4, 30):
        feats = np.random.default_rng(frames).normal(size=(frames, 5)).astype(np.float32)
        np.testing.assert_allclose(outputs(tmp_path / "model.onnx", feats=feats), forward(feats), atol=2e-5)


def test_kaldis_model_is_exported(golden: Path, tmp_path: Path) -> None:
    model = Nnet3Model.read(golden / "chain_an4/final.mdl")
    export_nnet3_onnx(model.nnet, tmp_path / "float.onnx", 3, model.priors)
    shifted = Nnet3Model.read(golden / "chain_an4/final_global_mean.mdl").nnet
    export_nnet3_onnx(shifted, tmp_path / "shifted.onnx", 3)
    feats = np.random.default_rng(1).normal(size=(100, 40)).astype(np.float32) * 8
    np.testing.assert_allclose(outputs(tmp_path / "shifted.onnx", feats=feats), Nnet3Forward(shifted, subsampling=3)(feats), atol=1e-4)
    export_nnet3_onnx(model.nnet, tmp_path / "int8.onnx", 3, model.priors, quantised)
    expected = Nnet3Forward(model.nnet, subsampling=3)(feats)
    np.testing.assert_allclose(outputs(tmp_path / "float.onnx", feats=feats), expected, atol=1e-4)
    small = outputs(tmp_path / "int8.onnx", feats=feats)
    assert 0 < np.abs(small - expected).mean() < 0.05 * np.abs(expected).mean()
    assert (tmp_path / "int8.onnx").stat().st_size < (tmp_path / "float.onnx").stat().st_size / 3


def test_what_is_not_exported_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the network's descriptor IfDefined\(Offset\(a, -4\)\) is not exported"):
        export_nnet3_onnx(IF_DEFINED, tmp_path / "x.onnx")
    other = network("input-node name=feats dim=4\noutput-node name=output input=feats")
    with pytest.raises(UserError, match="the network takes feats; what is exported"):
        export_nnet3_onnx(other, tmp_path / "x.onnx")
    loop = """
input-node name=input dim=4
component-node name=a component=a input=Append(input, IfDefined(Offset(b, -1)), IfDefined(Offset(OTHER, -2)))
component-node name=b component=b input=a
output-node name=output input=b
"""
    for other in "ab":
        with pytest.raises(UserError, match=f"the network's node a takes {other} 2 frames away, others of its loop 1"):
            export_nnet3_onnx(network(loop.replace("OTHER", other), a=(3, 10), b=(3, 3)), tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()
