"""Alignments at a lower frame rate: Kaldi's own, what must hold for any, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.lang.topology import HmmState, Topology, chain_topology_text
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.subsample import Converter, subsampled_lengths
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.kaldi import KaldiReader

PHONES = [1, 2, 3]


def model(topology: Topology) -> Converter:
    """From and to monophones of a topology, all frames."""
    tree = monophone_tree([[phone] for phone in PHONES], topology.num_pdf_classes)
    made = TransitionModel.from_tree(tree, topology)
    return Converter(made, tree, made)


BAKIS = model(Topology([(*(HmmState(s, s, ((s, 0.5), (s + 1, 0.5))) for s in range(3)), HmmState(-1, -1, ()))], dict.fromkeys(PHONES, 0)))
CHAIN = model(Topology.read(KaldiReader(chain_topology_text(PHONES).encode(), "topo")))


def test_kaldis_alignment_at_a_third_of_the_frames(golden: Path) -> None:
    ali, chain = AlignmentDir(golden / "an4_kaldi/tri3_ali"), golden / "chain"
    assert ali.model is not None
    converter = Converter(ali.model, read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl"), 3)
    for line in (chain / "ali_subsampled.txt").read_text().splitlines():
        utt, *tids = line.split()
        assert converter.convert(ali.labels[utt]).tolist() == list(map(int, tids))  # type: ignore[union-attr]


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@settings(max_examples=60)
@given(lengths, st.integers(1, 4), st.integers(1, 3), st.data())
def test_lengths_fill_the_frames_and_none_is_too_short(old: list[int], factor: int, least: int, data: st.DataObject) -> None:
    shift = data.draw(st.integers(0, factor - 1))
    found, frames = subsampled_lengths(np.array(old), np.full(len(old), least), factor, shift), (sum(old) + shift) // factor
    if frames < least * len(old):
        assert found is None
    else:
        assert found is not None and found.sum() == frames and found.min() >= least
        plain = [(sum(old[: n + 1]) + shift) // factor - (sum(old[:n]) + shift) // factor for n in range(len(old))]
        assert min(plain) < least or found.tolist() == plain


@settings(max_examples=60)
@given(lengths, st.integers(1, 3), st.booleans(), st.data())
def test_phones_stay_and_frames_go_through_their_hmms(old: list[int], factor: int, repeat: bool, data: st.DataObject) -> None:
    """Converted to chain models' HMMs and back to three states, with as many frames as features have."""
    phones = data.draw(st.lists(st.sampled_from(PHONES), min_size=len(old), max_size=len(old)))
    tids = np.concatenate([BAKIS._one_phone((phone,), length + 2) for phone, length in zip(phones, old, strict=True)])
    to_chain = Converter(BAKIS.old, CHAIN.tree, CHAIN.new, factor, repeat)
    found = to_chain.convert(tids)
    if found is None:
        assert len(tids) // factor < len(phones)
        return
    assert len(found) == (len(tids) if repeat else -(-len(tids) // factor))
    single = found if not repeat or factor == 1 else found[::factor]
    assert phone_segments(single, CHAIN.new)[0].tolist() == phones
    if factor == 1:
        back = Converter(CHAIN.new, BAKIS.tree, BAKIS.new).convert(found)
        assert back is not None and phone_segments(back, BAKIS.new)[2].tolist() == phone_segments(tids, BAKIS.new)[2].tolist()
        assert np.bincount(BAKIS.new.tid2hmm_state[back], minlength=3).max() <= sum(length // 3 + 2 for length in old)


def test_repeated_frames_are_those_of_each_shift() -> None:
    tids = np.concatenate([BAKIS._one_phone((phone,), length) for phone, length in ((1, 7), (2, 4), (3, 6))])
    repeated = Converter(BAKIS.old, CHAIN.tree, CHAIN.new, 3, repeat_frames=True).convert(tids)
    assert repeated is not None
    assert CHAIN.new.tid2phone[repeated].tolist() == [1] * 7 + [2] * 4 + [3] * 6  # boundaries stay, frame by frame
    assert repeated[::3].tolist() == Converter(BAKIS.old, CHAIN.tree, CHAIN.new, 3).convert(tids).tolist()  # type: ignore[union-attr]


def test_what_cannot_be_converted() -> None:
    tids = np.concatenate([BAKIS._one_phone((phone,), 3) for phone in (1, 2, 3)])
    assert Converter(BAKIS.old, BAKIS.tree, BAKIS.new, 3).convert(tids) is None  # three states in one frame
    fewer = model(Topology(CHAIN.new.topology.entries, {1: 0, 2: 0, 3: 0}))
    fewer.new.topology.phone_entry.pop(3)
    with pytest.raises(UserError, match="phone 3 of the alignment has no topology"):
        Converter(BAKIS.old, fewer.tree, fewer.new).convert(tids)
    with pytest.raises(UserError, match="--frame-subsampling-factor 0: expected a factor of at least 1"):
        Converter(BAKIS.old, BAKIS.tree, BAKIS.new, 0)
