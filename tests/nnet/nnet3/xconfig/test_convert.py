"""xconfig files become Kaldi's configs line by line; abbreviations, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers, write_configs
from pykaldist.nnet.nnet3.xconfig.descriptors import parse_xconfig_descriptor, text_of
from pykaldist.nnet.nnet3.xconfig.layers import LAYERS
from pykaldist.nnet.nnet3.xconfig.line import parse_line


def without_comments(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_kaldis_xconfig_makes_kaldis_config(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = golden / "chain/net"
    monkeypatch.chdir(tmp_path)  # where the matrix of idct-layer is written
    assert write_configs(net / "network.xconfig", "configs", command="made by a test") == (5, 5)
    configs = tmp_path / "configs"
    assert without_comments(configs / "final.config") == without_comments(net / "final.config")
    assert (tmp_path / "idct.mat").read_text() == (net / "idct.mat").read_text()
    assert (configs / "vars").read_text() == "model_left_context=5\nmodel_right_context=5\n"
    ref = without_comments(configs / "ref.config")
    assert [line for line in ref if line not in without_comments(configs / "final.config")] == [
        "component name=lda type=FixedAffineComponent input-dim=120 output-dim=120"]
    assert Nnet3.read(configs / "ref.raw").num_params == 11424
    assert "# made by a test\n" in (configs / "final.config").read_text()
    assert without_comments(configs / "xconfig") == [line for line in (net / "network.xconfig").read_text().splitlines() if line]
    first, second = (without_comments(configs / f"xconfig.expanded.{n}") for n in (1, 2))
    assert first[2] == ("fixed-affine-layer name=lda affine-transform-file=lda.mat delay=0 dim=120 input=Append(-1,0,1) "
                        "write-init-config=False")
    assert second[2] == ("fixed-affine-layer name=lda affine-transform-file=lda.mat delay=0 dim=120 "
                         "input=Append(Offset(idct, -1), idct, Offset(idct, 1)) write-init-config=False")
    assert not (configs / "init.config").exists()


def test_an_lda_like_transform_has_a_config_of_its_statistics(tmp_path: Path) -> None:
    xconfig = tmp_path / "xconfig"
    xconfig.write_text("input dim=4 name=ivector\ninput dim=3 name=input\n"
                       "fixed-affine-layer name=lda input=Append(-2,0,1,ReplaceIndex(ivector, t, 0)) affine-transform-file=lda.mat\n"
                       "relu-layer name=tdnn1 dim=6\noutput-layer name=output dim=5 input=Append(-3,0)\n")
    assert write_configs(xconfig, tmp_path) == (5, 1)
    assert without_comments(tmp_path / "init.config") == [
        "input-node name=ivector dim=4", "input-node name=input dim=3",
        "output-node name=output input=Append(Offset(input, -2), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))"]
    assert Nnet3.read(tmp_path / "init.raw").dim("output") == 13


def test_an_output_delay_before_an_lda_is_refused(tmp_path: Path) -> None:
    lines = ["input dim=3 name=input", "fixed-affine-layer name=lda input=Append(-2,0) affine-transform-file=lda.mat",
             "output-layer name=output dim=5 output-delay=3"]
    (tmp_path / "xconfig").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"has the context \(2, 0\), more than the network's \(0, 3\).*give delay= to"):
        write_configs(tmp_path / "xconfig", tmp_path)
    (tmp_path / "xconfig").write_text("\n".join([lines[0], lines[1] + " delay=3", lines[2]]))
    assert write_configs(tmp_path / "xconfig", tmp_path) == (0, 3)


def test_layers_are_added_to_an_existing_network(golden: Path, tmp_path: Path) -> None:
    existing = Nnet3.read(golden / "chain/net/final.raw")
    xconfig = tmp_path / "xconfig"
    xconfig.write_text("relu-batchnorm-layer name=target input=Append(tdnnf4.noop@-3, tdnnf4.noop) dim=16\n"
                       "output-layer name=output-1 dim=9\n")
    edits = "remove-output-nodes name=output; rename-node old-name=output-1 new-name=output"
    assert write_configs(xconfig, tmp_path, existing, edits) == (8, 5)
    made = Nnet3.read(tmp_path / "ref.raw")
    assert made.dim("output-1") == 9 and len(made.components) == len(existing.components) + 5
    assert made.components["target.affine"].input_dim == 64
    np.testing.assert_array_equal(made.components["tdnn1.affine"].linear, existing.components["tdnn1.affine"].linear)


def test_recurrent_networks_have_a_context_without_their_recurrence(tmp_path: Path) -> None:
    (tmp_path / "xconfig").write_text("input dim=4 name=input\nfast-lstmp-layer name=lstm1 cell-dim=8 input=Append(-2,0,1) delay=-3 "
                                      "dropout-proportion=0.0\nlstm-layer name=lstm2 cell-dim=4\noutput-layer name=output dim=3\n")
    assert write_configs(tmp_path / "xconfig", tmp_path) == (2, 1)


ABBREVIATED = [
    ("Sum(a,b)", "Sum(a, b)"), ("a-3_4", "a-3_4"), ("Append(x@-3, x@0, x@+3)", "Append(Offset(x, -3), x, Offset(x, 3))"),
    ("Append(-3,0,3)", "Append(Offset(last, -3), last, Offset(last, 3))"), ("[-1]", "last"), ("[-2].c@3", "Offset(other.c, 3)"),
    ("Scale(2,3)", "Scale(2.0, Offset(last, 3))"), ("Const(0.5,500)", "Const(0.5, 500)"), ("IfDefined(Round(-1,3))",
                                                                                          "IfDefined(Round(Offset(last, -1), 3))"),
    ("Append(0, Scale(0.4, ReplaceIndex(ivector, t, 0)))", "Append(last, Scale(0.4, ReplaceIndex(ivector, t, 0)))")]


@pytest.mark.parametrize(("text", "expected"), ABBREVIATED)
def test_abbreviations_are_written_out(text: str, expected: str) -> None:
    assert text_of(parse_xconfig_descriptor(text, ["other", "last"])) == expected
    assert text_of(parse_xconfig_descriptor(expected, [])) == expected


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6))
def test_numbers_are_offsets_of_the_layer_before(offsets: list[int]) -> None:
    made = parse_xconfig_descriptor(f"Append({','.join(map(str, offsets))})", ["x"])
    assert [int(part.numbers[0]) if part.function else 0 for part in made.parts] == offsets


@pytest.mark.parametrize("text", ["@3", "a@", "a@b", "[-3]", "[0]", "a b", "Append(a,)", ")", "Mean(a)", "a@3@4", "a]", "",
                                  "Offset(1.5, 2)"])
def test_no_descriptor(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|there is no layer"):
        parse_xconfig_descriptor(text, ["other", "last"])


@pytest.mark.parametrize(("text", "expected"), [
    ("  # nothing", None), ("input dim=40 name=input  # MFCCs", ("input", {"dim": "40", "name": "input"})),
    ('relu-layer name=a ng-affine-options=" rank-in=3 alpha=2" dim = 4', ("relu-layer", {"name": "a", "dim": "4",
                                                                                       "ng-affine-options": "rank-in=3 alpha=2"})),
    ("x-layer input=Append(a, b, ReplaceIndex(i, t, 0)) y=1", ("x-layer", {"input": "Append(a, b, ReplaceIndex(i, t, 0))", "y": "1"}))])
def test_lines_are_parsed(text: str, expected: object) -> None:
    assert parse_line(text) == expected


@settings(max_examples=50)
@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,6}", fullmatch=True), st.from_regex(r"[A-Za-z0-9.(][A-Za-z0-9.(), -]{0,8}[a-z0-9)]",
                                                                                      fullmatch=True), max_size=4))
def test_what_was_written_is_read(fields: dict[str, str]) -> None:
    line = " ".join(["some-layer", *(f"{key}={value}" for key, value in fields.items())])
    assert parse_line(line) == ("some-layer", {key: " ".join(value.split()) for key, value in fields.items()})


HEAD = ["# a comment", "input dim=4 name=input"]


@pytest.mark.parametrize(("line", "problem"), [
    ("relu-layer name=a dim=3 max-chnge=1", r"line 3 .*relu-layer has no field max-chnge=; the nearest is max-change"),
    ("relu-batchnrm-layer name=a dim=3", "no layer that is known here; the nearest are relu-batchnorm-layer"),
    ("fast-opgr-layer name=a cell-dim=3", "fast-opgr-layer is no layer that is known here; the nearest are fast-opgru-layer"),
    ("relu-layer name=a dim=3.5", "dim=3.5: expected an integer"),
    ("relu-layer name=a dim=3 self-repair-scale=much", "self-repair-scale=much: expected a number"),
    ("output-layer name=o dim=3 include-log-softmax=1", "include-log-softmax=1: expected true or false"),
    ("relu-layer name=input dim=3", "there is a layer input already"),
    ("relu-layer name=3 dim=3", "expected name= with a letter"),
    ("relu-layer name=a dim=3 input=inpt", "no layer inpt before this one; the nearest is input"),
    ("relu-layer name=a dim=3 input=input.c", "layer input has no output c; it has its main one only"),
    ("relu-layer name=a dim=3 input=Sum(input, Append(input, input))", "parts of dimensions 4, 8"),
    ("relu-layer name=a dim=3 bottleneck-dim=3", "bottleneck-dim=3: expected less than dim=3"),
    ("relu-layer name=a dim=3 dim=4", "field dim= is there twice"),
    ("relu-layer dim=3 name=a 'x'", r"expected letters, digits and"),
    ('relu-layer dim=3 name=a x="y', "double quotes in pairs"),
    ("relu-layer dim 3 name=a", "expected fields as key=value, found 'dim 3'"),
    ("Relu name=a", "expected the kind of a layer first"),
    ("tdnnf-layer name=a dim=8 bottleneck-dim=2", "dim=8: expected the input's dimension, 4, or bypass-scale=0"),
    ("tdnnf-layer name=a dim=4 bottleneck-dim=4", "bottleneck-dim=4: expected above 0 and below dim=4"),
    ("tdnnf-layer name=a dim=4 bottleneck-dim=2 context=right", "context=right: expected default, left-only"),
    ("conv-relu-layer name=a height-in=3 height-out=3 num-filters-out=2", "height-in=3: expected a divisor of the input's 4"),
    ("conv-relu-layer name=a height-in=4 height-out=4 num-filters-out=2 time-offsets=0 height-offsets=1,0", "height-offsets=1,0: expected"),
    ("conv-relu-layer name=a height-in=4 height-out=5 num-filters-out=2 time-offsets=0 height-offsets=0", "height-out=5: expected"),
    ("combine-feature-maps-layer name=a num-filters1=1 num-filters2=1 height=3", "that make the input's dimension, 4"),
    ("stats-layer name=a config=median(1:1:1:1)", "expected such as mean"),
    ("stats-layer name=a config=mean(-5:1:3:6)", "ends that are multiples"),
    ("spec-augment-layer name=a freq-max-proportion=1.5", "freq-max-proportion=1.5: expected a number between 0 and 1"),
    ("fixed-affine-layer name=lda", "affine-transform-file=: expected the file of the matrix"),
    ("dim-range-component name=a dim=3 dim-offset=2", "dim-offset=2: expected from 0 to 1"),
    ("delta-layer name=a input=Append(-1,0)", "expected one layer, without a function"),
    ("lstmp-layer name=a cell-dim=8 recurrent-projection-dim=6", "recurrent-projection-dim=6: expected above 0"),
    ("fast-lstm-layer name=a cell-dim=8 delay=0", "delay=0: expected a number of frames other than 0"),
    ("fast-lstm-layer name=a cell-dim=8 delay=-3 decay-time=2", "decay-time=2.0: expected more than the delay, 3"),
    ("attention-relu-layer name=a", "attention-relu-layer is no layer that is known"),
    ("attention-relu-batchnorm-layer name=a value-dim=3", "key-dim=-1: expected a number above 0"),
    ("res-block name=a height=4 num-filters=2", "num-filters=2: expected 1"),
    ("output name=o objective-type=cubic", "objective-type=cubic: expected linear or quadratic"),
])
def test_what_is_wrong_with_a_line_is_said(line: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_layers([*HEAD, line], "the file")


def test_none_takes_input_from_an_output_layer() -> None:
    lines = [*HEAD, "output-layer name=output dim=3"]
    assert config_lines(read_layers([*lines, "output name=again input=output.affine"]))["final"][-1] == (
        "output-node name=again input=output.affine objective=linear")
    with pytest.raises(UserError, match="output is an output layer, from which none can take input; name the layer before it"):
        read_layers([*lines, "relu-layer name=a dim=3"])


def test_files_without_layers_or_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no layers"):
        read_layers(["# nothing"])
    (tmp_path / "xconfig").write_text("\n".join(HEAD))
    with pytest.raises(UserError, match="has no output or output-layer"):
        write_configs(tmp_path / "xconfig", tmp_path)


#: a line of each kind of layer, whose input has 8 dimensions
LINES = {
    "input": "dim=3", "output": "", "output-layer": "dim=9 bottleneck-dim=3", "affine-layer": "dim=5", "linear-component": "dim=5",
    "affine-component": "dim=5", "fixed-affine-layer": "affine-transform-file=x.mat", "idct-layer": "affine-transform-file=x.mat",
    "combine-feature-maps-layer": "num-filters1=1 num-filters2=3 height=2", "channel-average-layer": "dim=4",
    "dim-range-component": "dim=3 dim-offset=2", "tdnnf-layer": "dim=8 bottleneck-dim=3 time-stride=2",
    "prefinal-layer": "big-dim=6 small-dim=4", "res-block": "height=4 num-bottleneck-filters=1",
    "stats-layer": "config=mean+stddev(-4:1:2:4)",
    "res2-block": "height-in=4 height-out=2 num-filters=3 time-period=2", "lstmb-layer": "cell-dim=8 bottleneck-dim=3",
    **{kind: "height-in=4 height-out=2 height-subsample-out=2 num-filters-out=3 time-offsets=-1,0 height-offsets=-1,0,1"
       for kind in LAYERS if "conv" in kind.split("-")},
    **dict.fromkeys(("relu-batchnorm-noconv-layer", "relu-noconv-layer"), "height-in=4 height-out=4 num-filters-out=2"),
    **{kind: "value-dim=3 key-dim=2 num-left-inputs=1 num-right-inputs=1 num-heads=2" for kind in LAYERS if "attention" in kind},
    **{kind: "cell-dim=8" for kind in LAYERS if ("lstm" in kind or "gru" in kind) and kind != "lstmb-layer"}}


@pytest.mark.parametrize("kind", LAYERS)
def test_each_kind_of_layer_makes_a_network(kind: str) -> None:
    """The lines of a layer make components whose dimensions fit, and an output of the dimension that the layer says."""
    layers = read_layers(["input dim=8 name=input", f"{kind} name=one {LINES.get(kind, 'dim=6' if 'layer' in kind else '')}"
                          if kind not in ("delta-layer", "spec-augment-layer") else f"{kind} name=one"])
    one, lines = layers[1], config_lines(layers)["ref"]
    source = "input" if kind == "input" else "one.affine" if kind == "output-layer" else one.output()
    lines.append(f"output-node name=checked input={source}")
    lines = [line.replace("matrix=x.mat", "input-dim=8 output-dim=8") for line in lines]
    nnet = initialised(lines if kind != "output" else lines[:-1], torch.Generator().manual_seed(0))
    assert nnet.dim("one" if kind in ("output", "input") else "checked") == one.dim()
