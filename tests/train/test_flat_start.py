"""Flat-start chain training on six utterances of AN4: whole utterances as chunks, Kaldi's numerators, and a model that has learnt."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from chain_files import fsts
from hypothesis import given
from hypothesis import strategies as st
from test_chain import folder_of_an4, outcome, words

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.graphs import Lexicon
from pykaldist.hmm.chain.flat_start import TranscriptGraphs
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.io.lang import LangDir
from pykaldist.nnet.chain_objective import flat_start_numerator
from pykaldist.train.chain_forms import FLAT_START, read_chain_form
from pykaldist.train.chain_preparation import PreparationOptions
from pykaldist.train.flat_start import SPACING, FlatStartPreparation, lengths_between, read_graphs, read_lengths


def folder_of_transcripts(golden: Path, folder: Path) -> Path:
    """As in test_chain.py, with graphs of transcripts and Kaldi's phone language model in place of alignments."""
    folder_of_an4(golden, folder)
    chain, tree = golden / "chain", folder / "tree"
    (tree / "ali.1.gz").unlink()
    shutil.copy(chain / "phone_lm.fst", tree / "phone_lm.fst")
    lang = LangDir(golden / "an4_kaldi/lang")
    graphs = TranscriptGraphs(Lexicon(lang.file("L.fst"), lang.disambig_phones), read_tree(tree / "tree"),
                              read_transition_model(tree / "final.mdl"))
    with open(tree / "fst.1.ark", "wb") as archive, open(tree / "fst.1.scp", "w") as table:
        for line in (chain / "e2e/text").read_text().splitlines():
            utt, *spoken = line.split()
            archive.write(f"{utt} ".encode())
            table.write(f"{utt} {tree}/fst.1.ark:{archive.tell()}\n")
            archive.write(graphs.compile(lang.word_ids(spoken)[0]).to_bytes())
    return folder


def prepare(folder: Path) -> bool:
    return FlatStartPreparation(folder / "data", folder / "tree", folder / "exp", PreparationOptions(cv_utts=1)).run()


@pytest.fixture(scope="module")
def prepared(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of_transcripts(golden, tmp_path_factory.mktemp("flat"))
    (folder / "data/allowed_lengths.txt").write_text("69\n90\n99\n129\n249\n258\n300\n400\n")
    assert prepare(folder) and not prepare(folder)
    return folder


def test_numerators_are_kaldis(prepared, golden):
    """Of the merged examples that nnet3-chain-e2e-get-egs has made: as many paths' arcs, the same pdfs in each frame."""
    kaldis = fsts(golden / "chain/e2e/num_fsts.txt.gz")
    seen = 0
    for name in ("train", "dev"):
        store = FrameStore(prepared / "exp/store" / name)
        chunks = ChunkStore(prepared / f"exp/store/{name}_chunks", store)
        assert chunks.manifest.frame_subsampling_factor == 3 and not chunks.manifest.skipped
        for number, utt in enumerate(chunks.utt):
            frames, length = int(store.offsets[utt + 1] - store.offsets[utt]), int(chunks.frames[number])
            assert chunks.first[number] == 0 and frames <= length and length == min(w for w in chunks.manifest.widths if w >= frames)
            expected = flat_start_numerator(kaldis[store.utts[utt]][0], length // 3, 112)
            (ours,) = chunks.numerators(np.array([number]))
            assert np.array_equal(ours.frame, expected.frame) and np.array_equal(ours.transition_id, expected.transition_id)
            assert np.allclose(np.sort(ours.graph), np.sort(expected.graph), atol=1e-5)
            seen += 1
    assert seen == 6


def test_it_trains_from_transcripts_alone(prepared, tmp_path):
    assert main([*words(prepared, "--num-epochs", "4", "--ngpu", "2", "--fabric", "virtual", "--strategy", "kaldi", "--average-frames",
                        "200"), str(tmp_path / "exp")]) == 0
    _, history = outcome(tmp_path / "exp")
    losses = [line["train_loss"] for line in history]
    assert losses[-1] < losses[0] - 0.1
    assert (tmp_path / "exp/final.mdl").is_file() and (tmp_path / "exp/frame_subsampling_factor").read_text() == "3\n"


def test_utterances_that_do_not_fit_are_listed(prepared, golden, tmp_path):
    folder = folder_of_transcripts(golden, tmp_path)
    (folder / "data/allowed_lengths.txt").write_text("129\n90\n")
    assert prepare(folder)
    skipped = {}
    for name in ("train", "dev"):
        skipped |= ChunkStore(folder / f"exp/store/{name}_chunks", FrameStore(folder / "exp/store" / name)).manifest.skipped
    assert any("more than the longest length allowed, 129" in why for why in skipped.values())


@given(st.integers(5, 2000), st.integers(0, 4000), st.integers(1, 4))
def test_lengths_lie_near_each_other(shortest, more, factor):
    lengths = lengths_between(shortest, shortest + more, factor)
    assert all(length % factor == 0 for length in lengths) and lengths[-1] >= shortest + more
    for frames in (shortest, shortest + more // 3, shortest + more):
        assert min(length for length in lengths if length >= frames) <= max(frames * SPACING, frames + 1) + 2 * factor


def test_what_is_missing_is_said(prepared, golden, tmp_path):
    with pytest.raises(UserError, match=r"no graphs of transcripts .*prepare_e2e.sh"):
        read_graphs(tmp_path)
    (tmp_path / "allowed_lengths.txt").write_text("12\nmany\n")
    with pytest.raises(UserError, match="expected lengths in frames"):
        read_lengths(tmp_path / "allowed_lengths.txt", 3)
    folder = folder_of_transcripts(golden, tmp_path / "other")
    (folder / "tree/phone_lm.fst").unlink()
    with pytest.raises(UserError, match=r"phone_lm.fst does not exist; make it .*chain-est-phone-lm"):
        prepare(folder)


def test_the_command_line_has_no_alignment():
    options = ["--feat-dir", "data/train", "--tree-dir", "exp/tree", "--dir", "exp/e2e", "--trainer.optimization.num-jobs-initial", "2",
               "--trainer.optimization.num-jobs-final", "4", "--trainer.num-chunk-per-minibatch", "150=64/300=32"]
    found = read_chain_form(options, FLAT_START, frames=lambda data: 10_000_000)
    assert found.ali_dir is None and not found.lattices and found.notes == []
    assert found.job["num-chunk-per-minibatch"] == "150=64/300=32" and found.job["initial-workers"] == "2"
    with pytest.raises(UserError, match="--tree-dir is needed"):
        read_chain_form(options[:2], FLAT_START)
