"""Data directories made of others by tools under Kaldi's names: nothing is lost, names and durations are right, bad input is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.io.audio import read_utterances
from pykaldist.io.datadir import DataDir, write_datadir, write_table
from pykaldist.io.tables import MatrixWriter

ROOT = Path(__file__).resolve().parents[2]
RATE = 8000


def run(name: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYKALDIST_ROOT": str(ROOT)}
    return subprocess.run([str(ROOT / "utils" / name), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False, env=env)


def out(name: str, *arguments: object, cwd: Path) -> str:
    done = run(name, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make(folder: Path, utts: dict[str, str], seconds: float = 0.0) -> DataDir:
    """A data directory of utterances and their speakers; with audio, of so many seconds and a little more each."""
    wav = {}
    for i, utt in enumerate(utts):
        wav[utt] = str(folder.parent / f"{utt}.wav")
        if seconds:
            soundfile.write(wav[utt], 0.25 * np.ones(int((seconds + 0.1 * i) * RATE)), RATE)
    return write_datadir(folder, wav, {utt: f"words of {utt[-1]}" for utt in utts}, utts)


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return make(tmp_path / "data", {f"{spk}-{i}": spk for spk in ("ann", "bob", "cid") for i in range(4)}, 0.5)


def test_copies_get_new_names_and_keep_the_old_ones(data, tmp_path):
    write_table(data.path / "spk2gender", {"ann": "f", "bob": "m", "cid": "f"})
    (data.path / "stm").write_text("anything\n")
    out("copy_data_dir.sh", "--utt-prefix", "x-", "--spk-prefix=x-", "--utt-suffix", "-y", "data", "new", cwd=tmp_path)
    new = DataDir(tmp_path / "new")
    assert new.utt2spk["x-ann-0-y"] == "x-ann" and new.original("x-ann-0-y") == "ann-0" and new.table("spk2gender")["x-ann"] == "f"
    assert list(new.wav_scp) == list(new.utt2spk) == list(new.text) and (new.path / "stm").is_file()
    same = out("data/copy_data_dir.sh", "data", "same", cwd=tmp_path)
    assert same == "copy_data_dir.sh: 12 utterances of data in same\n"
    for name in ("wav.scp", "utt2spk", "spk2utt", "text"):
        assert (tmp_path / "same" / name).read_bytes() == (data.path / name).read_bytes()
    assert "is both source and target" in run("copy_data_dir.sh", "data", "data", cwd=tmp_path).stderr


def test_recordings_with_segments_keep_their_names(tmp_path):
    write_datadir(tmp_path / "cut", {"rec": "rec.wav"}, None, {"a": "s", "b": "s"}, {"a": "rec 0 1", "b": "rec 1 2"})
    out("copy_data_dir.sh", "--utt-prefix=x-", "cut", "new", cwd=tmp_path)
    new = DataDir(tmp_path / "new")
    assert new.segments == {"x-a": ("rec", 0, 1), "x-b": ("rec", 1, 2)} and list(new.wav_scp) == ["rec"]


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_parts_of_a_directory_put_together_are_the_directory(tmp_path_factory, number, speakers, per_utt, random):
    tmp_path = tmp_path_factory.mktemp("split")
    utts = {f"s{s:02d}-{u}": f"s{s:02d}" for s in range(speakers) for u in range(random.randint(1, 6))}
    from pykaldist.errors import UserError
    from pykaldist.io.datadir_copies import combine_data, split_data

    data = make(tmp_path / "data", utts)
    by_utt = per_utt == 1
    if number > (len(utts) if by_utt else speakers):
        with pytest.raises(UserError, match="cannot be divided into"):
            split_data(data, number, by_utt)
        return
    folder = split_data(data, number, by_utt)
    parts = [DataDir(folder / str(job)) for job in range(1, number + 1)]
    assert folder.name == f"split{number}{'utt' * by_utt}"
    assert [utt for part in parts for utt in part.utterances()] == data.utterances()
    if not by_utt:
        assert sum(len(part.spk2utt) for part in parts) == speakers
    assert combine_data(tmp_path / "all", [part.path for part in parts]) == []
    for name in ("wav.scp", "utt2spk", "spk2utt", "text"):
        assert (tmp_path / "all" / name).read_bytes() == (data.path / name).read_bytes()


def test_a_division_is_made_anew_when_its_data_has_changed(data, tmp_path):
    out("split_data.sh", "data", 3, cwd=tmp_path)
    part = tmp_path / "data" / "split3" / "1" / "text"
    before = part.stat().st_mtime_ns
    out("split_data.sh", "data", 3, cwd=tmp_path)
    assert part.stat().st_mtime_ns == before
    write_table(data.path / "text", {utt: "other" for utt in data.utt2spk})
    out("data/split_data.sh", "data", 3, cwd=tmp_path)
    assert "other" in part.read_text()


def test_tables_that_some_lack_are_left_out_or_completed(data, tmp_path):
    other = make(tmp_path / "other", {"dan-0": "dan", "dan-1": "dan"})
    write_table(data.path / "utt2uniq", {utt: "one" for utt in data.utt2spk})
    write_table(data.path / "utt2dur", {utt: "1" for utt in data.utt2spk})
    write_table(data.path / "reco2speed", {"ann-0": "0.9"})
    write_table(other.path / "segments", {"dan-0": "dan-0 0 1", "dan-1": "dan-1 0 1"})
    for part in (data, other):
        write_table(part.path / "mine", {utt: "x" for utt in part.utt2spk})
    said = out("combine_data.sh", "--extra-files", "mine", "all", "data", "other", cwd=tmp_path)
    made = DataDir(tmp_path / "all")
    made.validate()
    assert "left out utt2dur, which other does not have" in said and not made.has("utt2dur") and made.has("mine")
    assert {utt: made.original(utt) for utt in made.utt2spk} == {**dict.fromkeys(data.utt2spk, "one"), "dan-0": "dan-0", "dan-1": "dan-1"}
    assert made.segments["ann-0"] == ("ann-0", 0, -1) and made.segments["dan-1"] == ("dan-1", 0, 1) and made.reco2speed == {"ann-0": 0.9}
    write_table(other.path / "utt2spk", {"ann-0": "dan", "dan-1": "dan"})
    clash = run("combine_data.sh", "all", "data", "other", cwd=tmp_path)
    assert clash.returncode == 1 and "utt2spk, ann-0: found 'dan', and 'ann' in another directory" in clash.stderr


@pytest.mark.parametrize("options", [[], ["--cv-spk-percent", "50"], ["--seed", "1"], ["--cv-spk-list", "list"]])
def test_training_and_cross_validation_share_no_speaker(data, tmp_path, options):
    (tmp_path / "list").write_text("bob\nstranger\n")
    out("subset_data_dir_tr_cv.sh", *options, "data", "tr", "cv", cwd=tmp_path)
    train, cv = DataDir(tmp_path / "tr"), DataDir(tmp_path / "cv")
    assert sorted(train.utterances() + cv.utterances()) == data.utterances() and not set(train.spk2utt) & set(cv.spk2utt)
    assert len(cv.spk2utt) == 1 and ("list" not in options or list(cv.spk2utt) == ["bob"])
    (tmp_path / "list").write_text("ann\nbob\ncid\n")
    assert "3 speakers, of which 3 would be held out" in run("subset_data_dir_tr_cv.sh", "--cv-spk-list", "list", "data", "tr", "cv",
                                                            cwd=tmp_path).stderr


def test_speakers_are_divided_by_number_and_by_length(data, tmp_path):
    out("data/modify_speaker_info.sh", "--utts-per-spk-max", 3, "data", "few", cwd=tmp_path)
    few = DataDir(tmp_path / "few")
    assert [len(utts) for utts in few.spk2utt.values()] == [3, 1] * 3 and list(few.spk2utt)[:2] == ["ann-1", "ann-2"]
    out("data/modify_speaker_info.sh", "--seconds-per-spk-max", 2.0, "--respect-speaker-info", "false", "data", "short", cwd=tmp_path)
    short = DataDir(tmp_path / "short")
    lengths = {utt: 0.5 + 0.1 * i for i, utt in enumerate(data.utterances())}
    assert all(sum(lengths[utt] for utt in utts) <= 2.0 + 1e-9 or len(utts) == 1 for utts in short.spk2utt.values())
    assert sorted(utt for utts in short.spk2utt.values() for utt in utts) == data.utterances() and all(
        spk.startswith("speaker-") for spk in short.spk2utt)
    assert "give --utts-per-spk-max" in run("data/modify_speaker_info.sh", "data", "x", cwd=tmp_path).stderr


def test_volumes_change_what_is_read(data, tmp_path):
    (data.path / "feats.scp").write_text("ann-0 x.ark:1\n")
    before = dict(read_utterances(data, data.utterances(), RATE))
    out("data/perturb_data_dir_volume.sh", "--scale-low", 0.5, "--scale-high", 1.5, "--write-reco2vol", "volumes", "data", cwd=tmp_path)
    louder = DataDir(data.path)
    assert not louder.has("feats.scp") and (data.path / ".backup" / "feats.scp").is_file()
    for utt, audio in read_utterances(louder, louder.utterances(), RATE):
        assert 0.5 <= louder.reco2vol[utt] <= 1.5 and audio == pytest.approx(before[utt] * louder.reco2vol[utt])
    table = (data.path / "reco2vol").read_text()
    assert "already" in out("data/perturb_data_dir_volume.sh", "data", cwd=tmp_path) and (data.path / "reco2vol").read_text() == table
    make(tmp_path / "again", data.utt2spk)
    out("data/perturb_data_dir_volume.sh", "--reco2vol=volumes", "again", cwd=tmp_path)
    assert (tmp_path / "again" / "reco2vol").read_text() == table


def test_speeds_one_at_a_time_and_with_a_prefix_for_all(data, tmp_path):
    out("perturb_data_dir_speed.sh", 0.9, "data", "slow", cwd=tmp_path)
    assert next(iter(DataDir(tmp_path / "slow").utt2spk)) == "sp0.9-ann-0" and set(DataDir(tmp_path / "slow").reco2speed.values()) == {0.9}
    out("perturb_data_dir_speed_3way.sh", "--always-include-prefix", "true", "--include-spk-prefix", "true", "data", "sp", cwd=tmp_path)
    assert {utt.partition("-")[0] for utt in DataDir(tmp_path / "sp").utt2spk} == {"sp0.9", "sp1.0", "sp1.1"}
    out("data/perturb_data_dir_speed_3way.sh", "--include-spk-prefix", "false", "data", "same", cwd=tmp_path)
    same = DataDir(tmp_path / "same")
    assert list(same.spk2utt) == ["ann", "bob", "cid"] and same.original("ann-0-sp1.1") == "ann-0" and same.reco2speed["ann-0-sp1.1"] == 1.1
    out("combine_data.sh", "both", "data", "slow", cwd=tmp_path)
    assert len(DataDir(tmp_path / "both").reco2speed) == 12


def test_durations_and_frames(data, tmp_path):
    out("data/get_utt2dur.sh", "--nj", 4, "--cmd", "run.pl", "data", cwd=tmp_path)
    seconds = {utt: float(text) for utt, text in data.table("utt2dur").items()}
    assert list(seconds.values()) == pytest.approx([0.5 + 0.1 * i for i in range(12)], abs=1e-3)
    out("data/get_reco2dur.sh", "data", cwd=tmp_path)
    assert (data.path / "reco2dur").read_text() == (data.path / "utt2dur").read_text()
    out("data/get_utt2num_frames.sh", "data", cwd=tmp_path)
    assert list(map(int, data.table("utt2num_frames").values()))[:3] == [48, 58, 68]
    assert out("data/get_frame_shift.sh", "data", cwd=tmp_path) == "0.01\n"
    assert int(out("data/get_num_frames.sh", "data", cwd=tmp_path)) == pytest.approx(100 * sum(seconds.values()), abs=1)
    assert out("data/get_segments_for_data.sh", "data", cwd=tmp_path).splitlines()[0] == "ann-0 ann-0 0 0.5"
    slow = make(tmp_path / "slow", {"ann-0": "ann"})
    write_table(slow.path / "reco2speed", {"ann-0": "0.5"})
    assert out("data/get_segments_for_data.sh", "slow", cwd=tmp_path) == "ann-0 ann-0 0 1\n"
    write_table(slow.path / "wav.scp", {"ann-0": f"cat {tmp_path}/ann-0.wav |"})
    assert out("data/get_segments_for_data.sh", "slow", cwd=tmp_path) == "ann-0 ann-0 0 1\n"
    write_table(slow.path / "wav.scp", {"ann-0": "gone.wav"})
    gone = run("data/get_utt2dur.sh", "slow", cwd=tmp_path)
    assert gone.returncode == 1 and gone.stderr.startswith("get_utt2dur.sh: ERROR: gone.wav cannot be read") and not slow.has("utt2dur")


def test_repeats_and_segments_go(data, tmp_path):
    said = out("data/remove_dup_utts.sh", 2, "data", "few", cwd=tmp_path)
    few = DataDir(tmp_path / "few")
    assert said == "remove_dup_utts.sh: 8 of 12 utterances of data in few\n"
    assert max(list(few.text.values()).count(words) for words in few.text.values()) == 2
    write_datadir(tmp_path / "cut", {"rec": "rec.wav"}, {"a": "said first", "b": "then"}, {"a": "s", "b": "s"},
                  {"a": "rec 0.5 1", "b": "rec 1 2"})
    out("data/convert_data_dir_to_whole.sh", "cut", "whole", cwd=tmp_path)
    whole = DataDir(tmp_path / "whole")
    whole.validate()
    assert whole.text == {"rec": ["said", "first", "then"]} and whole.utt2spk == {"rec": "rec"}


def test_some_columns_of_features(data, tmp_path):
    feats = np.arange(12, dtype=np.float32).reshape(3, 4)
    with MatrixWriter(tmp_path / "f.ark", tmp_path / "f.scp") as writer:
        for utt in data.utt2spk:
            writer.write(utt, feats)
    (data.path / "feats.scp").write_text((tmp_path / "f.scp").read_text())
    out("data/limit_feature_dim.sh", "0:1", "data", "narrow", cwd=tmp_path)
    assert np.array_equal(DataDir(tmp_path / "narrow").feats["ann-0"], feats[:, :2])
    assert "expected columns as 0:39" in run("data/limit_feature_dim.sh", "2", "data", "x", cwd=tmp_path).stderr
    assert "a part of the matrix is taken already" in run("data/limit_feature_dim.sh", "0:1", "narrow", "x", cwd=tmp_path).stderr
