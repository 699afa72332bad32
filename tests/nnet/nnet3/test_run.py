"""nnet3 networks run as Kaldi runs them: every node beside nnet3-compute, subsampled, prepared; descriptors beside plain loops."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import parse_node
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.prepare import prepare_for_test
from pykaldist.nnet.nnet3.run import Nnet3Forward

NODES = ["idct", "lda", "tdnn1.batchnorm", "tdnnf2.noop", "tdnnf4.noop", "prefinal-l", "prefinal-chain.batchnorm2"]
OUTPUTS = [*((node, f"node_{node}", 1) for node in NODES), ("output", "output", 1), ("output-xent", "output_xent", 1),
           ("output", "output_sub3", 3)]


@pytest.mark.parametrize(("node", "file", "subsampling", "prepared"), [
    *((*one, False) for one in OUTPUTS),
    *((*one, True) for one in OUTPUTS if one[0] not in ("idct", "lda"))])  # which are in the affine component behind them then
def test_every_node_has_kaldis_outputs(golden: Path, node: str, file: str, subsampling: int, prepared: bool) -> None:
    net = golden / "chain/net"
    nnet = Nnet3.read(net / "final.raw")
    nnet = prepare_for_test(nnet) if prepared else nnet
    forward = Nnet3Forward(nnet, output=node, subsampling=subsampling)
    feats, expected = dict(read_archive(net / "feats2.ark.gz")), dict(read_archive(net / f"{file}.ark.gz"))
    assert len(expected) == 2
    for utt, matrix in expected.items():
        np.testing.assert_allclose(forward(feats[utt]), matrix, atol=1e-4)
    if node == "output":
        assert (forward.plan.left_context, forward.plan.right_context) == (5, 5)


def test_a_prepared_network_is_kaldis(golden: Path) -> None:
    kaldis = Nnet3.read(golden / "chain/net/final.prepared.raw.txt.gz")
    ours = prepare_for_test(Nnet3.read(golden / "chain/net/final.raw.txt.gz"))
    assert [str(node) for node in ours.nodes.values()] == [str(node) for node in kaldis.nodes.values()]
    assert list(ours.components) == list(kaldis.components)
    for name, component in kaldis.components.items():
        assert (ours.components[name].type, set(ours.components[name].values)) == (component.type, set(component.values))
        for token, value in component.values.items():
            np.testing.assert_allclose(ours.components[name].values[token], value, rtol=1e-5, atol=1e-5)


def make(*lines: str, **matrices: np.ndarray) -> Nnet3:
    """A network of these nodes, and of fixed affine components of these matrices."""
    components = {name: Nnet3Component(name, "FixedAffineComponent",
                                       {"LinearParams": matrix.astype(np.float32), "BiasParams": np.zeros(len(matrix), np.float32)})
                  for name, matrix in matrices.items()}
    nnet = Nnet3({node.name: node for node in map(parse_node, lines)}, components)
    stream = io.BytesIO()
    nnet.write_to(KaldiWriter(stream))
    return Nnet3.parse(KaldiReader(stream.getvalue(), "made"))


def test_descriptors_are_what_they_say() -> None:
    x, v = np.arange(14, dtype=np.float32).reshape(7, 2), np.array([[5.0, 7.0]], np.float32)
    nnet = make("input-node name=input dim=2", "input-node name=ivector dim=2",
                "dim-range-node name=one input-node=input dim-offset=1 dim=1",
                "component-node name=twice component=twice input=Offset(input, 1)",
                "output-node name=output input=Append(Sum(Scale(3, input), Round(twice, 2)), ReplaceIndex(ivector, t, 0), Const(9, 1), "
                "one, IfDefined(Offset(twice, 3)))", twice=2 * np.eye(2))
    forward = Nnet3Forward(nnet)
    expected = []
    for t in range(7):
        rounded = x[min(t // 2 * 2 + 1, 6)]
        later = 2 * x[min(t + 4, 6)] if t + 4 <= 6 + forward.plan.right_context else np.zeros(2)
        expected.append([*(3 * x[t] + 2 * rounded), 5, 7, 9, x[t, 1], *later])
    assert (forward.plan.left_context, forward.plan.right_context) == (0, 1)
    np.testing.assert_array_equal(forward(x, ivector=v), np.array(expected))
    np.testing.assert_array_equal(Nnet3Forward(nnet, subsampling=3)(x, ivector=v), np.array(expected)[::3])


def test_what_cannot_be_run_is_named(golden: Path) -> None:
    square = np.eye(2)
    for feedback, message in (("a", "node a needs itself at its own frame"), ("Offset(a, -1)", "a at another frame without IfDefined"),
                              ("Sum(IfDefined(Offset(a, -1)), IfDefined(Offset(a, 2)))", "goes to -1 and 2 frames")):
        loop = make("input-node name=input dim=2", f"component-node name=a component=a input=Sum(input, {feedback})",
                    "output-node name=output input=a", a=square)
        with pytest.raises(UserError, match=message):
            Nnet3Forward(loop)
    switch = make("input-node name=input dim=2", "output-node name=output input=Switch(input, input)")
    with pytest.raises(UserError, match=r"Switch\(input, input\) is not computed here"):
        Nnet3Forward(switch)
    with pytest.raises(UserError, match="has no node outputs"):
        Nnet3Forward(switch, output="outputs")
    nnet = Nnet3.read(golden / "chain/net/final.raw")
    with pytest.raises(ValueError, match="expected input of dimension 40, found"):
        Nnet3Forward(nnet)(np.zeros((5, 39), np.float32))
    with pytest.raises(ValueError, match=r"expected input of dimension 40|expected frames"):
        Nnet3Forward(nnet)(np.zeros((0, 40), np.float32))
    nnet.components["tdnn1.batchnorm"].values["Count"] = 0.0
    with pytest.raises(UserError, match=r"tdnn1.batchnorm has no statistics yet"):
        Nnet3Forward(nnet)
