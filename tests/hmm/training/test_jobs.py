"""Systems that are trained by jobs, each a process of its own, are those of one process on the same blocks, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.alignments.corpus import PairwiseSum
from pykaldist.hmm.alignments.corpus_jobs import Jobs, RowFiles
from pykaldist.hmm.gmm.gmm import GmmStats
from pykaldist.hmm.gmm.ubm import UbmOptions, UbmStats
from pykaldist.hmm.training.adapted_experiment import (
    align_fmllr_dir,
    get_fmllr_basis_dir,
    train_lda_mllt_dir,
    train_quick_dir,
    train_sat_dir,
)
from pykaldist.hmm.training.experiment import align_dir, train_deltas_dir, train_mono_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions
from pykaldist.hmm.training.mono import MonoOptions
from pykaldist.hmm.training.quick import QuickOptions
from pykaldist.hmm.training.sat import SatOptions
from pykaldist.hmm.training.triphones import TriphoneOptions
from pykaldist.io.datadir import DataDir, write_table
from pykaldist.io.lang import LangDir
from pykaldist.io.messages import StoredValue
from pykaldist.train.gmm_sequence_dirs import train_diag_ubm_dir

BLOCK = 900


def silent(line: str) -> None:
    pass


@pytest.fixture
def jobs_cmd(root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", f"{root}/src/bin:{root}/utils", prepend=":")
    return "run.pl"


@pytest.mark.parametrize("sizes", [[1], [3], [2, 2], [1, 3, 4], [5, 1, 2]])
def test_sums_do_not_depend_on_who_made_them(sizes: list[int]) -> None:
    values = [None if n % 5 == 2 else np.float32(10.0) ** (n - 3) for n in range(sum(sizes))]
    one, many = PairwiseSum(), PairwiseSum()
    for block, value in enumerate(values):
        one.add(0, block, value)
    first = 0
    for size in sizes:
        part = PairwiseSum()
        for block in range(first, first + size):
            part.add(0, block, values[block])
        assert len(part.nodes) <= 2 * size.bit_length()
        for node in part.nodes:
            many.add(*node)
        first += size
    assert one.nodes == many.nodes and one.result() == many.result() == pytest.approx(sum(v for v in values if v is not None))


def test_sums_that_wait_lie_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 13 blocks all sums but the last one wait; the result has the same bits, and nothing is left."""
    monkeypatch.setattr("pykaldist.hmm.alignments.corpus._LARGE", 100)
    rng = np.random.default_rng(0)
    values = [UbmStats(GmmStats(*rng.normal(size=(3, 40))), rng.normal(), rng.normal()) for _ in range(13)]
    here, there = PairwiseSum(), PairwiseSum(tmp_path)
    for block, value in enumerate(values):
        here.add(0, block, value)
        there.add(0, block, value)
        assert all(isinstance(value, StoredValue) for _, _, value in there.nodes[:-1])
    assert [level for level, _, _ in there.nodes] == [3, 2, 0] and not list(tmp_path.iterdir())
    one, two = here.result(), there.result()
    assert (one.weight, one.log_likelihood) == (two.weight, two.log_likelihood)
    np.testing.assert_array_equal(one.gmm.x2, two.gmm.x2)


def test_nothing_has_no_sum() -> None:
    sums = PairwiseSum()
    assert sums.result() is None
    sums.add(0, 0, None)
    assert sums.result() is None


def systems(work: Path, data: DataDir, lang: LangDir, jobs: JobsOptions, nj: int, stages: str, log: Callable[[str], None] = silent) -> None:
    """Train systems and align with them; each stage is named by a word of `stages`."""
    short = {"num_iters": 4, "max_iter_inc": 3, "realign_iters": "2"}
    made: dict[str, Callable[[], str]] = {
        "mono": lambda: train_mono_dir(data.path, lang.path, work / "mono", MonoOptions(num_iters=2, realign_iters="1", totgauss=30),
                                       AlignOptions(), nj=nj, log=log, jobs=jobs),
        "ali": lambda: align_dir(data.path, lang.path, work / "mono", work / "ali", AlignOptions(), nj, log, jobs=jobs),
        "deltas": lambda: train_deltas_dir(data.path, lang.path, work / "ali", work / "deltas", 20, 40, TriphoneOptions(**short),
                                           AlignOptions(), nj=nj, log=log, jobs=jobs),
        "lda": lambda: train_lda_mllt_dir(data.path, lang.path, work / "ali", work / "lda", 20, 40,
                                          LdaMlltOptions(**short, dim=6, mllt_iters="2"), AlignOptions(), splice_opts="--left-context=1",
                                          nj=nj, log=log, jobs=jobs),
        "sat": lambda: train_sat_dir(data.path, lang.path, work / "ali", work / "sat", 20, 40, SatOptions(**short, fmllr_iters="2"),
                                     AlignOptions(), FmllrOptions(fmllr_min_count=50), nj, log, jobs=jobs),
        "sat_ali": lambda: align_fmllr_dir(data.path, lang.path, work / "sat", work / "sat_ali", AlignOptions(),
                                           FmllrOptions(fmllr_min_count=50), nj, log, jobs=jobs),
        "quick": lambda: train_quick_dir(data.path, lang.path, work / "sat_ali", work / "quick", 20, 40, QuickOptions(**short),
                                         AlignOptions(), nj, log, jobs=jobs),
        "dubm": lambda: train_diag_ubm_dir(8, data.path, lang.path, work / "ali", work / "dubm", UbmOptions(num_iters=2), nj, log=log,
                                           jobs=jobs),
        "basis": lambda: get_fmllr_basis_dir(data.path, lang.path, work / "ali", False, 0.01, nj, log, jobs=jobs)}
    for stage in stages.split():
        made[stage]()


def same(one: Path, other: Path) -> None:
    """Compare the models, alignments and transforms of two folders."""
    for path in sorted(one.iterdir()):
        if path.name.split(".")[0] in ("final", "tree", "trans", "full", "fmllr"):
            assert path.read_bytes() == (other / path.name).read_bytes(), path.name
    if not (one / "ali.1.gz").is_file():
        return
    labels = AlignmentDir(other).labels
    assert all(np.array_equal(ids, labels[utt]) for utt, ids in AlignmentDir(one).items())


@pytest.mark.parametrize("stages", ["mono", "mono ali dubm basis",
                                    pytest.param("mono ali deltas lda sat sat_ali", marks=pytest.mark.slow)])
def test_jobs_train_the_same_systems(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, jobs_cmd: str, stages: str) -> None:
    for name, jobs in (("threads", JobsOptions("", BLOCK)), ("array", JobsOptions(jobs_cmd, BLOCK))):
        (tmp_path / name).mkdir()
        systems(tmp_path / name, toy_data, toy_lang, jobs, 2, stages)
    for stage in stages.split():
        folder = "ali" if stage == "basis" else stage
        same(tmp_path / "threads" / folder, tmp_path / "array" / folder)
        assert not (tmp_path / "array" / folder / "jobs").exists()


def test_features_that_are_not_kept_give_the_same(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, jobs_cmd: str) -> None:
    """Trainings and alignments, by threads and by jobs, which read features anew in each pass."""
    for name, jobs in (("kept", JobsOptions("", BLOCK, "true")), ("anew", JobsOptions("", BLOCK, "false"))):
        (tmp_path / name).mkdir()
        systems(tmp_path / name, toy_data, toy_lang, jobs, 2, "mono ali deltas")
        systems(tmp_path / name, toy_data, toy_lang, jobs, 2, "lda sat sat_ali")
    for stage in ("mono", "ali", "deltas", "lda", "sat", "sat_ali"):
        same(tmp_path / "kept" / stage, tmp_path / "anew" / stage)
    (tmp_path / "anew/ali").rename(tmp_path / "anew/ali_of_threads")
    systems(tmp_path / "anew", toy_data, toy_lang, JobsOptions(jobs_cmd, BLOCK), 2, "ali")
    same(tmp_path / "kept/ali", tmp_path / "anew/ali")
    (tmp_path / "anew/lda").rename(tmp_path / "anew/lda_of_threads")
    systems(tmp_path / "anew", toy_data, toy_lang, JobsOptions(jobs_cmd, BLOCK, "false"), 2, "lda")
    same(tmp_path / "kept/lda", tmp_path / "anew/lda")
    logs = [path.name for path in (tmp_path / "anew/ali/log").iterdir()]
    assert any(name.startswith("align_block.") for name in logs) and not any(name.startswith("keep_features.") for name in logs)


@pytest.mark.slow
def test_jobs_adapt_features_in_each_pass(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, jobs_cmd: str) -> None:
    """They write no adapted features, and make the systems of features that are kept; transforms go with the features that have them."""
    alive: list[int] = []

    def silent_but_counting(line: str) -> None:
        if line.startswith("iteration 3"):  # behind the one that estimates fMLLR
            alive.append(len(list((tmp_path / "anew").glob("*/jobs/trans.*"))))

    for name, jobs in (("kept", JobsOptions("", BLOCK, "true")), ("anew", JobsOptions(jobs_cmd, BLOCK, "false"))):
        (tmp_path / name).mkdir()
        systems(tmp_path / name, toy_data, toy_lang, jobs, 2, "mono ali sat sat_ali quick", silent_but_counting)
    for stage in ("sat", "sat_ali", "quick"):
        same(tmp_path / "kept" / stage, tmp_path / "anew" / stage)
        logs = [path.name for path in (tmp_path / "anew" / stage / "log").iterdir()]
        assert any(name.startswith("accumulate.") for name in logs) and not any(name.startswith("adapt.") for name in logs)
    assert alive == [0, 0, 1, 1]


def test_a_job_that_fails_ends_the_stage(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, jobs_cmd: str) -> None:
    """The sentence names the logs, which have the cause; nothing of the stage is left but these."""
    lengths = {utt: len(toy_data.feats[utt]) + (utt == "utt07") for utt in toy_data.utterances()}
    write_table(toy_data.path / "utt2num_frames", {utt: str(length) for utt, length in lengths.items()})
    with pytest.raises(UserError, match=r"jobs of the array keep_features\.2 have failed \(status 1\); .*log/keep_features\.2\.\*\.log"):
        systems(tmp_path, toy_data, toy_lang, JobsOptions(jobs_cmd, 10_000), 1, "mono")
    log = (tmp_path / "mono/log/keep_features.2.1.log").read_text()
    assert "utt07: expected features of" in log and "Traceback" not in log
    assert sorted(path.name for path in (tmp_path / "mono").iterdir()) == [".lock", "log"]


def test_rows_in_files_are_an_array(tmp_path: Path) -> None:
    """Blocks that nobody has written are zeros; what is written is there for another process once the array is closed."""
    rows = RowFiles(tmp_path / "rows", np.array([0, 3, 5]), 2, np.dtype(np.float32))
    assert rows.shape == (5, 2) and len(rows) == 5 and not any(block.any() for block in rows.pieces())
    rows[3:5][:] = 7
    rows[1:2][:] = 1
    with pytest.raises(IndexError, match="rows 2 to 4 are of several blocks"):
        rows[2:4]
    rows.close()
    assert np.load(tmp_path / "rows/1.npy").tolist() == [[7, 7], [7, 7]]
    np.testing.assert_array_equal(np.concatenate(list(rows.pieces()))[:, 0], [0, 1, 0, 7, 7])
    folder = rows.folder
    del rows
    assert not folder.exists()


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (3, 7), (50, 4), (4, 4)])
def test_each_job_has_blocks(tmp_path: Path, count: int, blocks: int) -> None:
    shares = Jobs(tmp_path / "jobs", "run.pl", count, tmp_path, "cpu", ()).blocks_of(blocks)
    assert [block for share in shares for block in share] == list(range(blocks)) and len(shares) == min(count, blocks)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
