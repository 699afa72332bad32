"""Trainings that are interrupted, and go on with --stage as if they had not been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import Terminated, UserError
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.adapted_experiment import train_lda_mllt_dir, train_sat_dir
from pykaldist.hmm.training.experiment import train_deltas_dir, train_mono_dir
from pykaldist.hmm.training.iterations import Checkpoint
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions
from pykaldist.hmm.training.mono import MonoOptions
from pykaldist.hmm.training.sat import SatOptions
from pykaldist.hmm.training.triphones import TriphoneOptions
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter

SHORT = {"num_iters": 6, "max_iter_inc": 4, "realign_iters": "3 5"}
ALIGN, FMLLR = AlignOptions(), FmllrOptions(fmllr_min_count=50)
Log = Callable[[str], None]


def quiet(line: str) -> None:
    """No log."""


class Interrupted(Exception):
    """A training's end before its time."""


@pytest.fixture
def mono(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> Path:
    train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(num_starts=1, num_iters=5, totgauss=40), ALIGN, log=quiet)
    return tmp_path / "mono"


@pytest.mark.parametrize("kind", ["mono", "deltas", "lda_mllt", "sat"])
def test_going_on(kind: str, mono: Path, toy_data: DataDir, toy_lang: LangDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file comes out byte for byte as without the interruption; nothing of it is left behind."""
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)
    data, lang = toy_data.path, toy_lang.path

    def train(exp: Path, log: Log, stage: int = 0) -> None:
        start, end = (data, lang, mono, exp, 40, 60), {"log": log, "stage": stage, "nj": 2}
        if kind == "mono":
            train_mono_dir(data, lang, exp, MonoOptions(**SHORT, num_starts=1, totgauss=40), ALIGN, **end)
        elif kind == "deltas":
            train_deltas_dir(*start, TriphoneOptions(**SHORT), ALIGN, **end)
        elif kind == "lda_mllt":
            train_lda_mllt_dir(*start, LdaMlltOptions(**SHORT, mllt_iters="2 4 5", dim=9), ALIGN, "", "--left-context=1", **end)
        else:
            train_sat_dir(*start, SatOptions(**SHORT, fmllr_iters="2 4 5"), ALIGN, FMLLR, **end)

    def interrupt(line: str) -> None:
        if line.startswith("iteration 5"):
            raise Interrupted

    train(tmp_path / "whole", quiet)
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", interrupt)
    assert (tmp_path / "parts/resume.npz").exists() and not (tmp_path / "parts/final.mdl").exists()
    with pytest.raises(UserError, match=r"--stage 6: .*parts was left before iteration 5; give --stage 5"):
        train(tmp_path / "parts", quiet, 6)
    lines: list[str] = []
    train(tmp_path / "parts", lines.append, 4 if kind == "deltas" else 5)  # an earlier one than that before which it was left
    assert [line.split(":")[0] for line in lines if line.startswith("iteration ")] == ["iteration 5"]
    whole, parts = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir() if p.name not in (".lock", "inputs.json")}
                    for name in ("whole", "parts"))
    assert whole == parts and "resume.npz" not in parts
    with pytest.raises(UserError, match=r"--stage 5: .*parts has no training to go on with"):
        train(tmp_path / "parts", quiet, 5)
    assert (tmp_path / "parts/final.mdl").exists()


@pytest.mark.parametrize("error", [Terminated, KeyboardInterrupt])
def test_who_is_ended_says_how_to_go_on_and_the_same_command_does(mono: Path, toy_data: DataDir, toy_lang: LangDir, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """Ended in iteration 2, and again in iteration 4 of the command that has gone on; this one, once more, goes on."""
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)

    def train(stage: int, end: int | None, log: Log = quiet) -> None:
        def line(text: str) -> None:
            log(text)
            if text.startswith(f"iteration {end}:"):
                raise error

        train_deltas_dir(toy_data.path, toy_lang.path, mono, tmp_path / "tri", 40, 60, TriphoneOptions(**SHORT), ALIGN, "", "", log=line,
                         stage=stage)

    with pytest.raises(error, match=r"^--stage 2 goes on from the last iteration that was kept$"):
        train(0, 2)
    with pytest.raises(error, match=r"^--stage 4 goes on"):
        train(2, 4)
    lines: list[str] = []
    train(2, None, lines.append)
    assert [line.split(":")[0] for line in lines if line.startswith("iteration ")] == ["iteration 4", "iteration 5"]
    monkeypatch.setattr(Checkpoint, "seconds", 1000.0)
    with pytest.raises(error, match=r"^run it again, from its beginning$"):
        train(0, 2)


def test_what_does_not_fit(mono: Path, toy_data: DataDir, toy_lang: LangDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoint, "seconds", 0.0)
    exp = tmp_path / "tri"

    def train(log: Log = quiet, stage: int = 0, delta_opts: str = "") -> None:
        train_deltas_dir(toy_data.path, toy_lang.path, mono, exp, 40, 60, TriphoneOptions(**SHORT), ALIGN, "", delta_opts, log=log,
                         stage=stage)

    def interrupt(line: str) -> None:
        if line.startswith("iteration 2"):
            raise Interrupted

    with pytest.raises(Interrupted):
        train(interrupt)
    with pytest.raises(UserError, match="was left with features of dimension 18, now they have 6; use the same options"):
        train(stage=2, delta_opts="--delta-order=0")
    kept = (exp / "resume.npz").read_bytes()
    with np.load(exp / "resume.npz") as stored:
        arrays = dict(stored)
    np.savez(exp / "resume.npz", **{**arrays, "tids": arrays["tids"][:-1]})
    with pytest.raises(UserError, match=r"was left with \d+ frames, the data have \d+; use the same data"):
        train(stage=2)
    (exp / "resume.npz").write_bytes(kept[:3000])
    with pytest.raises(UserError, match=r"resume\.npz is damaged"):
        train(stage=2)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_an_utterance_that_no_model_can_score_is_named(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    utt = toy_data.utterances()[3]
    with MatrixWriter(tmp_path / "x.ark", toy_data.path / "feats.scp") as writer:
        for name, matrix in dict(toy_data.feats.items()).items():
            writer.write(name, matrix * 1e20 if name == utt else matrix)
    with pytest.raises(UserError, match=rf"iteration \d+: the log-likelihood is .*: the model has no finite score of utterance {utt},"):
        train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(num_starts=1, num_iters=5, totgauss=40), ALIGN,
                       "--norm-means=false", log=quiet)


def test_a_checkpoint_of_another_kind_is_a_sentence(mono: Path, toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    np.savez(tmp_path / "resume.npz", iteration=2)
    with pytest.raises(UserError, match=r"resume\.npz is damaged or of another version: it has no tree; leave --stage out to begin again"):
        train_deltas_dir(toy_data.path, toy_lang.path, mono, tmp_path, 40, 60, TriphoneOptions(**SHORT), ALIGN, log=quiet, stage=2)


def test_checkpoints_take_their_time(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    """A training of a few seconds does not write any."""
    lines: list[str] = []
    train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(num_starts=1, num_iters=3), ALIGN, log=lines.append)
    assert not any("--stage" in line for line in lines)
