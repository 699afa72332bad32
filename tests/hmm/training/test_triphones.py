"""Context-dependent training: on toy speech with coarticulation, and on AN4 beside Kaldi's own system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import Alignments, AlignOptions
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_model, read_tree
from pykaldist.hmm.training.experiment import align_dir, read_start, train_deltas_dir, train_mono_dir
from pykaldist.hmm.training.iterations import State
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.tree import EventMap, Split
from pykaldist.hmm.tree.tree_stats import accumulate_tree_stats
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir

from .test_mono import an4

SHORT = TriphoneOptions(num_iters=12, max_iter_inc=8, realign_iters="4 8")


@pytest.fixture(scope="module")
def monophones(toy_corpus: Corpus, toy_lang: LangDir) -> State:
    options = MonoOptions(num_starts=1, num_iters=12, max_iter_inc=8, totgauss=40, realign_iters="1 2 3 4 5 6 8 10")
    return train_mono(toy_corpus, toy_lang, options, AlignOptions(), log=lambda line: None)


def test_statistics_are_sums_of_frames(toy_corpus: Corpus, toy_lang: LangDir, monophones: State) -> None:
    """Against sums frame by frame; all frames are in them, and silence is without context."""
    tids, model = monophones.alignments.tids, monophones.transition_model
    stats = accumulate_tree_stats(toy_corpus.feats, tids, toy_corpus.offsets, model, toy_lang.silence_phones)
    x = toy_corpus.feats.astype(np.float64)
    np.testing.assert_allclose(stats.sums.sum(axis=0), np.concatenate([[len(x)], x.sum(0), (x * x).sum(0)]), rtol=1e-9)
    for values, sums in zip(stats.values.tolist(), stats.sums, strict=True):
        _, phone, _, pdf_class = values
        assert sums[0] <= ((model.tid2phone[tids] == phone) & (model.tid2hmm_state[tids] == pdf_class)).sum()
    silent = np.isin(stats.values[:, 1], toy_lang.silence_phones)
    np.testing.assert_array_equal(stats.in_context, ~silent)
    for pdf_class in range(3):  # phone by phone they are the frames of the alignment
        chosen = (stats.values[:, 1] == toy_lang.phones["A_S"]) & (stats.values[:, 3] == pdf_class)
        frames = x[(model.tid2phone[tids] == toy_lang.phones["A_S"]) & (model.tid2hmm_state[tids] == pdf_class)]
        np.testing.assert_allclose(stats.sums[chosen].sum(axis=0), np.concatenate([[len(frames)], frames.sum(0), (frames**2).sum(0)]))


def coarticulated(corpus: Corpus, monophones: State) -> np.ndarray:
    """The toy features, where the last state of a phone leans towards the phone behind it."""
    model, tids = monophones.transition_model, monophones.alignments.tids
    phone, state = model.tid2phone[tids], model.tid2hmm_state[tids]
    change = np.flatnonzero(np.diff(phone, append=0))
    behind = np.append(phone[1:], 0)[change[np.searchsorted(change, np.arange(len(phone)))]]
    lean = np.random.default_rng(5).standard_normal((phone.max() + 1, corpus.feats.shape[1])) * 8
    return (corpus.feats + np.where((state == 2)[:, None], lean[behind], 0)).astype(np.float32)


def splits(node: EventMap) -> list[Split]:
    """All splits of a tree without tables."""
    return [node, *splits(node.yes), *splits(node.no)] if isinstance(node, Split) else []


def test_a_triphone_system_hears_the_neighbours(toy_corpus: Corpus, toy_lang: LangDir, monophones: State) -> None:
    corpus = Corpus(toy_corpus.utts, coarticulated(toy_corpus, monophones), toy_corpus.offsets, toy_corpus.words, toy_corpus.unknown)
    lines: list[str] = []
    tids, old = monophones.alignments.tids, monophones.transition_model
    system = train_triphones(corpus, toy_lang, tids, old, 60, 90, SHORT, AlignOptions(), log=lines.append)
    plain = train_triphones(corpus, toy_lang, tids, old, 60, 90, TriphoneOptions(
        num_iters=12, max_iter_inc=8, realign_iters="4 8", context_width=1, central_position=0), AlignOptions(), log=lambda line: None)
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in lines[1:]]
    assert len(values) == SHORT.num_iters - 1 and values[-1] > values[0] and min(np.diff(values)) > -0.1
    assert system.gmm.num_pdfs > plain.gmm.num_pdfs and system.log_likelihood > plain.log_likelihood
    assert abs(system.gmm.num_gauss - plain.gmm.num_gauss) < 25 and not system.alignments.failed
    asked = {node.key for node in splits(system.tree.to_pdf)}
    assert 2 in asked and 0 not in asked  # for the neighbour that a phone leans to, and not for the other one


def test_training_does_not_depend_on_threads(toy_corpus: Corpus, toy_lang: LangDir, monophones: State) -> None:
    one, two = (train_triphones(toy_corpus, toy_lang, monophones.alignments.tids, monophones.transition_model, 40, 60, SHORT,
                                AlignOptions(), Engine(threads), log=lambda line: None) for threads in (1, 2))
    assert one.tree == two.tree
    np.testing.assert_array_equal(one.gmm.means_invvars, two.gmm.means_invvars)
    np.testing.assert_array_equal(one.alignments.tids, two.alignments.tids)


def test_utterances_without_a_start_come_in_later(toy_corpus: Corpus, toy_lang: LangDir, monophones: State) -> None:
    tids = monophones.alignments.tids.copy()
    tids[:toy_corpus.offsets[2]] = 0
    made = {iters: train_triphones(toy_corpus, toy_lang, tids, monophones.transition_model, 40, 60, TriphoneOptions(
        num_iters=3, realign_iters=iters), AlignOptions(), log=lambda line: None).alignments for iters in ("2", "")}
    assert made[""].failed == toy_corpus.utts[:2] and not made["2"].failed
    assert isinstance(made["2"], Alignments) and made["2"].tids.all()


def test_directories(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    """What the stage leaves behind, and that the aligner takes it; mistakes are named before the old system is removed."""
    mono, tri, quiet, plain = tmp_path / "mono", tmp_path / "tri", {"log": lambda line: None}, ("", "--delta-order=0")
    train_mono_dir(toy_data.path, toy_lang.path, mono, MonoOptions(num_starts=1, num_iters=8, totgauss=40), AlignOptions(), *plain, **quiet)
    train = (toy_data.path, toy_lang.path, mono, tri)
    line = train_deltas_dir(*train, 60, 80, SHORT, AlignOptions(), *plain, nj=2, **quiet)
    assert "60 of 60 utterances aligned" in line
    assert {p.name for p in tri.iterdir()} - {".lock"} == {"final.mdl", "tree", "ali.1.gz", "ali.2.gz", "num_jobs", "cmvn_opts",
                                                           "delta_opts", "phones.txt", "inputs.json", "texts.crc"}
    (model, gmm), tree = read_model(tri / "final.mdl"), read_tree(tri / "tree")
    assert gmm.dim == 6 and tree.width == 3 and tree.num_pdfs == model.num_pdfs == gmm.num_pdfs
    assert "60 of 60 utterances aligned" in align_dir(toy_data.path, toy_lang.path, tri, tmp_path / "ali", AlignOptions(), **quiet)
    np.testing.assert_array_equal(AlignmentDir(tmp_path / "ali").phones("utt00"), AlignmentDir(tri).phones("utt00"))
    for leaves, gauss, message in ((0, 5, "at least one leaf"), (60, 50, "no fewer Gaussians than leaves"), (3, 50, "5 roots, more than")):
        with pytest.raises(UserError, match=message):
            train_deltas_dir(*train[:3], tmp_path / "other", leaves, gauss, SHORT, AlignOptions(), **quiet)
    with pytest.raises(UserError, match="both source and target"):
        train_deltas_dir(*train[:3], mono, 60, 80, SHORT, AlignOptions(), **quiet)


def test_starts_that_do_not_fit(toy_data: DataDir, toy_corpus: Corpus, toy_lang: LangDir, tmp_path: Path) -> None:
    train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(num_iters=2), AlignOptions(), log=lambda line: None)
    start, _ = read_start(tmp_path / "mono", toy_lang, toy_corpus)
    assert start.all()
    longer = Corpus(toy_corpus.utts[:1], toy_corpus.feats, np.array([0, 500]), toy_corpus.words[:1], toy_corpus.unknown)
    with pytest.raises(UserError, match=r"utt00: the alignment has \d+ frames, the features 500"):
        read_start(tmp_path / "mono", toy_lang, longer)
    other = Corpus([f"x{u}" for u in toy_corpus.utts], toy_corpus.feats, toy_corpus.offsets, toy_corpus.words, toy_corpus.unknown)
    with pytest.raises(UserError, match="no alignment of 60 of 60 utterances: xutt00"):
        read_start(tmp_path / "mono", toy_lang, other)
    for path in (tmp_path / "mono").glob("ali.*"):
        path.rename(path.with_name(path.name.replace("ali.", "ali_pdf.")))
    with pytest.raises(UserError, match="has pdfs, which do not say what phones they are of"):
        read_start(tmp_path / "mono", toy_lang, toy_corpus)


@pytest.mark.slow
def test_an4_reaches_kaldis_likelihood(shared: Path, golden: Path, tmp_path: Path) -> None:
    """From Kaldi's monophone alignments, with as many leaves and Gaussians asked for as Kaldi was."""
    data, lang, kaldis = an4(shared, tmp_path, None), LangDir(golden / "an4_kaldi/lang"), golden / "an4_kaldi/tri1"
    subprocess.run([sys.executable, "-m", "pykaldist", "train-deltas", "--nj", "2", "1800", "9000", data.path, lang.path,
                    golden / "an4_kaldi/mono", tmp_path / "tri1"], check=True, cwd=Path(__file__).parents[2])
    corpus = Corpus.load(data, lang, FeaturePipeline.from_dir(tmp_path / "tri1"))
    measured = []
    for system in (tmp_path / "tri1", kaldis):
        model, gmm = read_model(system / "final.mdl")
        frames = AlignedFrames.group(np.concatenate([AlignmentDir(system).labels[utt] for utt in corpus.utts]), model)
        measured.append((Engine().accumulate(gmm, corpus.feats, frames)[1], gmm.num_gauss, gmm.num_pdfs))
    ours, theirs = measured
    assert ours[0] > theirs[0] - 0.1 and abs(ours[1] - theirs[1]) < 50 and abs(ours[2] - theirs[2]) < 25
