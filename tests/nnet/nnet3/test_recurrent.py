"""Recurrent nnet3 networks: their outputs beside a reference that computes each node at each frame, and through files."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from recurrent_lines import INPUTS, PDFS, XCONFIGS, recurrent, slow_outputs

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.nnet.nnet3.computing.kinds import layer_of
from pykaldist.nnet.nnet3.initialise import initialised, initialised_component
from pykaldist.nnet.nnet3.layers import Layer, Run
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers


@pytest.mark.parametrize("name", XCONFIGS)
@pytest.mark.parametrize(("subsampling", "around"), [(1, (0, 0)), (3, (7, 4))])
def test_outputs_are_those_of_frame_by_frame(name: str, subsampling: int, around: tuple[int, int]) -> None:
    nnet, feats = recurrent(name), np.random.default_rng(1).normal(size=(20, INPUTS)).astype(np.float32)
    forward = Nnet3Forward(nnet, subsampling=subsampling, around=around)
    first, last = -forward.plan.left_context - around[0], len(feats) - 1 + forward.plan.right_context + around[1]
    expected = slow_outputs(nnet, feats, first, last, [*range(0, len(feats), subsampling)])
    np.testing.assert_allclose(forward(feats), expected, atol=1e-5)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", XCONFIGS)
def test_files_keep_the_network(name: str, binary: bool) -> None:
    nnet, feats, stream = recurrent(name), np.random.default_rng(1).normal(size=(9, INPUTS)).astype(np.float32), io.BytesIO()
    nnet.write_to(KaldiWriter(stream, binary))
    again = Nnet3.parse(KaldiReader(stream.getvalue(), "made"))
    np.testing.assert_allclose(Nnet3Forward(again)(feats), Nnet3Forward(nnet)(feats), atol=0 if binary else 1e-4)
    second = io.BytesIO()
    again.write_to(KaldiWriter(second, binary))
    assert second.getvalue() == stream.getvalue()


def test_a_loop_without_beginning_is_refused() -> None:
    lines = [f"input dim={INPUTS} name=input", "input dim=3 name=ivector", "fast-lstm-layer name=l input=ivector cell-dim=4",
             "output-layer name=output dim=3"]
    nnet = initialised(config_lines(read_layers(lines))["final"], torch.Generator().manual_seed(1))
    with pytest.raises(UserError, match="goes back to itself, and never to the node input; such a loop has no beginning"):
        Nnet3Forward(nnet)


@pytest.mark.parametrize("less", [(0, 0), (4, 2)])
@pytest.mark.parametrize("name", XCONFIGS)
def test_training_computes_what_files_say(name: str, less: tuple[int, int]) -> None:
    """With the frames around chunks that the network is made for, and with fewer, as at the ends of utterances."""
    nnet, sequences, frames = recurrent(name), 2, 4
    network = Nnet3Network(nnet, dtype=torch.float64, around=(5, 3))
    window = network.window[0] - less[0], network.window[1] - less[1]
    length = 3 * (frames - 1) + 1 + sum(window)
    feats = torch.randn(length * sequences, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = network.forward_chunks(feats, None, frames, sequences, window=window)["output"].view(frames, sequences, -1)
    for n in range(sequences):
        chunk = feats.view(length, sequences, -1)[:, n].numpy()
        times = [window[0] + 3 * k for k in range(frames)]
        expected = slow_outputs(nnet, chunk, 0, length - 1, times)
        np.testing.assert_allclose(found[:, n], expected, atol=1e-6)


@pytest.mark.parametrize("name", XCONFIGS)
def test_gradients_are_differences(name: str) -> None:
    network = Nnet3Network(recurrent(name, trained=False), dtype=torch.float64, around=(5, 3))
    sequences, frames, generator = 2, 3, torch.Generator().manual_seed(1)
    rows = (3 * (frames - 1) + 1 + sum(network.window)) * sequences
    feats = torch.randn(rows, INPUTS, dtype=torch.float64, generator=generator)
    direction = torch.randn(frames * sequences, PDFS, dtype=torch.float64, generator=generator)

    def loss() -> float:
        return float((network.forward_chunks(feats, None, frames, sequences, True)["output"] * direction).sum())

    loss()
    grads = torch.empty_like(network.params)
    network.backward_chunks({"output": direction.clone()}, grads)
    for part in network.map_slices():
        for place in range(part.start, part.stop, max(1, (part.stop - part.start) // 7)):
            step = torch.zeros_like(network.params)
            step[place] = 1e-5
            network.params += step
            above = loss()
            network.params -= 2 * step
            below = loss()
            network.params += step
            np.testing.assert_allclose(grads[place], (above - below) / 2e-5, rtol=1e-5, atol=1e-7)


def layer(text: str) -> Layer:
    return layer_of(initialised_component(f"component name=one {text}", torch.Generator().manual_seed(0)))


def test_long_derivatives_are_shortened_and_those_at_the_end_of_an_interval_are_not_there() -> None:
    truncated = layer("type=BackpropTruncationComponent dim=2 scale=0.5 clipping-threshold=4 zeroing-threshold=3 zeroing-interval=5 "
                      "recurrence-interval=2")
    times, sequences = np.arange(-4, 12), 3
    run = Run(True, sequences, times)
    x = torch.ones(len(times) * sequences, 2)
    np.testing.assert_array_equal(truncated.forward(x, run), 0.5 * x)
    lengths = torch.tensor([1.0, 3.5, 8.0]).repeat(len(times) * sequences)[:len(x)]  # of derivatives, after the scale
    dy = torch.stack([1.2 * lengths, 1.6 * lengths], 1)
    found = truncated.derivative(x, x, dy, run).view(len(times), sequences, 2)
    for row, (t, n) in enumerate((t, n) for t in times for n in range(sequences)):
        length = float(lengths[row])
        crossed = any((s - n) % 5 == 0 for s in range(t - 1, t + 1))  # a boundary between this frame and the one two before it
        expected = 0.0 if crossed and length > 3 else min(length, 4.0)
        np.testing.assert_allclose(found[row // sequences, n], [0.6 * expected, 0.8 * expected], atol=1e-6)


def test_masks_of_gates_leave_one_of_two() -> None:
    mask = layer("type=DropoutMaskComponent output-dim=3 dropout-proportion=0.3")
    empty, generator = torch.empty(20000, 0), torch.Generator().manual_seed(1)
    drawn = mask.forward(empty, Run(True, 1, np.arange(20000), generator))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert bool((drawn[:, :2].sum(1) >= 1).all())
    np.testing.assert_allclose(drawn.mean(0), 0.7, atol=0.01)
    np.testing.assert_allclose(mask.forward(empty, Run(False, 1, np.arange(20000))), 0.7, atol=1e-6)


def test_derivatives_end_so_many_frames_beyond_the_outputs() -> None:
    def gradient(truncation: int, around: int) -> torch.Tensor:
        """The gradient of a chunk with so many frames before it."""
        network = Nnet3Network(recurrent("fast lstmp"), dtype=torch.float64, around=(around, 0), truncation=truncation)
        feats = torch.randn(19, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))[12 - around:]
        network.forward_chunks(feats, None, 3, 1, True)
        grads = torch.empty_like(network.params)
        network.backward_chunks({"output": torch.randn(3, PDFS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))}, grads)
        return grads

    whole = gradient(-1, 12)
    assert torch.equal(gradient(12, 12), whole)
    assert not torch.allclose(gradient(3, 12), whole, atol=1e-6)
    assert torch.equal(gradient(3, 3), gradient(-1, 3))
