"""Chunks of one length for recurrent networks: each frame is trained on once, with what is around it, whoever has which utterance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.frames.even_chunks import EvenChunkSampler
from pykaldist.frames.sampler import Partition

LENGTHS, LEFT, WIDTH, RIGHT = [23, 7, 40, 20, 1], 5, 10, 3


@pytest.mark.parametrize(("splits", "weighted"), [(1, False), (3, False), (3, True)])
def test_each_frame_is_trained_on_once_with_its_neighbours(make_store, splits, weighted):
    store = make_store(LENGTHS, extras=("weights",) if weighted else ())
    expected = np.array(store.weights) if weighted else np.ones(len(store))
    first = EvenChunkSampler(store, Partition(store, splits, 1, "utterance"), 0, WIDTH, 3, (LEFT, RIGHT), 0, torch.device("cpu"))
    trained = np.zeros(len(store), int)
    for split in range(splits):
        sampler = first.of_split(split)
        assert len([*sampler.epoch(2)]) == sampler.minibatches
        for minibatch in sampler.epoch(2):
            inputs = minibatch.inputs.view(LEFT + WIDTH + RIGHT, -1, store.manifest.dim).numpy()
            sequences = inputs.shape[1]
            assert sequences <= 3 and len(minibatch.inputs) <= sampler.capacity
            targets, weights = minibatch.targets.view(WIDTH, sequences), minibatch.weights.view(WIDTH, sequences)
            assert weighted or len(minibatch) == int((weights > 0).sum())
            for n in range(sequences):
                for t in np.flatnonzero(weights[:, n] > 0):
                    place = int(np.flatnonzero((store.feats == inputs[LEFT + t, n]).all(1))[0])
                    trained[place] += 1
                    assert targets[t, n] == store.targets[place] and weights[t, n] == pytest.approx(expected[place])
                    utt = int(np.searchsorted(store.offsets, place, side="right")) - 1
                    around = np.clip(np.arange(place - LEFT, place + RIGHT + 1), store.offsets[utt], store.offsets[utt + 1] - 1)
                    np.testing.assert_array_equal(inputs[t:t + LEFT + RIGHT + 1, n], store.feats[around])
    np.testing.assert_array_equal(trained, (expected > 0).astype(int))


def test_orders_are_those_of_epochs_and_go_on_anywhere(make_store):
    store = make_store(LENGTHS)
    sampler = EvenChunkSampler(store, Partition(store, 1, 1, "utterance"), 0, WIDTH, 2, (LEFT, RIGHT), 0, torch.device("cpu"))

    def epoch(number: int, start: int = 0) -> list[np.ndarray]:
        return [minibatch.inputs.numpy().copy() for minibatch in sampler.epoch(number, start)]

    one, other = epoch(0), epoch(1)
    assert all(np.array_equal(a, b) for a, b in zip(one, epoch(0), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(one[2:], epoch(0, 2), strict=True))
