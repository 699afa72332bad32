"""ONNX graphs of nnet3 networks, run by ONNX Runtime: the outputs of the forward pass here, and near them with 8-bit integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised
from pykaldist.nnet.nnet3.run import Nnet3Forward

from .test_stream import IF_DEFINED, IVECTOR, PLAIN, network


def outputs(path: Path, **inputs: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(str(path)).run(None, inputs)[0])


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
    assert not (tmp_path / "x.onnx").exists()
