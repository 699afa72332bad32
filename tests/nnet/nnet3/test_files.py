"""nnet3 files: Kaldi's own come out again byte for byte, binary and text; damaged or unknown ones are named."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_lines import LINES, OTHER_LINES, network_of

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.nnet.nnet3.config import Descriptor, parse_descriptor, parse_node
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model, is_nnet3_model


def written(nnet: Nnet3 | Nnet3Model, binary: bool) -> bytes:
    stream = io.BytesIO()
    nnet.write_to(KaldiWriter(stream, binary))
    return stream.getvalue()


def same(ours: Nnet3, other: Nnet3) -> None:
    """The networks are the same, but for rounding: Kaldi's text has seven digits, and it makes means and variances anew when it writes."""
    assert [str(node) for node in ours.nodes.values()] == [str(node) for node in other.nodes.values()]
    assert list(ours.components) == list(other.components)
    for name, component in other.components.items():
        assert (ours.components[name].type, list(ours.components[name].values)) == (component.type, list(component.values))
        for token, value in component.values.items():
            np.testing.assert_allclose(ours.components[name].values[token], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["final.raw", "train.0.raw"])
def test_a_raw_network_of_kaldis_is_written_byte_for_byte(golden: Path, name: str) -> None:
    path = golden / "chain/net" / name
    nnet = Nnet3.read(path)
    assert written(nnet, binary=True) == path.read_bytes()
    same(nnet, Nnet3.read(f"{path}.txt.gz"))
    same(Nnet3.parse(KaldiReader(written(nnet, binary=False), "text")), nnet)
    assert nnet.num_params == 11424  # as nnet3-info says


@pytest.mark.parametrize("name", ["final.raw", "final.prepared.raw", "train.8.raw", "train_maxchange.2.raw"])
def test_a_text_network_of_kaldis_is_written_byte_for_byte(golden: Path, name: str) -> None:
    path = golden / "chain/net" / f"{name}.txt.gz"
    assert written(Nnet3.read(path), binary=False) == gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("name", ["chain/net/final.mdl", "chain_an4/final.mdl", "chain_an4/final_global_mean.mdl"])
def test_a_final_mdl_of_kaldis_is_written_byte_for_byte(golden: Path, name: str) -> None:
    model = Nnet3Model.read(golden / name)
    assert written(model, binary=True) == (golden / name).read_bytes()
    again = Nnet3Model.parse(KaldiReader(written(model, binary=False), "text"))
    assert (again.left_context, again.right_context, len(again.priors)) == (model.left_context, model.right_context, 0)
    assert (again.transition_model.tid2pdf == model.transition_model.tid2pdf).all()
    same(again.nnet, model.nnet)


@pytest.mark.parametrize("kind", [*LINES, *OTHER_LINES])
def test_components_are_read_as_they_were_written(kind: str) -> None:
    nnet = network_of(kind)
    again = Nnet3.parse(KaldiReader(written(nnet, binary=True), "binary"))
    same(again, nnet)
    assert written(again, binary=True) == written(nnet, binary=True)
    assert (again.dim("one"), again.num_params) == (nnet.dim("one"), nnet.num_params)
    text = written(nnet, binary=False)
    same(Nnet3.parse(KaldiReader(text, "text")), nnet)
    end = text.index(b"</" + nnet.components["one"].type.encode())
    with pytest.raises(UserError):
        Nnet3.parse(KaldiReader(text[:end] + text[text.index(b">", end) + 1:], "text"))


def test_a_convolution_is_written_as_kaldi_writes_it() -> None:
    """Its structure in a token of its own, offsets as pairs of time and height; Kaldi's ConvolutionModel::Write."""
    text = written(network_of("convolution"), binary=False).decode()
    assert ("<ComponentName> one <TimeHeightConvolutionComponent> <LearningRate> 0.001 <Model> <ConvolutionModel> <NumFiltersIn> 2 "
            "<NumFiltersOut> 3 <HeightIn> 5 <HeightOut> 3 <HeightSubsampleOut> 2 <Offsets> [ -2,-1 -2,0 -2,1 0,-1 0,0 0,1 1,-1 1,0 1,1 ]\n"
            "<RequiredTimeOffsets> [ -2 0 1 ]\n</ConvolutionModel> <LinearParams>  [") in text
    assert ("<MaxMemoryMb> 200 <UseNaturalGradient> T <NumMinibatchesHistory> 4 <AlphaInOut> 4 4 <RankInOut> 10 2 "
            "</TimeHeightConvolutionComponent> \n</Nnet3>") in text


@pytest.mark.parametrize(("kind", "token", "value", "problem"), [
    ("convolution", "NumFiltersOut", 4, "parameters 3 x 18, expected 4 x 18"),
    ("convolution", "RequiredTimeOffsets", [3], r"of which the times \[3\] are required"),
    ("permute", "ColumnMap", [0, 0, 1, 2], "no permutation of 0 to 3"),
    ("sum-block", "OutputDim", 4, "blocks of 4 .* in 6 dimensions"),
    ("scale-offset", "Offsets", np.zeros(2, np.float32), "<Offsets> of 2, expected 3"),
    ("normalize-blocks", "BlockDim", 0, "blocks of 0"),
])
def test_components_whose_parts_do_not_fit_are_refused(kind: str, token: str, value: object, problem: str) -> None:
    nnet = network_of(kind)
    nnet.components["one"].values[token] = value  # type: ignore[assignment]
    with pytest.raises(ValueError, match=problem):
        nnet.components["one"].check()


def test_a_final_mdl_is_told_from_a_gmm(golden: Path) -> None:
    assert is_nnet3_model(golden / "chain_an4/final.mdl")
    assert not is_nnet3_model(golden / "an4_kaldi/tri3_ali/final.mdl")
    assert not is_nnet3_model(golden / "chain/0.trans_mdl")


@pytest.mark.parametrize(("old", "new", "problem"), [
    (b"<NoOpComponent>", b"<NaNComponent>", "'tdnnf2.noop' is of the type '<NaNComponent>', which is not known here; the nearest"),
    (b"<TdnnComponent>", b"<LinearComponent>", "expected a field of <LinearComponent>, found '<TimeOffsets>'"),
    (b"<Epsilon> 0.001 ", b"", "tdnn1.batchnorm has no <Epsilon>"),
    (b"component=tdnn1.relu ", b"component=tdnn9.relu ", "tdnn9.relu, which is not there"),
    (b"input=tdnn1.affine", b"input=Offset(tdnn9, 1)", "there is no node tdnn9"),
    (b"input=tdnn1.affine", b"input=Append(tdnn1.affine, tdnn1.affine)", "input of dimension 64, its component takes 32"),
    (b"input=tdnn1.affine", b"input=Append(tdnn1.affine", "expected ',' or '\\)' in Append, found 'the end'"),
    (b"name=tdnn1.relu", b"name=tdnn1.affine", "node tdnn1.affine is there twice"),
    (b"<TimeOffsets> [ -1 0 ]", b"<TimeOffsets> [ -1 0 1 ]", "64 columns for 3 time offsets"),
    (b"<NumComponents> 38", b"<NumComponents> 39", "expected <ComponentName>, found '</Nnet3>'"),
])
def test_what_is_wrong_is_named(golden: Path, old: bytes, new: bytes, problem: str) -> None:
    text = gzip.decompress((golden / "chain/net/final.raw.txt.gz").read_bytes())
    if old == b"<NoOpComponent>":
        text = text.replace(b"</NoOpComponent>", b"</NaNComponent>")
    assert old in text
    with pytest.raises(UserError, match=problem):
        Nnet3.parse(KaldiReader(text.replace(old, new, 1), "nnet"))


@pytest.mark.parametrize("text", ["input", "Append(Offset(input, -3), input, Offset(input, 3), ReplaceIndex(ivector, t, 0))", "Const(1, 4)",
                                  "Sum(Scale(0.66, tdnn1.dropout), tdnnf2.dropout)", "IfDefined(Offset(lstm.c, -3, 1))", "Round(a-b_c, 3)"])
def test_a_descriptor_is_written_as_it_was(text: str) -> None:
    assert str(parse_descriptor(text)) == text
    assert str(parse_descriptor(text.replace(" ", ""))) == text


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}", fullmatch=True).map(Descriptor)
WHOLE = st.integers(-9, 9).map(float)


def functions_of(part: st.SearchStrategy[Descriptor]) -> st.SearchStrategy[Descriptor]:
    """The functions of such parts."""
    return st.one_of(
        st.builds(lambda name, parts: Descriptor("", name, tuple(parts)), st.sampled_from(["Append", "Sum"]),
                  st.lists(part, min_size=1, max_size=3)),
        st.builds(lambda name, one, t: Descriptor("", name, (one,), (t,)), st.sampled_from(["Offset", "Round"]), part, WHOLE),
        st.builds(lambda one, scale: Descriptor("", "Scale", (one,), (scale,)), part, st.integers(-999, 999).map(lambda n: n / 100)),
        st.builds(lambda one, t: Descriptor("", "ReplaceIndex", (one,), (t,), "t"), part, WHOLE),
        st.builds(lambda one: Descriptor("", "IfDefined", (one,)), part))


@settings(max_examples=60)
@given(st.recursive(NAMES, functions_of, max_leaves=8))
def test_any_descriptor_is_read_as_it_was_written(descriptor: Descriptor) -> None:
    assert parse_descriptor(str(descriptor)) == descriptor


@pytest.mark.parametrize("text", ["", "Append()", "Offset(x)", "Offset(x, 1.5)", "Scale(x, 1)", "Sum(x, )", "Mean(x, y)", "x y", "3",
                                  "Offset(x, 1, 2, 3)", "ReplaceIndex(x, n, 0)", "Sum(" * 60 + "x" + ")" * 60])
def test_no_descriptor(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|argument"):
        parse_descriptor(text)


@pytest.mark.parametrize("line", ["node name=x", "input-node name=x", "input-node name=x dim=many", "input-node dim=4", "",
                                  "component-node name=3 component=x input=y"])
def test_no_node(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected|has"):
        parse_node(line)
