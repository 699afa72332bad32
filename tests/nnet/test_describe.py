"""nnet-info: its sums against the model's own, its receptive field against what moves when an input does."""

from __future__ import annotations

import re

import pytest
import torch

from pykaldist.cli import main
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.describe import describe
from pykaldist.nnet.kinds import KINDS, PRESETS, default_splice, init_nnet, make_nnet


@pytest.mark.parametrize("name", [*KINDS, *PRESETS])
def test_every_kind_and_preset_is_described(name, capsys):
    assert main(["nnet-info", "--num-pdfs", "712", name]) == 0
    said = capsys.readouterr().out
    own = sum(int(line.split()[4].replace(",", "")) for line in said.splitlines() if re.match(r"\d+ ", line))
    assert own == int(re.search(r"^parameters ([\d,]+)$", said, re.MULTILINE)[1].replace(",", ""))


def test_flops_are_those_of_the_products(capsys):
    """2 x 256 LSTM of 40 features, 712 outputs: 2 (40 + 256) 1024 + 2 512 1024 + 2 256 712."""
    assert main(["nnet-info", "--num-pdfs", "712", "lstm"]) == 0
    assert f"flops a frame {2 * 296 * 1024 + 2 * 512 * 1024 + 2 * 256 * 712:,} forward" in capsys.readouterr().out


def test_a_convolutional_unit_sees_what_is_said():
    options = CnnOptions(conv="3x2x4/2,2x3x5", hid_layers=0)
    model = make_nnet(options, 7 * 16, 3, 7)
    init_nnet(model, options, torch.Generator().manual_seed(0))
    said = describe(options, model, default_splice(options, 3))
    seen_by = ["Convolution .* 3 frames x 2 bands", "MaxPooling .* 3 frames x 3 bands", "Relu.*", "Convolution .* 4 frames x 7 bands"]
    assert re.search("\n.*".join(seen_by), said)
    seen = torch.zeros(7, 16, dtype=torch.bool)
    base, unit = torch.rand(1, 7 * 16), 3
    model.forward(base)
    before = model._activations.outputs[unit][0, 0].item()
    for value in (-9.0, 9.0):
        for place in range(7 * 16):
            moved = base.clone()
            moved[0, place] = value
            model.forward(moved)
            seen.view(-1)[place] |= model._activations.outputs[unit][0, 0].item() != before
    frames, bands = seen.any(1).sum().item(), seen.any(0).sum().item()
    assert (frames, bands) == (4, 7)


def test_sizes_are_for_names_only(tmp_path, capsys):
    (tmp_path / "final.nnet").write_text("<Nnet>")
    assert main(["nnet-info", "--feat-dim", "40", str(tmp_path / "final.nnet")]) == 1
    assert "are for the name of a network" in capsys.readouterr().err
