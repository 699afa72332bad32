"""Presets: that of AN4 is the network that Kaldi trained, those of mini_librispeech are its recipes'; all of them are networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.presets import PRESETS, PresetOptions, Sides, preset
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers


def test_tdnnf_is_what_kaldi_trained_on_an4(golden: Path, tmp_path: Path) -> None:
    kaldis = (golden / "chain_an4/configs/network.xconfig").read_text()
    made = preset("tdnnf", Sides(40, 0, 248), PresetOptions())
    assert made == kaldis
    np.savetxt(tmp_path / "idct.mat", np.zeros((40, 41)), header="[", footer="]", comments="")
    nnet = initialised(config_lines(read_layers(made.splitlines()))["final"], torch.Generator().manual_seed(1), tmp_path)
    model = Nnet3Model.read(golden / "chain_an4/final.mdl").nnet
    assert [str(node) for node in nnet.nodes.values()] == [str(node) for node in model.nodes.values()]
    assert nnet.num_params == model.num_params == 507632


@pytest.mark.parametrize(("name", "script"), [("tdnnf-1k", "run_tdnn_1k.sh"), ("cnn-tdnn", "run_cnn_tdnn_1a.sh")])
def test_others_are_mini_librispeechs(kaldi_egs: Path, name: str, script: str) -> None:
    text = (kaldi_egs / "mini_librispeech/s5/local/chain/tuning" / script).read_text()
    options = {key: value.strip('"') for key, value in (line.strip().split("=", 1) for line in text.splitlines() if "_opts=\"" in line)}
    xconfig = text.split("network.xconfig\n")[1].split("\nEOF")[0]
    for key, value in {**options, "dir/configs/": "", "num_targets": "99", "learning_rate_factor": "5.0"}.items():
        xconfig = xconfig.replace(f"${key}", value)
    made = preset(name, Sides(40, 100, 99), PresetOptions(dropout=name == "cnn-tdnn"))
    assert config_lines(read_layers(made.splitlines())) == config_lines(read_layers(xconfig.splitlines()))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("options", [PresetOptions(), PresetOptions(hid_layers=4, hid_dim=48, bottleneck_dim=8, dropout=False)])
@pytest.mark.parametrize("ivector", [0, 10])
def test_presets_are_networks(name: str, options: PresetOptions, ivector: int) -> None:
    layers = read_layers(preset(name, Sides(40, ivector, 30), options).splitlines())
    assert [layer.name for layer in layers if layer.kind == "output-layer"] == ["output", "output-xent"]
    factorised = [layer for layer in layers if layer.kind == "tdnnf-layer"]
    own = {"tdnnf": 7, "tdnnf-1k": 13, "cnn-tdnn": 9}[name]
    assert len(factorised) == (options.hid_layers or own) - (name != "cnn-tdnn")
    assert {layer.values["dim"] for layer in factorised} == {options.hid_dim or (256 if name == "tdnnf" else 768)}


def test_what_is_no_preset_is_refused() -> None:
    with pytest.raises(UserError, match="--nnet tdnf: there is no such preset; the nearest are tdnnf"):
        preset("tdnf", Sides(40, 0, 30), PresetOptions())
    with pytest.raises(UserError, match="--hid-layers 1 "):
        preset("tdnnf", Sides(40, 0, 30), PresetOptions(hid_layers=1))
    with pytest.raises(UserError, match="--bottleneck-dim 50"):
        preset("tdnnf", Sides(40, 0, 30), PresetOptions(hid_dim=40, bottleneck_dim=50))
    with pytest.raises(UserError, match="dimension that 8 divides, such as 40, found 13"):
        preset("cnn-tdnn", Sides(13, 0, 30), PresetOptions())
    with pytest.raises(UserError, match="--hid-dim -1 is negative"):
        PresetOptions(hid_dim=-1)
