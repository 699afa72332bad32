"""What is read of mapped stores does not stay in memory: sequences of frames, and items such as numerators and lattices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from resident import resident

from pykaldist.frames import device_frames
from pykaldist.frames.device_frames import DeviceFrames
from pykaldist.frames.even_chunks import EvenChunkSampler
from pykaldist.frames.items import Items, ItemsWriter
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.io import scratch

CPU, MOST = torch.device("cpu"), 4 << 20


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("kind", ["whole", "chunks", "streams", "even chunks"])
def test_sequences(make_store, monkeypatch, kind, limited):
    """The same minibatches, with and without."""
    store = make_store([2000] * 20, dim=100)  # 16 MB
    monkeypatch.setattr(scratch, "MOST_READ", MOST if limited else 1 << 40)
    partition, shape = Partition(store, level="utterance"), (torch.zeros(100), torch.ones(100), 3, CPU)
    sampler = EvenChunkSampler(store, partition, 0, 50, 4, (2, 2), 0, CPU) if kind == "even chunks" else \
        SequenceSampler(store, partition, 0, SequenceOptions(kind, 2 if kind == "whole" else 4, None if kind == "whole" else "50"), [0],
                        *shape)
    seen, total = [], 0.0
    for number, minibatch in enumerate(sampler.epoch(0)):
        total += float(minibatch.inputs.double().sum())
        if number % 5 == 0 or kind == "whole":
            seen.append(resident([store.path / "feats.bin"]))
    assert total == pytest.approx(float(store.feats.astype(np.float64).sum()), rel=0.1 if kind == "even chunks" else 1e-6)
    assert (max(seen) < 0.7 * store.feats.nbytes) == limited, f"{max(seen)} of {store.feats.nbytes} bytes"


def test_held_out_frames(make_store):
    """Read in the store's order, as cross-validation does; shuffled, they stay."""
    store = make_store([2000] * 20, dim=100)  # 16 MB
    sampler = Sampler(store, Partition(store), 0, 40, [-1, 0, 1], torch.zeros(300), torch.ones(300), 3, CPU)
    seen, total = [], 0.0
    for minibatch in sampler.in_order():
        total += float(minibatch.inputs[:, 100:200].double().sum())
        if minibatch.index % 50 == 0:
            seen.append(resident([store.path / "feats.bin"]))
    assert total == pytest.approx(float(store.feats.astype(np.float64).sum()), rel=1e-6)
    assert max(seen) < 0.5 * store.feats.nbytes
    assert sum(len(minibatch) for minibatch in sampler.epoch(0)) == len(store)
    assert resident([store.path / "feats.bin"]) >= store.feats.nbytes


@pytest.mark.parametrize("limited", [True, False])
def test_copied_frames(make_store, monkeypatch, limited):
    """A store is copied a piece at a time, and each is let go of."""
    store, seen = make_store([2000] * 20, dim=100), []  # 16 MB
    monkeypatch.setattr(device_frames, "CHUNK_BYTES", 1 << 20 if limited else 1 << 40)

    def noted(array):
        seen.append(resident([store.path / "feats.bin"]))
        release(array)

    release = device_frames.release
    monkeypatch.setattr(device_frames, "release", noted)
    assert (DeviceFrames(store, CPU, copied=True).feats.numpy() == store.feats).all()
    assert (max(seen) < 0.5 * store.feats.nbytes) == limited


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize(("count", "size"), [(40, 100_000), (5, 800_000)])  # of 0.4 and 3.2 MB, less and more than a folio
def test_items(tmp_path, monkeypatch, count, size, limited):
    monkeypatch.setattr(scratch, "MOST_READ", MOST if limited else 1 << 40)
    layout, rng = {"large": ("values", np.float32), "small": ("items", np.int32)}, np.random.default_rng(0)
    with ItemsWriter(tmp_path, layout, ("values", "items")) as writer:
        for number in range(count):
            writer.append({"large": np.full(size, number), "small": np.array([number])}, {"values": size, "items": 1})
    items, seen = Items(tmp_path, layout, count, writer.totals, writer.checksums, "pack again"), []
    for number in rng.permutation(count):
        items.note([number])
        assert (items.array("large", number) == number).all() and items.array("small", number)[0] == number
        seen.append(resident([tmp_path / "large.bin"]))
    assert (max(seen) < 11 << 20) == limited, f"{max(seen)} of 16 MB"
