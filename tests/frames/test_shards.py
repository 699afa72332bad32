"""Stores in shards: what is trained on them is what one whole store with the same utterances in the same order gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Partition, Sampler, splice_statistics
from pykaldist.frames.shards import combine, subset
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.io.posteriors import Posterior

CPU = torch.device("cpu")
SPLICE = [-2, -1, 0, 1, 2]
FIELDS = ("inputs", "targets", "weights", "posterior_pdfs", "posterior_probs", "target_feats")


class Corpus:
    """Utterances u0, u1, ... of random features of these lengths, with everything that a store can have beside them."""

    def __init__(self, lengths, dim=3, num_pdfs=5):
        rng, self.num_pdfs = np.random.default_rng(len(lengths)), num_pdfs
        self.feats = {f"u{n}": rng.standard_normal((length, dim), np.float32) for n, length in enumerate(lengths)}
        self.pdfs = {utt: rng.integers(num_pdfs, size=len(feats)) for utt, feats in self.feats.items()}
        self.weights = {utt: rng.random(len(feats), np.float32) for utt, feats in self.feats.items()}
        self.posteriors = {utt: Posterior(np.arange(len(feats) + 1), rng.integers(num_pdfs, size=len(feats)).astype(np.int32),
                                          rng.random(len(feats), np.float32)) for utt, feats in self.feats.items()}
        self.labels = {utt: rng.integers(1, 4, max(len(feats) // 3, 1)).astype(np.int32) for utt, feats in self.feats.items()}

    def pack(self, path, utts, dtype="float32", **how):
        extras = Extras(self.weights, self.posteriors, self.feats, 1, self.labels, 4)
        pack(utts, self.feats.__getitem__, self.pdfs.get, self.num_pdfs, path, dtype, extras=extras, **how)
        return path


def minibatches(store, splits=1, level="frame"):
    """All that an epoch's minibatches of all splits hold."""
    shift, scale = splice_statistics(store, SPLICE)
    sampler = Sampler(store, Partition(store, splits, 1, level), 0, 7, SPLICE, shift, scale, 3, CPU)
    return [getattr(m, name).clone() for split in range(splits) for m in sampler.of_split(split).epoch(1) for name in FIELDS]


def same(one, other):
    """Check that two stores have the same frames, and give the same minibatches."""
    assert one.utts == other.utts and np.array_equal(one.offsets, other.offsets) and np.array_equal(one.counts(), other.counts())
    for utt in range(len(one.utts)):
        assert np.array_equal(one.features(utt), other.features(utt))
        assert np.array_equal(one.labels_of(utt, utt + 1), other.labels_of(utt, utt + 1))
    for splits, level in ((1, "frame"), (2, "frame"), (2, "utterance")):
        assert all(torch.equal(a, b) for a, b in zip(minibatches(one, splits, level), minibatches(other, splits, level), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@settings(max_examples=5)
@given(lengths=st.lists(st.integers(6, 40), min_size=4, max_size=9), data=st.data())
def test_shards_and_their_parts_are_the_whole_store_in_another_form(tmp_path_factory, dtype, lengths, data):
    path, corpus = tmp_path_factory.mktemp("stores"), Corpus(lengths)
    utts = list(corpus.feats)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(utts) - 1), min_size=1, max_size=3, unique=True)))
    parts = [utts[a:b] for a, b in zip([0, *cuts], [*cuts, len(utts)], strict=True)]
    folders = [corpus.pack(path / "shards" / str(n), part, dtype) for n, part in enumerate(parts)]
    combine(path / "joined", folders)
    joined, whole = FrameStore(path / "joined"), FrameStore(corpus.pack(path / "whole", utts, dtype))
    same(joined, whole)
    joined.verify()
    assert joined.manifest.checksums["utts"] == whole.manifest.checksums["utts"]
    assert joined.manifest.checksums["statistics.npy"] == whole.manifest.checksums["statistics.npy"]
    chosen = data.draw(st.lists(st.sampled_from(utts), min_size=2, unique=True))
    subset(path / "part", joined, chosen)
    expected = FrameStore(corpus.pack(path / "own", [utt for utt in utts if utt in chosen], dtype))
    same(FrameStore(path / "part"), expected)
    rest = [utt for utt in utts if utt not in chosen]
    if rest:  # combined again, in another order, of parts of the same shards
        subset(path / "rest", joined, rest)
        combine(path / "again", [path / "part", path / "rest"])
        assert len(FrameStore(path / "again").manifest.shards) <= len(folders)
        same(FrameStore(path / "again"), FrameStore(corpus.pack(path / "own again", [*expected.utts, *rest], dtype)))


def test_a_shard_that_was_packed_again_is_taken_where_it_is_the_same_and_refused_where_it_is_not(tmp_path):
    corpus = Corpus([9, 12, 7, 20])
    folders = [corpus.pack(tmp_path / name, utts) for name, utts in (("1", ["u0", "u1"]), ("2", ["u2", "u3"]))]
    combine(tmp_path / "all", folders)
    corpus.pack(tmp_path / "2", ["u2", "u3"])
    FrameStore(tmp_path / "all").verify()
    corpus.feats["u3"] += 1
    corpus.pack(tmp_path / "2", ["u2", "u3"])
    with pytest.raises(UserError, match="2 was packed again, with another result"):
        FrameStore(tmp_path / "all")


def test_damage_in_a_shard_is_found(tmp_path):
    corpus = Corpus([9, 12])
    combine(tmp_path / "all", [corpus.pack(tmp_path / "1", ["u0"]), corpus.pack(tmp_path / "2", ["u1"])])
    with open(tmp_path / "2" / "targets.bin", "r+b") as stream:
        stream.write(b"\1")
    with pytest.raises(UserError, match=r"targets\.bin does not match its checksum"):
        FrameStore(tmp_path / "all").verify()


def test_shards_without_utterances_and_what_they_have_skipped(tmp_path):
    corpus = Corpus([9, 12])
    corpus.pdfs.pop("u1")
    folders = [corpus.pack(tmp_path / "1", ["u0"], may_be_empty=True), corpus.pack(tmp_path / "2", ["u1"], may_be_empty=True)]
    assert combine(tmp_path / "all", folders).skipped == {"u1": "no alignment"}
    assert FrameStore(tmp_path / "all").utts == ["u0"]
    with pytest.raises(UserError, match="2 is a shard without utterances"):
        FrameStore(tmp_path / "2")
    with pytest.raises(UserError, match="has an utterance"):
        combine(tmp_path / "none", folders[1:])


def test_what_cannot_be_one_store_is_refused(tmp_path):
    corpus, other = Corpus([9, 12]), Corpus([9, 12, 5], dim=4)
    one = corpus.pack(tmp_path / "1", ["u0"])
    with pytest.raises(UserError, match="u0 is in several of the stores"):
        combine(tmp_path / "all", [one, one])
    with pytest.raises(UserError, match=r"has dim 4, .*1 3; pack both"):
        combine(tmp_path / "all", [one, other.pack(tmp_path / "2", ["u2"])])
    with pytest.raises(UserError, match=r"has not 1 of the 2 utterances, such as u9"):
        subset(tmp_path / "part", FrameStore(one), ["u0", "u9"])
    assert not (tmp_path / "all").exists() and not (tmp_path / "part").exists()
