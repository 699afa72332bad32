"""The tree of chain models is Kaldi's, and the stage that makes it says what it cannot use."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.chain.den_graph import denominator_graph
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions, estimate_phone_lm
from pykaldist.hmm.gmm.model_files import read_model, read_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training import chain_tree
from pykaldist.hmm.training.chain_tree import ChainTreeOptions, build_chain_tree_dir
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.hmm.training.triphones import grow
from pykaldist.hmm.tree.questions import _c_rand
from pykaldist.hmm.tree.subsample import Converter
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.hmm.tree.tree_stats import accumulate_tree_stats
from pykaldist.io.archive import read_value
from pykaldist.io.datadir import write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.table_streams import read_table
from pykaldist.io.tables import MatrixWriter
from pykaldist.train.chain_data import AlignedPhones

CONTEXT = ChainTreeOptions(3, context_width=2)


@pytest.fixture(scope="module")
def chain_lang(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> LangDir:
    path = tmp_path_factory.mktemp("chain_lang")
    shutil.copytree(golden / "an4_kaldi/lang", path, dirs_exist_ok=True)
    shutil.copy(golden / "chain/topo", path / "topo")
    return LangDir(path)


@pytest.fixture(scope="module")
def thirds(golden: Path, chain_lang: LangDir) -> tuple[TransitionModel, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Kaldi's monophone chain model of AN4, and of each utterance a third of the frames and their alignment to it."""
    topology, ali = read_topology(chain_lang.file("topo")), AlignmentDir(golden / "an4_kaldi/tri3_ali")
    tree = monophone_tree(chain_lang.phone_sets, topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    assert ali.model is not None
    converter = Converter(ali.model, tree, model, 3)
    feats = read_table(f"ark:{golden}/an4_kaldi/fmllr/train.ark", read_value)
    return model, {utt: (x[::3], converter.convert(ali.labels[utt])) for utt, x in feats}  # type: ignore[misc]


def test_the_tree_is_kaldis(golden: Path, chain_lang: LangDir, thirds: tuple[TransitionModel, dict[str, tuple[np.ndarray, np.ndarray]]],
                            ) -> None:
    """Its questions come of Kaldi's k-means, whose starts are numbers of C's rand(); pdfs are merged to a multiple of 8, and numbered."""
    model, utts = thirds
    feats, tids = (np.concatenate(column) for column in zip(*utts.values(), strict=True))
    offsets = np.concatenate([[0], np.cumsum([len(x) for x, _ in utts.values()])])
    stats = accumulate_tree_stats(feats, tids, offsets, model, chain_lang.silence_phones, 2, 1)
    tree, made = grow(stats, chain_lang, 120, -1.0, 0, print, as_kaldi=True)
    kaldis, known = read_tree(golden / "chain/tree"), TransitionModel.from_tree(read_tree(golden / "chain/tree"), model.topology)
    assert tree == kaldis and tree.num_pdfs == 112
    np.testing.assert_array_equal(made.tuples, known.tuples)


def test_c_rand() -> None:
    assert list(itertools.islice(_c_rand(), 3)) == [1804289383, 846930886, 1681692777]  # of glibc, as every C textbook has them


@pytest.fixture
def small(golden: Path, tmp_path: Path, chain_lang: LangDir) -> Path:
    """Sixty utterances of AN4 with adapted features, and their alignment without transforms."""
    ali = AlignmentDir(golden / "an4_kaldi/tri3_ali")
    text = {utt: "YES" for utt in list(ali.labels)[:60]}
    data = write_datadir(tmp_path / "data", dict.fromkeys(text, "none"), text, {utt: utt.split("-")[0] for utt in text})
    feats = dict(read_table(f"ark:{golden}/an4_kaldi/fmllr/train.ark", read_value))
    with MatrixWriter(tmp_path / "feats.ark", data.path / "feats.scp") as writer:
        for utt in text:
            writer.write(utt, feats[utt])
    (tmp_path / "ali").mkdir()
    for name in ("ali.1.gz", "ali.2.gz", "final.mdl", "tree", "phones.txt", "num_jobs"):
        shutil.copy(golden / "an4_kaldi/tri3_ali" / name, tmp_path / "ali" / name)
    (tmp_path / "ali/cmvn_opts").write_text("--norm-means=false\n")
    (tmp_path / "ali/delta_opts").write_text("--delta-order=0\n")
    shutil.copytree(chain_lang.path, tmp_path / "lang")
    return tmp_path


def test_the_script(root: Path, small: Path) -> None:
    run = subprocess.run(["bash", "-c", f"cd '{small}'; . '{root}/path.sh'; '{root}/steps/nnet3/chain/build_tree.sh' "
                          "--frame-subsampling-factor 3 --context-opts '--context-width=2 --central-position=1' --repeat-frames true "
                          "--leftmost-questions-truncate -1 --cluster-phones-opts --pdf-class-list=0:1 80 data lang ali tree"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    pdfs = read_tree(small / "tree/tree").num_pdfs
    assert run.stdout == f"build_tree.sh: {pdfs} pdfs, 60 of 60 alignments converted; tree in tree\n" and pdfs % 8 == 0
    made, old = AlignmentDir(small / "tree"), AlignmentDir(small / "ali")
    assert len(made.labels) == 60 and made.num_pdfs == pdfs and (small / "tree/num_jobs").read_text() == "2\n"
    assert all(len(tids) == len(old.labels[utt]) for utt, tids in made.labels.items())
    assert read_model(small / "tree/1.mdl")[1].num_gauss == pdfs
    assert (small / "tree/1.mdl").read_bytes() == (small / "tree/final.mdl").read_bytes()


def made(small: Path, name: str, jobs: ArrayOptions, nj: int = 1, options: ChainTreeOptions = CONTEXT) -> Path:
    build_chain_tree_dir(small / "data", small / "lang", small / "ali", small / name, 80, options, nj=nj, jobs=jobs)
    return small / name


def test_some_utterances_at_a_time_make_the_same_tree(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(small, "whole", ArrayOptions())
    monkeypatch.setattr(chain_tree, "PIECE", 700)
    others = [made(small, "pieces", ArrayOptions()), made(small, "blocks", ArrayOptions(block_frames=2000), 2)]
    for other in others:
        assert (whole / "tree").read_bytes() == (other / "tree").read_bytes()
        np.testing.assert_allclose(read_model(whole / "final.mdl")[1].means_invvars, read_model(other / "final.mdl")[1].means_invvars,
                                   rtol=1e-4, atol=1e-4)


def test_jobs_make_what_threads_make(root: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, with the same blocks, and utterances that do not fit."""
    monkeypatch.setenv("PATH", f"{root}/src/bin:{root}/utils:{os.environ['PATH']}")
    short = ChainTreeOptions(10, context_width=2)
    threads, array = (made(small, name, ArrayOptions(cmd, 2000), nj, short)
                      for name, cmd, nj in (("threads", "", 2), ("array", "run.pl", 3)))
    names = {path.name for path in threads.iterdir() if path.is_file()} - {"inputs.json"}  # which has the paths
    assert {"tree", "1.mdl", "final.mdl", "ali.1.gz", "ali.2.gz"} <= names
    for name in names:
        assert (threads / name).read_bytes() == (array / name).read_bytes(), name
    assert 54 <= len(AlignmentDir(array).labels) < 60 and not (array / "jobs").exists()


def test_a_monophone_tree(small: Path) -> None:
    """Without a context a phone has pdfs of its own; the graph of all phone sequences is made of it as of others."""
    options = ChainTreeOptions(3, context_width=1, central_position=0)
    build_chain_tree_dir(small / "data", small / "lang", small / "ali", small / "tree", 80, options)
    made = AlignmentDir(small / "tree")
    tree = read_tree(small / "tree/tree")
    assert made.model is not None
    assert (tree.width, tree.central, tree.num_pdfs) == (1, 0, made.num_pdfs) and len(made.labels) == 60
    den = denominator_graph(tree, made.model, estimate_phone_lm(AlignedPhones(made).sequences(), PhoneLmOptions()))
    used = {made.model.tid2pdf[tid] + 1 for tids in made.labels.values() for tid in tids}
    assert used == set(den.ilabel.tolist()) <= set(range(1, tree.num_pdfs + 1))


def test_what_is_refused(golden: Path, small: Path) -> None:
    options = ChainTreeOptions(frame_subsampling_factor=3)
    shutil.copy(golden / "an4_kaldi/lang/topo", small / "lang/topo")
    with pytest.raises(UserError, match=r"the phones of \d+ of 60 utterances do not fit into 1/6 of their frames: .*gen_topo.py"):
        build_chain_tree_dir(small / "data", small / "lang", small / "ali", small / "tree", 80, ChainTreeOptions(6))
    with pytest.raises(UserError, match=r"frames, which make .*, the features make .*see --alignment-subsampling-factor"):
        build_chain_tree_dir(small / "data", small / "lang", small / "ali", small / "tree", 80, ChainTreeOptions(3, 1))
    (small / "ali/phones.txt").write_text((small / "ali/phones.txt").read_text().replace("SIL_B", "HUSH_B"))
    with pytest.raises(UserError, match="disagree about HUSH_B"):
        build_chain_tree_dir(small / "data", small / "lang", small / "ali", small / "tree", 80, options)
    assert not (small / "tree/tree").exists()


@pytest.mark.parametrize(("options", "words"), [({"frame_subsampling_factor": 0}, "expected factors of at least 1"),
                                                ({"context_width": 2, "central_position": 2}, "--central-position below it"),
                                                ({"pdf_class_list": "a"}, "--pdf-class-list a: expected numbers")])
def test_options_without_sense(options: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=words):
        ChainTreeOptions(**options)  # type: ignore[arg-type]
