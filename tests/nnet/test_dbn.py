"""A stack of RBMs: its files, and a DNN that starts from it."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.network import FeatureTransform
from pykaldist.nnet.nnet1 import Nnet1

SHAPE = DnnOptions(hid_layers=2, hid_dim=7)


@pytest.fixture
def dbn() -> Dbn:
    generator = torch.Generator().manual_seed(1)
    layers = [(torch.randn(7, 6, generator=generator), torch.randn(7, generator=generator)),
              (torch.randn(7, 7, generator=generator), torch.randn(7, generator=generator))]
    return Dbn(FeatureTransform([-1, 0, 1], torch.linspace(-1, 1, 6), torch.linspace(0.5, 2, 6)), layers)


def same(one: Dbn, other: Dbn) -> bool:
    pairs = [(one.transform.shift, other.transform.shift), (one.transform.scale, other.transform.scale)]
    pairs += [pair for ours, theirs in zip(one.layers, other.layers, strict=True) for pair in zip(ours, theirs, strict=True)]
    return one.transform.splice == other.transform.splice and all(torch.equal(a, b) for a, b in pairs)


def test_file_round_trip(dbn, tmp_path):
    dbn.save(tmp_path / "dbn.pt")
    loaded = Dbn.load(tmp_path)
    assert same(dbn, loaded) and loaded.checksum() == dbn.checksum()
    loaded.layers[1][1][3] += 1e-6
    assert loaded.checksum() != dbn.checksum()


def test_a_folder_of_kaldi_is_read(dbn, tmp_path):
    """pretrain_dbn.sh leaves a stack for each depth; the deepest counts, by number."""
    stack, transform = dbn.to_nnet1()
    stack.write(tmp_path / "10.dbn")
    Nnet1(stack.components[:2]).write(tmp_path / "9.dbn")
    transform.write(tmp_path / "final.feature_transform")
    assert same(dbn, Dbn.load(tmp_path))
    Nnet1(stack.components[:1]).write(tmp_path / "10.dbn")
    with pytest.raises(UserError, match="by turns"):
        Dbn.load(tmp_path)


def test_a_dnn_starts_from_it(dbn):
    model = make_dnn(SHAPE, 6, 4)
    init_dnn(model, SHAPE, torch.Generator().manual_seed(1))
    output = [view.clone() for view in model.views(model.params)[-1]]
    dbn.check(SHAPE, [-1, 0, 1], 2)
    dbn.start(model)
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))
    hidden = inputs
    for weight, bias in dbn.layers:
        hidden = torch.sigmoid(hidden @ weight.t() + bias)
    assert torch.allclose(dbn.network().forward(inputs), hidden, atol=1e-6)
    assert torch.allclose(model.forward(inputs), hidden @ output[0].t(), atol=1e-5) and not output[1].any()


def test_hidden_layers_above_it_stay_random(dbn):
    deep = DnnOptions(3, 7)
    dbn.check(deep, [-1, 0, 1], 2)
    model, random = make_dnn(deep, 6, 4), make_dnn(deep, 6, 4)
    for network in (model, random):
        init_dnn(network, deep, torch.Generator().manual_seed(1))
    dbn.start(model)
    maps, drawn = ([views for views in network.views(network.params) if views] for network in (model, random))
    assert all(torch.equal(a, b) for own, layer in zip(maps[:2], dbn.layers, strict=True) for a, b in zip(own, layer, strict=True))
    assert all(torch.equal(a, b) for own, other in zip(maps[2:], drawn[2:], strict=True) for a, b in zip(own, other, strict=True))


def test_a_file_of_it_is_read_with_the_transform_that_is_given(dbn, tmp_path):
    stack, transform = dbn.to_nnet1()
    stack.write(tmp_path / "2.dbn")
    with pytest.raises(FileNotFoundError, match=r"final\.feature_transform"):
        Dbn.load(tmp_path / "2.dbn")
    transform.write(tmp_path / "final.feature_transform")
    assert Dbn.load(tmp_path / "2.dbn").checksum() == dbn.checksum()
    other = FeatureTransform(dbn.transform.splice, dbn.transform.shift + 1, dbn.transform.scale)
    found = Dbn.load(tmp_path / "2.dbn", other)
    assert torch.equal(found.transform.shift, other.shift) and found.hid_dims == dbn.hid_dims


@pytest.mark.parametrize(("options", "splice", "dim", "words"), [
    (DnnOptions(2, 7, "relu"), [-1, 0, 1], 2, "--activation relu"),
    (DnnOptions(2, 7, batch_norm=True), [-1, 0, 1], 2, "--batch-norm true: the layers of a DBN have none"),
    (DnnOptions(2, 7, bottleneck_dim=3), [-1, 0, 1], 2, "--bottleneck-dim"),
    (DnnOptions(1, 7), [-1, 0, 1], 2, "--hid-layers 1 --hid-dim 7: the DBN has layers of 7, 7 units"),
    (DnnOptions(2, 8), [-1, 0, 1], 2, "--hid-layers 2 --hid-dim 8"),
    (SHAPE, [-2, -1, 0, 1, 2], 2, "takes frames -1 to 1, the network is to take -2 to 2"),
    (SHAPE, [-1, 0, 1], 13, "features of dimension 2, the store has 13"),
])
def test_what_does_not_fit_is_said_in_words(dbn, options, splice, dim, words):
    with pytest.raises(UserError, match=words):
        dbn.check(options, splice, dim)


def test_damaged_or_missing_is_said_in_words(dbn, tmp_path):
    with pytest.raises(UserError, match=r"dbn\.pt does not exist"):
        Dbn.load(tmp_path)
    dbn.save(tmp_path / "dbn.pt")
    content = bytearray((tmp_path / "dbn.pt").read_bytes())
    content[-40] ^= 1
    (tmp_path / "dbn.pt").write_bytes(content)
    with pytest.raises(UserError, match="checksum"):
        Dbn.load(tmp_path)
