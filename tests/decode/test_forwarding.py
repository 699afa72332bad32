"""Verbs that send features through recurrent networks: greedy decoding of CTC, and the ways through a bidirectional network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.cli import main
from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.decode.chunks import ChunkOptions
from pykaldist.decode.ivectors import ChunkedForward
from pykaldist.devices import take_device
from pykaldist.errors import UserError
from pykaldist.io.tables import MatrixWriter, read_archive
from pykaldist.nnet import arithmetic
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.convert import to_component
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.nnet.kinds import init_nnet, make_nnet
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.stream import Nnet3Stream

FEATS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


def save(options, path: Path, splice=(0,)) -> Network:
    model = make_nnet(options, 2 * len(splice), 4, len(splice))
    init_nnet(model, options, torch.Generator().manual_seed(1))
    size = model.input_dim
    network = Network(options, model, FeatureTransform(list(splice), torch.zeros(size), torch.ones(size)), torch.tensor([1, 1, 2, 4]))
    network.save(path)
    return network


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    (path / "utt2spk").write_text("u1 s\n")
    (path / "wav.scp").write_text("u1 u1.wav\n")
    with MatrixWriter(path / "feats.ark", path / "feats.scp") as writer:
        writer.write("u1", FEATS)
    return path


@pytest.mark.parametrize(("tokens", "text"), [
    ("<blk> 0\nA 1\nB 2\nC 3\n", "u1 A B B C\n"), ("<blk> 0\n<space> 1\na 2\nb 3\n", "u1 aa b\n")])
def test_greedy_decoding_gives_the_labels_of_the_best_path(data, tmp_path, tokens, text):
    """A network whose four outputs are what the two features say: (1, 1) -> 0 (blank), (-1, 1) -> 1, (1, -1) -> 2, (-1, -1) -> 3."""
    exp = tmp_path / "exp"
    exp.mkdir()
    network = save(CnnOptions(conv="1x1x4", hid_layers=0), exp / "final.pt")
    network.model.params.zero_()
    (filters, _), (weight, _) = (views for views in network.model.views(network.model.params) if views)
    filters.view(-1)[:] = torch.tensor([1.0, -1.0, 0.0, 0.0])
    image = weight.view(4, 2, 4)  # outputs, bands, maps: relu(x), relu(-x)
    for k in range(4):
        image[k, 0, k & 1] = image[k, 1, k >> 1] = 5.0
    network.counts = torch.ones(4)
    network.save(exp / "final.pt")
    (exp / "tokens.txt").write_text(tokens)
    (exp / "cmvn_opts").write_text("--norm-means=false\n")
    path = [0, 1, 1, 0, 2, 2, 0, 2, 3] if "A" in tokens else [2, 2, 0, 2, 1, 0, 3]
    with MatrixWriter(data / "feats.ark", data / "feats.scp") as writer:
        writer.write("u1", np.array([[1 - 2 * (k & 1), 1 - 2 * (k >> 1)] for k in path], np.float32))
    assert main(["decode-greedy", str(exp), str(data), str(tmp_path / "greedy.txt")]) == 0
    assert (tmp_path / "greedy.txt").read_text() == text


def test_greedy_decoding_is_for_ctc(data, tmp_path, capsys):
    save(BlstmOptions(hid_dim=6), tmp_path / "final.pt")
    assert main(["decode-greedy", str(tmp_path), str(data), str(tmp_path / "greedy.txt")]) == 1
    assert "has no tokens.txt" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--forward", "chunks", "--forward-chunk", "5-20+5", "--forward-overlap", "4"],
                                     ["--forward", "latency-controlled"]])
def test_nnet_forward_goes_the_way_it_is_told(data, tmp_path, options):
    network = save(BlstmOptions(hid_dim=6), tmp_path / "final.pt")
    for name, value in zip(options[::2], options[1::2], strict=True):
        setattr(network.forwarding, name[2:].replace("-", "_"), int(value) if value.isdecimal() else value)
    expected = network.log_posteriors(FEATS)
    for flags, wanted in ((["--no-softmax=true"], expected), (["--apply-log=true"], expected), ([], np.exp(expected))):
        assert main(["nnet-forward", *options, *flags, str(tmp_path / "final.pt"), str(data / "feats.ark"), str(tmp_path / "out.ark")]) == 0
        assert np.allclose(dict(read_archive(tmp_path / "out.ark"))["u1"], wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["final.pt", "final.nnet"])
def test_networks_compute_where_they_are_told(data, tmp_path, monkeypatch, capsys, name):
    """On the job's device, here a CPU that is called otherwise: whatever makes the model, or runs nnet1's components, is given it."""
    chosen = []
    monkeypatch.setattr("pykaldist.programs.nnet_forward.device_of", lambda use_gpu, device: chosen.append(device) or "cpu:0")
    save(CnnOptions(conv="0x1x3", hid_layers=0), tmp_path / "final.pt")
    assert main(["copy-nnet", "--feature-transform", str(tmp_path / "ft"), str(tmp_path / "final.pt"), str(tmp_path / "final.nnet")]) == 0
    loaded, load, made, make = [], Network.load, [], Nnet1Forward.__init__
    monkeypatch.setattr(Network, "load", lambda path, device="cpu": loaded.append(device) or load(path, device))
    monkeypatch.setattr(Nnet1Forward, "__init__", lambda run, nnet, device="cpu": made.append(device) or make(run, nnet, device))
    words = ["nnet-forward", "--device", "cuda", str(tmp_path / name), str(data / "feats.ark"), str(tmp_path / "out.ark")]
    assert main(words) == 0, capsys.readouterr().err
    assert chosen == ["cuda"] and (loaded, made) == ((["cpu:0"], []) if name == "final.pt" else ([], ["cpu:0"]))


def test_a_device_that_is_not_there(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pykaldist.devices.num_visible", lambda: 0)
    save(CnnOptions(conv="0x1x3", hid_layers=0), tmp_path / "final.pt")
    assert main(["nnet-forward", "--device", "cuda", str(tmp_path / "final.pt"), str(data / "feats.ark"), str(tmp_path / "out.ark")]) == 1
    assert "--device cuda: this machine has 0 CUDA devices; use --device cpu." in capsys.readouterr().err


def test_jobs_of_decoding_take_devices_in_turn(tmp_path, monkeypatch):
    exp = tmp_path / "exp"
    exp.mkdir()
    save(CnnOptions(conv="0x1x3", hid_layers=0), exp / "final.pt")
    (exp / "tokens.txt").write_text("<blk> 0\n")
    (exp / "cmvn_opts").write_text("--norm-means=false\n")
    loaded, load, current = [], Network.load, []
    monkeypatch.setattr("pykaldist.devices.num_visible", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(Network, "load", lambda path, device: loaded.append(device) or load(path))
    for device, job in (("auto", 1), ("auto", 2), ("cuda", 3), ("cuda:1", 1), ("cpu", 2)):
        load_acoustic_model(exp, forwarding=ForwardOptions(device=device), job=job)
    assert loaded == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cpu"] and current == loaded[:4]


def ways_of_forwarding(folder: Path, device: str) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Forward passes of each kind of network, of features of two dimensions."""
    save(BlstmOptions(hid_dim=6), folder / "final.pt")
    affine = to_component("AffineTransform", 3, 2, linearity=FEATS[:3], bias=FEATS[3:6, 0])
    nnet3 = initialised(["input-node name=input dim=2", "component name=one type=NaturalGradientAffineComponent input-dim=6 output-dim=3",
                         "component-node name=one component=one input=Append(Offset(input, -1), input, Offset(input, 1))",
                         "output-node name=output input=one"], torch.Generator().manual_seed(1))

    forward = Nnet3Forward(nnet3, device)

    def streamed(feats: np.ndarray) -> np.ndarray:
        stream = Nnet3Stream(forward)
        return np.concatenate([stream.accept(feats[:20]), stream.accept(feats[20:]), stream.finish()])

    return [Network.load(folder / "final.pt", device).log_posteriors, Nnet1Forward(Nnet1([affine]), device), forward, streamed,
            ChunkedForward(forward, ChunkOptions(frames_per_chunk=20))]


@pytest.mark.gpu(devices=2)
def test_a_network_computes_on_its_device_in_any_thread(tmp_path):
    """Requests of a server come in threads of their own, whose current device is the first."""
    ways = zip(ways_of_forwarding(tmp_path, "cpu"), ways_of_forwarding(tmp_path, take_device("cuda:1")), strict=True)
    with ThreadPoolExecutor(1) as thread:
        for on_cpu, on_gpu in ways:
            np.testing.assert_allclose(thread.submit(on_gpu, FEATS).result(), on_cpu(FEATS), atol=1e-5)


def test_a_gmm_is_decoded_on_the_cpu(tmp_path):
    (tmp_path / "final.mdl").write_text("<TransitionModel> </TransitionModel> <DIMENSION> 39 ")
    with pytest.raises(UserError, match=r"--device cuda:0: .* has a GMM, which is decoded on the CPU; leave the option out\."):
        load_acoustic_model(tmp_path, forwarding=ForwardOptions(device="cuda:0"))


@pytest.mark.parametrize("options", [DnnOptions(2, 16, "sigmoid"), CnnOptions(conv="0x1x3", hid_layers=1), BlstmOptions(hid_dim=6)])
def test_nnet_forward_in_bfloat16_comes_near(data, tmp_path, monkeypatch, options):
    (tmp_path / "cpuinfo").write_text("flags : avx512_bf16\n")
    monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")
    expected = save(options, tmp_path / "final.pt", (-1, 0, 1)).log_posteriors(FEATS)
    assert main(["nnet-forward", "--no-softmax=true", "--dtype", "bf16", str(tmp_path / "final.pt"), str(data / "feats.ark"),
                 str(tmp_path / "out.ark")]) == 0
    found = dict(read_archive(tmp_path / "out.ark"))["u1"]
    assert 0.0 < np.abs(found - expected).max() < 0.05


def test_nnet_forward_with_integers_comes_near(data, tmp_path, monkeypatch, capsys):
    (tmp_path / "cpuinfo").write_text("flags : avx512_vnni\n")
    monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")
    network = save(DnnOptions(2, 16, "sigmoid"), tmp_path / "final.pt", (-1, 0, 1))
    expected = network.log_posteriors(FEATS)
    command = ["nnet-forward", "--no-softmax=true", "--device", "cpu", "--dtype", "int8", str(tmp_path / "final.pt"),
               str(data / "feats.ark"), str(tmp_path / "out.ark")]
    assert main(command) == 0
    found = dict(read_archive(tmp_path / "out.ark"))["u1"]
    assert 0.0 < np.abs(found - expected).max() < 0.05
    network.forwarding = ForwardOptions(dtype="int8")
    assert np.array_equal(network.log_posteriors(FEATS), found)
    network.forwarding = ForwardOptions()
    assert np.array_equal(network.log_posteriors(FEATS), expected)
    save(BlstmOptions(hid_dim=6), tmp_path / "final.pt")
    assert main(command) == 1
    assert "--dtype int8 is for networks whose maps are all affine layers" in capsys.readouterr().err


def test_bfloat16_is_refused_where_there_is_none(data, tmp_path, monkeypatch, capsys):
    (tmp_path / "cpuinfo").write_text("flags : avx2\n")
    monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")
    save(DnnOptions(1, 8, "sigmoid"), tmp_path / "final.pt")
    files = [str(data / "feats.ark"), str(tmp_path / "out.ark")]
    assert main(["nnet-forward", "--dtype", "bf16", str(tmp_path / "final.pt"), *files]) == 1
    assert "--dtype bf16 on a CPU needs AMX or AVX512-BF16" in capsys.readouterr().err
    assert main(["copy-nnet", str(tmp_path / "final.pt"), str(tmp_path / "final.nnet")]) == 0
    assert main(["nnet-forward", "--dtype", "bf16", str(tmp_path / "final.nnet"), *files]) == 1
    assert "--dtype bf16 is for all layers of a network in a final.pt" in capsys.readouterr().err
    (tmp_path / "final.pt").unlink()
    with pytest.raises(UserError, match="--dtype bf16 is for networks in a final"):
        load_acoustic_model(tmp_path, forwarding=ForwardOptions(dtype="bf16"))


def test_nnet_forward_refuses_ways_that_are_not_there(data, tmp_path, capsys):
    save(CnnOptions(conv="0x1x3", hid_layers=0), tmp_path / "final.pt")
    assert main(["copy-nnet", "--feature-transform", str(tmp_path / "ft"), str(tmp_path / "final.pt"), str(tmp_path / "final.nnet")]) == 0
    files = [str(data / "feats.ark"), str(tmp_path / "out.ark")]
    assert main(["nnet-forward", "--forward", "chunks", str(tmp_path / "final.nnet"), *files]) == 1
    assert "--forward chunks is for the outputs of bidirectional networks" in capsys.readouterr().err
    assert main(["nnet-forward", "--forward", "chunks", str(tmp_path / "final.pt"), *files]) == 1
    assert "--forward chunks" in capsys.readouterr().err
    assert main(["nnet-forward", "--feature-transform", str(tmp_path / "ft"), str(tmp_path / "final.pt"), *files]) == 1
    assert "has its own; leave the option out" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize(("options", "forward"), [
    (DnnOptions(2, 8), "whole"), (CnnOptions(conv="0x1x3", hid_layers=1, hid_dim=6), "whole"),
    (LstmOptions(hid_layers=2, hid_dim=6, projection_dim=3, peepholes=True), "whole"), (BlstmOptions(hid_dim=6), "whole"),
    (BlstmOptions(hid_dim=6), "chunks"), (BlstmOptions(hid_dim=6), "latency-controlled")],
    ids=["dnn", "cnn", "lstm", "blstm", "blstm, chunks", "blstm, latency-controlled"])
def test_a_gpu_gives_a_cpus_posteriors(tmp_path, options, forward, dtype):
    save(options, tmp_path / "final.pt")
    found = []
    for device, own in (("cpu", "float32"), ("cuda", dtype)):
        network = Network.load(tmp_path / "final.pt", device)
        network.forwarding = ForwardOptions(forward, None if forward == "whole" else "5-20+5", 4, dtype=own)
        found.append(network.log_posteriors(FEATS))
    assert np.isfinite(found[0]).all()
    np.testing.assert_allclose(found[1], found[0], atol=1e-5 if dtype == "float32" else 0.05)


@pytest.mark.gpu
def test_a_gpu_gives_a_cpus_outputs_of_nnet1s_components(tmp_path):
    save(CnnOptions(conv="0x1x3", hid_layers=1, hid_dim=6), tmp_path / "final.pt")
    assert main(["copy-nnet", "--feature-transform", str(tmp_path / "ft"), str(tmp_path / "final.pt"), str(tmp_path / "final.nnet")]) == 0
    nnet = Nnet1.read(tmp_path / "final.nnet")
    np.testing.assert_allclose(Nnet1Forward(nnet, "cuda")(FEATS), Nnet1Forward(nnet)(FEATS), atol=1e-6)
