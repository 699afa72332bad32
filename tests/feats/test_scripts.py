"""The feature stages as a user runs them, in a recipe's directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.feats.cmvn import apply_cmvn
from pykaldist.feats.pitch import PitchExtractor, PitchOptions, ProcessPitchOptions
from pykaldist.io.datadir import DataDir, write_datadir


@pytest.fixture
def recipe(tmp_path: Path, root: Path) -> Path:
    """A recipe's directory with six utterances of two speakers."""
    for name in ("steps", "utils", "path.sh"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/mfcc.conf").write_text("--sample-frequency=8000\n")
    (tmp_path / "conf/fbank.conf").write_text("--sample-frequency=8000 --num-mel-bin=40\n")  # a slip: bins
    utts = {f"{spk}-{i}": spk for spk in ("ann", "bob") for i in range(3)}
    for utt in utts:
        soundfile.write(tmp_path / f"{utt}.wav", np.random.default_rng(1).integers(-900, 900, 900).astype(np.int16), 8000)
    write_datadir(tmp_path / "data/train", {u: f"{u}.wav" for u in utts}, {u: "yes" for u in utts}, utts)
    return tmp_path


def run(recipe: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", *command], cwd=recipe, capture_output=True, text=True, check=False)


def test_mfcc_and_cmvn(recipe: Path) -> None:
    made = run(recipe, "steps/make_mfcc.sh", "--nj", "2", "data/train", "exp/make_mfcc", "mfcc")
    assert made.returncode == 0, made.stderr
    assert made.stdout == "make_mfcc.sh: features of 6 utterances, 0.0 min, 54 frames in data/train/feats.scp\n"
    assert run(recipe, "steps/compute_cmvn_stats.sh", "data/train", "exp/make_mfcc", "mfcc").returncode == 0
    data = DataDir(recipe / "data/train")
    data.validate(feats=True)
    assert data.feats["bob-2"].shape == (9, 13) and set(data.cmvn) == {"ann", "bob"}
    assert (recipe / "exp/make_mfcc/make_mfcc.2.log").is_file()
    options = ("--write_utt2dur", "false", "--write-utt2num-frames", "false")
    assert run(recipe, "steps/make_mfcc.sh", *options, "data/train", "exp/make_mfcc", "mfcc").returncode == 0
    assert not data.has("utt2dur") and not data.has("utt2num_frames") and data.has("feats.scp")


def test_cmvn_that_changes_nothing(recipe: Path) -> None:
    assert run(recipe, "steps/make_mfcc.sh", "data/train", "exp/make_mfcc", "mfcc").returncode == 0
    for options, unchanged in ((("--fake",), range(13)), (("--fake-dims", "0:12"), (0, 12))):
        made = run(recipe, "steps/compute_cmvn_stats.sh", *options, "data/train", "exp/make_mfcc", "mfcc")
        assert made.returncode == 0, made.stderr
        data = DataDir(recipe / "data/train")
        normalised = apply_cmvn(data.feats["bob-2"], data.cmvn["bob"], True)
        same = [np.allclose(normalised[:, d], data.feats["bob-2"][:, d], atol=1e-5) for d in range(13)]
        assert same == [d in unchanged for d in range(13)]
    wrong = run(recipe, "steps/compute_cmvn_stats.sh", "--fake-dims", "13", "data/train", "exp/make_mfcc", "mfcc")
    assert wrong.returncode == 1 and "dimension 13 is not among the 13 of the features" in wrong.stderr + (
        recipe / "exp/make_mfcc/cmvn_train.log").read_text()


@pytest.mark.parametrize(("kind", "dim"), [("mfcc_pitch", 16), ("plp", 13), ("plp_pitch", 16), ("fbank_pitch", 26)])
def test_plp_and_pitch(recipe: Path, kind: str, dim: int) -> None:
    """Each script makes features that stages read; pitch stands behind the others, and frames are as many."""
    for name in ("plp", "fbank", "pitch"):
        (recipe / f"conf/{name}.conf").write_text("--sample-frequency=8000\n")
    (recipe / "conf/pitch_process.conf").write_text("--delta-pitch-noise-stddev=0\n")
    made = run(recipe, f"steps/make_{kind}.sh", "--nj", "2", "data/train", "exp/make_feats", "feats")
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"make_{kind}.sh: features of 6 utterances, 0.0 min, 54 frames in data/train/feats.scp\n"
    found = DataDir(recipe / "data/train").feats["bob-2"]
    assert found.shape == (9, dim) and np.isfinite(found).all()
    if kind == "mfcc_pitch":  # options of the pitch and of what is made of it in one file
        (recipe / "conf/online_pitch.conf").write_text("--sample-frequency=8000\n--delta-pitch-noise-stddev=0  # and\n")
        online = run(recipe, "steps/make_mfcc_pitch_online.sh", "--nj", "2", "data/train", "exp/make_online", "feats2")
        assert online.returncode == 0 and online.stdout.startswith("make_mfcc_pitch_online.sh: features of 6 utterances"), online.stderr
        np.testing.assert_array_equal(DataDir(recipe / "data/train").feats["bob-2"], found)
        (recipe / "conf/online_pitch.conf").write_text("--frames-per-chunk=10\n")
        online = run(recipe, "steps/make_mfcc_pitch_online.sh", "data/train", "exp/make_online", "feats2")
        assert online.returncode == 1 and "there is no option --frames-per-chunk" in (
            recipe / "exp/make_online/make_mfcc_pitch_online.1.log").read_text()
    if kind.endswith("_pitch"):
        base = kind.removesuffix("_pitch")
        assert run(recipe, f"steps/make_{base}.sh", "--nj", "1", "data/train", "exp/make_feats", "feats").returncode == 0
        np.testing.assert_allclose(DataDir(recipe / "data/train").feats["bob-2"], found[:, :-3], atol=1e-4)
        samples = soundfile.read(recipe / "bob-2.wav", dtype="int16")[0].astype(np.float32)
        pitch = PitchExtractor(PitchOptions(sample_frequency=8000), ProcessPitchOptions(delta_pitch_noise_stddev=0))
        np.testing.assert_allclose(pitch.extract("bob-2", samples), found[:, -3:], atol=1e-4)
        (recipe / "conf/pitch.conf").write_text("--sample-frequency=16000\n")
        failed = run(recipe, f"steps/make_{kind}.sh", "--nj", "1", "data/train")
        assert failed.returncode == 1 and f"conf/{base}.conf and conf/pitch.conf differ in --sample-frequency" in failed.stderr


def test_fmllr_features(recipe: Path) -> None:
    """A system without final.mat and transforms has deltas only; with transforms of other speakers it stops."""
    (recipe / "gmm").mkdir()
    (recipe / "gmm/final.mdl").touch()
    run(recipe, "steps/make_mfcc.sh", "--nj", "1", "data/train", "exp/make_mfcc", "mfcc")
    run(recipe, "steps/compute_cmvn_stats.sh", "data/train", "exp/make_mfcc", "mfcc")
    command = ("steps/nnet/make_fmllr_feats.sh", "--nj", "2", "data-fmllr/train", "data/train", "gmm", "exp/fmllr", "fmllr")
    made = run(recipe, *command)
    assert made.returncode == 0 and "WARNING: no --transform-dir" in made.stderr
    assert made.stdout == "make_fmllr_feats.sh: features of 6 utterances, 0.0 min, 54 frames in data-fmllr/train/feats.scp\n"
    data, source = DataDir(recipe / "data-fmllr/train"), DataDir(recipe / "data/train")
    assert data.feats["bob-2"].shape == (9, 39) and not data.has("cmvn.scp")
    assert data.table("utt2dur") == source.table("utt2dur") and source.feats["bob-2"].shape == (9, 13)
    (recipe / "gmm/trans.1").write_text("ann  [\n 1 2 ]\n")
    failed = run(recipe, command[0], "--transform-dir", "gmm", *command[1:])
    assert failed.returncode == 1 and "a transform of shape (1, 2) does not fit features of dimension 39" in failed.stderr
    assert "are the same" in run(recipe, *command[:3], "data/train", "data/train", "gmm", "exp/fmllr", "fmllr").stderr


def test_what_is_wrong_is_said_and_old_features_do_not_stay(recipe: Path) -> None:
    (recipe / "data/train/feats.scp").write_text("old\n")
    failed = run(recipe, "steps/make_fbank.sh", "--nj", "1", "data/train")
    assert failed.returncode == 1
    assert "conf/fbank.conf: there is no option --num-mel-bin; known are" in failed.stderr
    assert not (recipe / "data/train/feats.scp").exists()
    early = run(recipe, "steps/compute_cmvn_stats.sh", "data/train")
    assert early.returncode == 1 and "data/train/feats.scp does not exist; make it first: steps/make_mfcc.sh data/train" in early.stderr


@pytest.mark.parametrize("script", ["steps/make_mfcc.sh", "steps/make_fbank.sh", "steps/make_plp.sh",
                                    "steps/make_mfcc_pitch.sh", "steps/make_plp_pitch.sh", "steps/make_fbank_pitch.sh",
                                    "steps/compute_cmvn_stats.sh",
                                    "steps/nnet/make_fmllr_feats.sh", "utils/validate_data_dir.sh", "utils/fix_data_dir.sh",
                                    "utils/subset_data_dir.sh", "utils/train_lm.sh"])
def test_usage(recipe: Path, script: str) -> None:
    asked, wrong = run(recipe, script, "--help"), run(recipe, script)
    assert (asked.returncode, wrong.returncode) == (0, 1)
    assert asked.stdout == wrong.stderr and " e.g.: " in asked.stdout
