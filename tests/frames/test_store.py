"""The frame store: what goes in comes out, and what does not fit is said."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.holdout import hold_out
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.posteriors import Posterior

FEATS = {"a": np.arange(24, dtype=np.float32).reshape(6, 4), "b": np.ones((9, 4), np.float32), "c": np.zeros((20, 4), np.float32)}


def test_pack_keeps_every_frame_in_order(tmp_path):
    pdfs = {u: np.arange(len(f)) % 3 for u, f in FEATS.items()}
    manifest = pack(FEATS, FEATS.__getitem__, pdfs.get, 3, tmp_path / "s")
    store = FrameStore(tmp_path / "s")
    store.verify()
    assert manifest.num_frames == len(store) == 35
    assert store.utts == ["a", "b", "c"]
    assert np.array_equal(store.feats, np.concatenate(list(FEATS.values())))
    assert np.array_equal(store.targets, np.concatenate(list(pdfs.values())))
    assert np.array_equal(store.counts(), np.bincount(store.targets))


@pytest.mark.parametrize("extras", [(), ("weights",), ("posteriors",), ("weights", "posteriors")])
def test_pdfs_are_counted_as_weights_and_soft_targets_say(make_store, extras):
    store = make_store([30, 50, 21], extras=extras)
    amounts = (1.0 if store.weights is None else store.weights[:, None]) * \
        (np.ones((101, 1)) if store.posterior_probs is None else store.posterior_probs)
    pdfs = store.targets if store.posterior_pdfs is None else store.posterior_pdfs.ravel()
    assert np.array_equal(store.counts(), np.bincount(pdfs, amounts.ravel().astype(float), store.manifest.num_pdfs))
    assert store.counts().dtype == (np.float64 if extras else np.int64)


def test_lengths_that_differ_are_trimmed_or_skipped(tmp_path):
    pdfs = {"a": np.zeros(6, int), "b": np.zeros(4, int), "c": np.zeros(14, int)}
    manifest = pack([*FEATS, "d"], FEATS.__getitem__, pdfs.get, 1, tmp_path / "s")
    assert manifest.trimmed == 1 and manifest.num_frames == 10
    assert manifest.skipped == {"c": "20 frames of features, 14 of alignment", "d": "no alignment"}


def posterior(*frames: dict[int, float]) -> Posterior:
    return Posterior(np.cumsum([0, *map(len, frames)]), np.array([k for f in frames for k in f], np.int32),
                     np.array([v for f in frames for v in f.values()], np.float32))


def test_weights_soft_targets_and_target_features(tmp_path):
    pdfs = {"a": np.array([0, 1, 2, 0, 1, 2])}
    soft = posterior({2: 0.25, 0: 0.75}, {}, {1: 1.0}, {0: 0.2, 1: 0.5, 2: 0.3}, {1: 2.0}, {0: 0.5})
    extras = Extras({"a": np.arange(6, dtype=np.float32)}, {"a": soft, "unused": posterior({})}, {"a": FEATS["a"][:, :2]})
    pack(["a"], FEATS.__getitem__, pdfs.get, 3, tmp_path / "s", extras=extras)
    store = FrameStore(tmp_path / "s")
    store.verify()
    assert store.weights.tolist() == [0, 1, 2, 3, 4, 5] and np.array_equal(store.target_feats, FEATS["a"][:, :2])
    assert store.posterior_pdfs.tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 0], [0, 0, 0]]
    probs = [[0.75, 0.25, 0], [0, 0, 0], [1, 0, 0], [0.5, 0.3, 0.2], [2, 0, 0], [0.5, 0, 0]]
    assert np.allclose(store.posterior_probs, probs)
    assert store.counts() == pytest.approx([3 * 0.2 + 5 * 0.5, 2 * 1.0 + 3 * 0.5 + 4 * 2.0, 3 * 0.3])
    extras.max_posteriors = 2
    pack(["a"], FEATS.__getitem__, pdfs.get, 3, tmp_path / "s", extras=extras)
    store = FrameStore(tmp_path / "s")
    assert store.posterior_pdfs[3].tolist() == [1, 2] and np.allclose(store.posterior_probs[3], [0.625, 0.375])
    assert np.allclose(store.posterior_probs.sum(1), np.sum(probs, 1))
    pack(["a"], FEATS.__getitem__, pdfs.get, 3, tmp_path / "s")
    assert not (tmp_path / "s" / "weights.bin").exists() and FrameStore(tmp_path / "s").weights is None


def test_what_lacks_an_extra_is_skipped_and_what_is_short_trimmed(tmp_path):
    pdfs = {u: np.zeros(len(f), int) for u, f in FEATS.items()}
    extras = Extras({"a": np.ones(4), "b": np.ones(2), "c": np.ones(20)}, {u: posterior(*[{0: 1.0}] * 7) for u in "ab"})
    manifest = pack(FEATS, FEATS.__getitem__, pdfs.get, 1, tmp_path / "s", extras=extras)
    assert manifest.num_frames == 4 and manifest.trimmed == 1
    assert manifest.skipped == {"b": "9 frames of features, 2 of frame weights", "c": "no posteriors"}


@pytest.mark.parametrize(("extras", "words"), [
    (Extras(frame_weights={"a": np.full(6, -1.0)}), "frame weights are to be a vector"),
    (Extras(posteriors={"a": posterior(*[{3: 1.0}] * 6)}), "posteriors of pdf 3, the model has 3"),
    (Extras(posteriors={"a": posterior(*[{0: -1.0}] * 6)}), "not negative"),
    (Extras(target_feats={"a": np.full((6, 2), np.inf)}), "target features are not finite"),
    (Extras(target_feats={"a": np.zeros((6, 2)), "b": np.zeros((9, 1))}), "target features of dimension 1, those before had 2"),
])
def test_bad_extras_leave_no_store(tmp_path, extras, words):
    with pytest.raises(UserError, match=words):
        pack(["a", "b"], FEATS.__getitem__, {u: np.zeros(len(f), int) for u, f in FEATS.items()}.get, 3, tmp_path / "s", extras=extras)
    assert not list((tmp_path / "s").iterdir())


def test_half_precision(tmp_path):
    pack(["a"], FEATS.__getitem__, {"a": np.zeros(6, int)}.get, 1, tmp_path / "s", "float16")
    assert np.array_equal(FrameStore(tmp_path / "s").feats, FEATS["a"].astype(np.float16))


def test_what_half_precision_cannot_hold_is_named(tmp_path):
    feats = {**FEATS, "b": np.array([[1, 2, 3, 7e4]], np.float32)}
    with pytest.raises(UserError, match=r"^b: features up to 7e\+04 are more than float16 holds; .* pack with --store-dtype float32\.$"):
        pack(["a", "b"], feats.__getitem__, {"a": np.zeros(6, int), "b": np.zeros(1, int)}.get, 1, tmp_path / "s", "float16")
    pack(["a", "b"], feats.__getitem__, {"a": np.zeros(6, int), "b": np.zeros(1, int)}.get, 1, tmp_path / "s", "float32")


@pytest.mark.parametrize(("pdfs", "feats", "words"), [
    ({"a": np.full(6, 7)}, FEATS, "pdf 7"),
    ({}, FEATS, "no utterance"),
    ({"a": np.zeros(6, int)}, {"a": np.full((6, 4), np.nan, np.float32)}, "not finite"),
    ({"a": np.zeros(6, int), "b": np.zeros(9, int)}, {**FEATS, "b": np.ones((9, 5), np.float32)}, "dimension 5"),
])
def test_bad_input_leaves_no_store(tmp_path, pdfs, feats, words):
    with pytest.raises(UserError, match=words):
        pack(feats, feats.__getitem__, pdfs.get, 3, tmp_path / "s")
    with pytest.raises(UserError, match="no frame store"):
        FrameStore(tmp_path / "s")
    assert not list((tmp_path / "s").iterdir())


def test_damage_is_found(tmp_path, make_store):
    store = make_store([20, 30])
    path = store.path / "targets.bin"
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="checksum"):
        FrameStore(store.path).verify()
    path.write_bytes(content[:-4])
    with pytest.raises(UserError, match="196 bytes, its manifest says 200"):
        FrameStore(store.path)
    manifest = json.loads((store.path / "manifest.json").read_text())
    (store.path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(UserError, match="format 99"):
        FrameStore(store.path)


@pytest.mark.parametrize("name", ["counts.npy", "statistics.npy", "offsets.npy", "utts"])
def test_a_small_file_is_compared_whenever_it_is_read(make_store, name):
    """A bit that flips in the last byte of a number, or of a name, leaves a file that can be read."""
    store = make_store([300, 200], dim=4, num_pdfs=3)
    content = bytearray((store.path / name).read_bytes())
    content[-9 if name == "offsets.npy" else -2] ^= 1
    (store.path / name).write_bytes(bytes(content))
    with pytest.raises(UserError, match=rf"{name} (does not match its checksum|does not divide)"):
        again = FrameStore(store.path)
        again.counts()
        again.statistics(0)


def chosen_in_memory(data, percent, seed):
    """The choice of `hold_out` by lists of all utterances."""
    originals = {utt for utt in data.utt2spk if data.original(utt) == utt}
    speakers = [kept for utts in data.spk2utt.values() if (kept := [utt for utt in utts if utt in originals])]
    groups = speakers if len(speakers) >= 10 else [[utt] for utts in speakers for utt in utts]
    random.Random(seed).shuffle(groups)
    held = set()
    for group in groups:
        if len(held) + len(group) / 2 > percent / 100 * len(originals) and held:
            break
        held.update(group)
    return held


@given(st.lists(st.integers(0, 14), min_size=3, max_size=60), st.integers(0, 20), st.floats(1, 60), st.integers(0, 3), st.booleans())
def test_what_is_held_out_is_that_of_lists(tmp_path, speakers, copies, percent, seed, sorted_by_speaker):
    speakers = sorted(speakers) if sorted_by_speaker else speakers
    utts = [f"u{number:02d}" for number in range(len(speakers))]
    (tmp_path / "utt2spk").write_text("".join(f"{utt} s{spk:02d}\n" for utt, spk in zip(utts, speakers, strict=True)))
    (tmp_path / "utt2uniq").write_text("".join(f"{utt} {utts[0]}\n" for utt in utts[1:][:min(copies, len(utts) - 2)]))
    data = DataDir(tmp_path)
    expected = chosen_in_memory(data, percent, seed)
    if len(expected) == sum(data.original(utt) == utt for utt in data.utt2spk):
        with pytest.raises(UserError, match="leaves a set empty"):
            hold_out(data, percent, seed)
    else:
        assert hold_out(data, percent, seed) == expected


@pytest.mark.parametrize(("speakers", "whole"), [(12, True), (2, False)])
def test_held_out_speakers_or_utterances(tmp_path, speakers, whole):
    utt2spk = {f"s{s:02d}-u{u}": f"s{s:02d}" for s in range(speakers) for u in range(60 // speakers)}
    data = write_datadir(tmp_path / "d", {u: "x.wav" for u in utt2spk}, None, utt2spk)
    held = hold_out(data, 10, seed=1)
    assert 5 <= len(held) <= 7 and held == hold_out(data, 10, seed=1) != hold_out(data, 10, seed=2)
    if whole:
        assert all(held.isdisjoint(utts) or held.issuperset(utts) for utts in data.spk2utt.values())
    with pytest.raises(UserError, match="leaves a set empty"):
        hold_out(data, 100, seed=1)
