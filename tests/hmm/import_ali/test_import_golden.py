"""Kaldi's own directory of aligned, adapted features, imported and packed: the way that a Kaldi user comes in."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import pack
from pykaldist.decode.hclg import GraphOptions, make_graph
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.import_ali.import_ali import ImportOptions, import_alignments
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.tables import MatrixWriter, read_archive


@pytest.fixture(scope="module")
def fmllr_data(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Kaldi's fMLLR features of the training set, as a data directory."""
    base = tmp_path_factory.mktemp("fmllr")
    kaldi = golden / "an4_kaldi"
    source = DataDir(kaldi / "data/train")
    data = write_datadir(base / "data", source.wav_scp, source.table("text"), source.utt2spk)
    with MatrixWriter(base / "feats.ark", data.path / "feats.scp") as writer:
        for utt, feats in read_archive(kaldi / "fmllr/train.ark"):
            writer.write(utt, feats)
    return DataDir(data.path)


def test_from_kaldi_to_a_frame_store(golden: Path, fmllr_data: DataDir, tmp_path: Path) -> None:
    kaldi = golden / "an4_kaldi"
    line = import_alignments(kaldi / "tri3_ali", fmllr_data.path, kaldi / "lang", tmp_path / "ali", ImportOptions(), 2)
    assert line == "948 of 948 utterances have an alignment, 252734 frames, silence is 23.7 % of the frames"
    parser = argparse.ArgumentParser()
    pack.add_arguments(parser)
    pack.run(parser.parse_args(["--cmvn-opts=--norm-means=false", "--cv-utts", str(kaldi / "fmllr/cv.utts"), str(fmllr_data.path),
                                str(tmp_path / "ali"), str(tmp_path / "store")]))
    train, dev = FrameStore(tmp_path / "store/train"), FrameStore(tmp_path / "store/dev")
    assert (train.manifest.dim, train.manifest.num_pdfs, train.manifest.num_utts, dev.manifest.num_utts) == (40, 712, 857, 91)
    assert train.utts == sorted((kaldi / "fmllr/tr.utts").read_text().split()) and not train.manifest.skipped
    assert train.manifest.provenance["alignment"]["report"]["matched"] == 948
    ali = AlignmentDir(kaldi / "tri3_ali")
    first = train.utts[0]
    np.testing.assert_array_equal(train.targets[:train.offsets[1]], ali.pdfs(first))
    np.testing.assert_array_equal(train.feats[:train.offsets[1]], fmllr_data.feats[first])
    imported, own = FeaturePipeline.from_dir(tmp_path / "ali", tmp_path / "ali"), FeaturePipeline.from_dir(kaldi / "tri3_ali")
    assert imported == own and imported.fmllr is not None and len(imported.fmllr) == 74
    np.testing.assert_array_equal(imported.lda, own.lda)


def test_phones_alone_are_enough_for_a_graph(golden: Path, fmllr_data: DataDir, tmp_path: Path) -> None:
    """Of the phones of tri1's alignment: the monophone system has the pdfs of Kaldi's mono, and its graph can be made."""
    kaldi = golden / "an4_kaldi"
    ali = AlignmentDir(kaldi / "tri1")
    np.savez(tmp_path / "phones.npz", **{utt: ali.phones(utt) for utt in ali.labels})
    import_alignments(tmp_path / "phones.npz", fmllr_data.path, kaldi / "lang", tmp_path / "ali", ImportOptions(), 1)
    assert (tmp_path / "ali/tree").read_bytes() == (kaldi / "mono/tree").read_bytes()
    found = AlignmentDir(tmp_path / "ali")
    mono = AlignmentDir(kaldi / "mono")
    assert found.num_pdfs == mono.num_pdfs
    agree = [np.mean(found.pdfs(utt) == mono.pdfs(utt)) for utt in mono.labels]
    assert np.mean(agree) > 0.4  # equal division and a monophone Viterbi are often in the same state
    assert make_graph(kaldi / "lang", tmp_path / "ali", tmp_path / "graph", GraphOptions()).num_states > 500
