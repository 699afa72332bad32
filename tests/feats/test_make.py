"""The feature stages: parts and their collection, a few bad utterances, too many, and reruns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.feats.make import collect_parts, extract_part, paste, speaker_cmvn
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.datadir_tools import fix_data_dir
from pykaldist.io.tables import MatrixWriter

RATE = 8000


@pytest.fixture
def conf(tmp_path: Path) -> str:
    (tmp_path / "mfcc.conf").write_text("--sample-frequency=8000\n--use-energy=false\n")
    return str(tmp_path / "mfcc.conf")


def corpus(folder: Path, number: int) -> DataDir:
    """`number` utterances of noise, ten a speaker."""
    rng = np.random.default_rng(4)
    utts = {f"s{i // 10:02}-{i:03}": f"s{i // 10:02}" for i in range(number)}
    (folder / "wav").mkdir()
    for utt in utts:
        soundfile.write(folder / f"wav/{utt}.wav", rng.integers(-3000, 3000, 1000).astype(np.int16), RATE)
    return write_datadir(folder / "train", {u: str(folder / f"wav/{u}.wav") for u in utts}, {u: "yes" for u in utts}, utts)


def make(data: DataDir, folder: Path, conf: str, nj: int = 2) -> str:
    for job in range(1, nj + 1):
        extract_part(data, folder, conf, "mfcc", job, nj)
    return collect_parts(data, folder, "mfcc", nj)


def test_parts_make_a_whole(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 25)
    assert "features of 25 utterances" in make(data, tmp_path / "mfcc", conf)
    made = DataDir(data.path)
    made.validate(feats=True)
    assert made.feats["s00-000"].shape == (11, 13)
    assert made.table("utt2num_frames")["s02-024"] == "11" and made.table("utt2dur")["s02-024"] == "0.1250"
    assert "3 speakers" in speaker_cmvn(made, tmp_path / "mfcc")
    np.testing.assert_allclose(DataDir(data.path).cmvn["s02"], cmvn_stats(made.feats[f"s02-0{i}"] for i in range(20, 25)))
    one = make(made, tmp_path / "one", conf, nj=1)
    assert "25 utterances" in one and not (data.path / "cmvn.scp").exists()
    np.testing.assert_allclose(DataDir(data.path).feats["s00-007"], made.feats["s00-007"], atol=1e-4)


def test_a_job_imports_nothing_that_takes_long(tmp_path: Path, conf: str) -> None:
    """A recipe makes features in hundreds of jobs; each would pay for an import of PyTorch more than for its features."""
    data = corpus(tmp_path, 3)
    code = ("import sys; sys.modules.update(dict.fromkeys(('torch', 'scipy', 'numba'))); from pykaldist.cli import main; "
            "sys.exit(main(sys.argv[1:]))")
    arguments = ["make-feats", "--kind", "plp", "--feats-config", conf, str(data.path), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments],
                          cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "raw_plp_train.1.utts").read_text().startswith("s00-000 11 ")


def test_text_beside_the_audio_is_left_out_and_does_not_count(tmp_path: Path, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Kaldi's yesno recipe lists all files of the corpus's folder as utterances, a README and a README~ too where they are there."""
    data = corpus(tmp_path, 10)
    for name in ("README", "README~"):
        (tmp_path / "wav" / name).write_text("What the corpus is.\n")
    names = {name: f"{tmp_path}/wav/{name}" for name in ("README", "README~")}
    data = write_datadir(data.path, {**data.wav_scp, **names}, None, {**data.utt2spk, **dict.fromkeys(names, "nobody")})
    line = make(data, tmp_path / "mfcc", conf)
    assert "features of 10 utterances" in line and "2 of 12 utterances left out for their audio: README README~" in line
    assert f"{tmp_path}/wav/README~ is text, not audio; take it out of wav.scp." in capsys.readouterr().err
    (tmp_path / "wav/README").write_bytes(b"\x00\x01What the corpus is.\n")
    with pytest.raises(UserError, match=r"1 of 12 utterances of .* are unusable, more than 1 %; the last: .*README is damaged"):
        make(data, tmp_path / "mfcc", conf)


def test_a_few_bad_utterances_are_left_out_and_named(tmp_path: Path, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = corpus(tmp_path, 120)
    (tmp_path / "wav/s03-031.wav").write_bytes((tmp_path / "wav/s03-031.wav").read_bytes()[:900])
    line = make(data, tmp_path / "mfcc", conf)
    assert "119 utterances" in line and "1 of 120 utterances left out for their audio: s03-031" in line
    assert "s03-031.wav is truncated: 2000 bytes" in capsys.readouterr().err
    fix_data_dir(data.path)
    fixed = DataDir(data.path)
    fixed.validate(feats=True)
    assert len(fixed.utt2spk) == 119


def test_too_many_bad_utterances_are_an_error_and_leave_no_feats(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 30)
    (tmp_path / "wav/s01-012.wav").write_bytes(b"")
    with pytest.raises(UserError, match=r"1 of 30 utterances .* more than 1 %; the last: .*s01-012\.wav is empty"):
        make(data, tmp_path / "mfcc", conf)
    assert not (data.path / "feats.scp").exists()
    with pytest.raises(UserError, match="job 2 of 2 did not come to its end"):
        collect_parts(data, tmp_path / "mfcc", "mfcc", 2)


def test_bad_utterances_of_all_jobs_count_together(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 120)
    for utt in ("s00-001", "s11-111"):
        (tmp_path / f"wav/{utt}.wav").unlink()
    with pytest.raises(UserError, match=r"2 of 120 utterances .* the first, s00-001: .*s00-001\.wav cannot be read"):
        make(data, tmp_path / "mfcc", conf)


def test_wrong_rate_and_too_short_are_named(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 3)
    with pytest.raises(UserError, match="expected 16000 Hz, found 8000 Hz; set --sample-frequency=8000"):
        extract_part(data, tmp_path / "mfcc", None, "mfcc", 1, 1)
    soundfile.write(tmp_path / "wav/s00-001.wav", np.zeros(150, dtype=np.int16), RATE)
    with pytest.raises(UserError, match="s00-001 has 150 samples, fewer than a frame's 200"):
        extract_part(data, tmp_path / "mfcc", conf, "mfcc", 1, 1)


def test_parts_of_other_data_are_refused(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 12)
    make(data, tmp_path / "mfcc", conf)
    smaller = write_datadir(data.path, {"s00-000": "x"}, None, {"s00-000": "s00"})
    with pytest.raises(UserError, match=r"features of 12 utterances, .* has 1, and they are not the same"):
        collect_parts(smaller, tmp_path / "mfcc", "mfcc", 2)


def test_a_speaker_without_features_is_an_error(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 12)
    make(data, tmp_path / "mfcc", conf)
    scp = data.path / "feats.scp"
    scp.write_text("".join(line for line in scp.read_text().splitlines(True) if not line.startswith("s01")))
    with pytest.raises(UserError, match="speaker s01: there are no features"):
        speaker_cmvn(DataDir(data.path), tmp_path / "mfcc")


def test_features_that_are_not_finite_are_named(tmp_path: Path, conf: str) -> None:
    data = corpus(tmp_path, 12)
    make(data, tmp_path / "mfcc", conf)
    matrices = {utt: np.array(matrix) for utt, matrix in DataDir(data.path).feats.items()}
    matrices["s00-005"][3, 2] = np.nan
    with MatrixWriter(tmp_path / "x.ark", data.path / "feats.scp") as writer:
        for utt, matrix in matrices.items():
            writer.write(utt, matrix)
    with pytest.raises(UserError, match=r"features of s00-005 are not finite"):
        speaker_cmvn(DataDir(data.path), tmp_path / "mfcc")


def test_features_that_become_infinite_are_named_where_they_arise(tmp_path: Path, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Samples beyond what single precision squares: each is a finite number, their power is not."""
    data = corpus(tmp_path, 120)
    soundfile.write(tmp_path / "wav/s03-031.wav", np.random.default_rng(0).normal(size=1000) * 1e25, RATE, subtype="FLOAT")
    line = make(data, tmp_path / "mfcc", conf)
    assert "1 of 120 utterances left out for their audio: s03-031" in line
    assert "WARNING: s03-031 is left out: its features are not finite; its samples reach" in capsys.readouterr().err
    assert all(np.isfinite(matrix).all() for matrix in DataDir(data.path).feats.values())


def test_pasting_cuts_the_longer_within_the_tolerance() -> None:
    left, right = np.ones((5, 2)), np.zeros((7, 1))
    assert paste(left, right, 2, "a").tolist() == [[1, 1, 0]] * 5 and paste(right, left, 2, "a").shape == (5, 3)
    with pytest.raises(UserError, match="a: 5 frames of one kind of features and 7 of another, which is more than"):
        paste(left, right, 1, "a")


def test_in_the_deterministic_mode_features_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    batch = [(f"u{i}", rng.normal(0, 1000, rng.integers(3000, 40000)).astype(np.float32)) for i in range(12)]
    monkeypatch.setenv("PYKALDIST_DETERMINISTIC", "true")
    extractor = Extractor(MfccOptions(sample_frequency=16000.0))
    for together, one in zip(extractor.extract(batch), batch, strict=True):
        np.testing.assert_array_equal(together, extractor.extract([one])[0])
