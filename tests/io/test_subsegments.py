"""Parts of utterances as a data directory: recordings' times, rows of features, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.datadir_copies import extract_wav_segments, subsegment_data_dir
from pykaldist.io.tables import MatrixWriter


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    made = write_datadir(tmp_path / "data", {"r": "r.wav", "q": "q.wav"}, {"s-u": "a b", "s-v": "c"}, {"s-u": "s", "s-v": "s"},
                         {"s-u": "r 10.0 11.0", "s-v": "q 0.5 1.5"})
    with MatrixWriter(tmp_path / "feats.ark", made.path / "feats.scp") as writer:
        for number, utt in enumerate(made.utt2spk):
            writer.write(utt, np.arange(300, dtype=np.float32).reshape(100, 3) + 1000 * number)
    (made.path / "frame_shift").write_text("0.01\n")
    (made.path / "utt2dur").write_text("s-u 1.0\ns-v 1.0\n")
    (made.path / "spk2gender").write_text("s f\n")
    return DataDir(made.path)


def test_times_rows_and_tables(data: DataDir, tmp_path: Path) -> None:
    parts = {"s-u-1": ("s-u", 0.1, 0.3), "s-u-2": ("s-u", 0.5, 1.0)}
    made = subsegment_data_dir(data, parts, tmp_path / "new", {"s-u-1": "a", "s-u-2": "b"}, 0.02)
    assert made.segments == {"s-u-1": ("r", 10.1, 10.32), "s-u-2": ("r", 10.5, 11.02)}
    assert list(made.wav_scp) == ["r"] and made.utt2spk == {"s-u-1": "s", "s-u-2": "s"} and made.text == {"s-u-1": ["a"], "s-u-2": ["b"]}
    np.testing.assert_array_equal(made.feats["s-u-1"], data.feats["s-u"][10:30])
    np.testing.assert_array_equal(made.feats["s-u-2"], data.feats["s-u"][50:])
    assert made.table("spk2gender") == {"s": "f"} and not made.has("utt2dur") and (made.path / "frame_shift").read_text() == "0.01\n"
    # a part of a part has the rows of the first; and columns that were taken stay
    (made.path / "feats.scp").write_text((made.path / "feats.scp").read_text().replace("]", ",1:2]"))
    again = subsegment_data_dir(DataDir(made.path), {"s-u-2-1": ("s-u-2", 0.2, 0.4)}, tmp_path / "newer")
    assert again.segments == {"s-u-2-1": ("r", 10.7, 10.9)} and not again.has("text")
    np.testing.assert_array_equal(again.feats["s-u-2-1"], data.feats["s-u"][70:90, 1:])


def test_without_segments_utterances_are_recordings(tmp_path: Path) -> None:
    data = write_datadir(tmp_path / "data", {"u": "u.wav"}, None, {"u": "u"})
    made = subsegment_data_dir(data, {"u-1": ("u", 0.25, 0.5)}, tmp_path / "new")
    assert made.segments == {"u-1": ("u", 0.25, 0.5)} and not made.has("feats.scp")


def test_segments_become_files(tmp_path: Path) -> None:
    """Each utterance has the samples that its segment names, at the speed and volume of its recording; other tables stay."""
    rng = np.random.default_rng(0)
    samples = {name: rng.integers(-8000, 8000, 16000).astype(np.int16) for name in ("r", "q")}
    for name, values in samples.items():
        soundfile.write(tmp_path / f"{name}.wav", values, 8000)
    data = write_datadir(tmp_path / "data", {name: f"{tmp_path}/{name}.wav" for name in samples}, {"s-u": "a b", "s-v": "c", "s-w": "a"},
                         {"s-u": "s", "s-v": "s", "s-w": "s"}, {"s-u": "r 0.25 0.5", "s-v": "q 0.5 1.5", "s-w": "r 1.0 2.0"})
    (data.path / "reco2vol").write_text("q 0.5\n")
    (data.path / "spk2gender").write_text("s f\n")
    made = extract_wav_segments(DataDir(data.path), tmp_path / "new")
    made.validate()
    assert not made.has("segments") and not made.has("reco2vol") and made.text == data.text and made.table("spk2gender") == {"s": "f"}
    for utt, recording, begin, end, volume in (("s-u", "r", 2000, 4000, 1), ("s-v", "q", 4000, 12000, 0.5), ("s-w", "r", 8000, 16000, 1)):
        found, rate = soundfile.read(made.wav_scp[utt], dtype="int16")
        assert rate == 8000
        np.testing.assert_array_equal(found, np.rint(samples[recording][begin:end] * volume).astype(np.int16))
    with pytest.raises(UserError, match="has no segments"):
        extract_wav_segments(made, tmp_path / "newer")
    (data.path / "segments").write_text("s-u r 0.25 9\ns-v q 0.5 1.5\ns-w r 1.0 2.0\n")
    with pytest.raises(UserError, match=r"segment s-u: 0\.25 to 9 s lies outside"):
        extract_wav_segments(DataDir(data.path), tmp_path / "newest")


def test_what_is_not_there_is_refused(data: DataDir, tmp_path: Path) -> None:
    for part, message in ((("nobody", 0.0, 1.0), "expected a part of an utterance"), (("s-u", 0.5, 0.5), "from 0.5 to 0.5 s")):
        with pytest.raises(UserError, match=message):
            subsegment_data_dir(data, {"x": part}, tmp_path / "new")
    with pytest.raises(UserError, match="there are no segments of"):
        subsegment_data_dir(data, {}, tmp_path / "new")
    made = subsegment_data_dir(data, {"s-u-1": ("s-u", 0.1, 0.3)}, tmp_path / "new")
    with pytest.raises(UserError, match=r"rows 10 to 39 are not within"):
        subsegment_data_dir(DataDir(made.path), {"x": ("s-u-1", 0.1, 0.4)}, tmp_path / "newer")
