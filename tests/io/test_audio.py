"""Audio of every kind that a data directory may name, and every way in which it may be bad."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.io.audio import AudioError, find_audio, read_audio, read_utterances
from pykaldist.io.datadir import DataDir, write_datadir

RATE = 8000


@pytest.fixture
def samples() -> np.ndarray:
    return np.random.default_rng(3).integers(-20000, 20000, 4000).astype(np.int16)


def encode(samples: np.ndarray, kind: str, subtype: str = "PCM_16") -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, samples, RATE, format=kind, subtype=subtype)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "NIST", "WAVEX"])
def test_lossless_formats_give_the_16_bit_values(tmp_path: Path, samples: np.ndarray, kind: str) -> None:
    (tmp_path / "a").write_bytes(encode(samples, kind))
    found, rate = read_audio(str(tmp_path / "a"))
    assert rate == RATE and found.dtype == np.float32
    np.testing.assert_array_equal(found, samples)


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "ULAW"), ("NIST", "ULAW"), ("NIST", "ALAW"), ("WAV", "ALAW")])
def test_companded_formats_come_close(tmp_path: Path, samples: np.ndarray, kind: str, subtype: str) -> None:
    (tmp_path / "a").write_bytes(encode(samples, kind, subtype))
    found, _ = read_audio(str(tmp_path / "a"))
    assert np.abs(found - samples).max() < 700
    assert len(found) == len(samples)


def test_pipe(tmp_path: Path, samples: np.ndarray) -> None:
    (tmp_path / "a b.wav").write_bytes(encode(samples, "WAV"))
    found, _ = read_audio(f"cat '{tmp_path}/a b.wav' |", pipes=True)
    np.testing.assert_array_equal(found, samples)


def test_what_is_no_entry_of_a_wav_scp_is_a_file_whatever_its_name(tmp_path: Path, samples: np.ndarray, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "touch harmed |"
    with pytest.raises(AudioError, match=re.escape(f"{name} cannot be read (No such file or directory)")):
        read_audio(name)
    Path(name).write_bytes(encode(samples, "WAV"))
    np.testing.assert_array_equal(read_audio(name)[0], samples)
    assert not Path("harmed").exists()


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF, 0])
def test_pipe_whose_header_does_not_know_its_length(tmp_path: Path, samples: np.ndarray, size: int) -> None:
    content = bytearray(encode(samples, "WAV"))
    at = content.index(b"data") + 4
    content[at : at + 4] = size.to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(content)
    found, _ = read_audio(f"cat {tmp_path}/a.wav |", pipes=True)
    np.testing.assert_array_equal(found, samples)
    with pytest.raises(AudioError, match=r"truncated|no samples"):
        read_audio(f"{tmp_path}/a.wav")


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "NIST"])
@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_truncated_audio_is_named(tmp_path: Path, samples: np.ndarray, kind: str, kept: float) -> None:
    content = encode(samples, kind)
    path = tmp_path / f"cut.{kind.lower()}"
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(AudioError, match=rf"cut\.{kind.lower()}.*(truncated|damaged)"):
        read_audio(str(path))


def test_other_bad_audio_is_named(tmp_path: Path, samples: np.ndarray) -> None:
    cases = {
        "empty.wav": (b"", "is empty"),
        "text.wav": (b"this is no audio at all, but a line of text\n" * 9, "no audio format"),
        "none.wav": (encode(samples[:0], "WAV"), "no samples"),
        "stereo.wav": (encode(np.stack([samples, samples], axis=1), "WAV"), "expected one channel, found 2"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(AudioError, match=message) as error:
            read_audio(str(tmp_path / name))
        assert name in str(error.value)
    with pytest.raises(AudioError, match="cannot be read"):
        read_audio(str(tmp_path / "absent.wav"))
    bad = samples / np.float32(32768)
    bad[7] = np.nan
    soundfile.write(tmp_path / "nan.wav", bad, RATE, subtype="FLOAT")
    with pytest.raises(AudioError, match="sample 7 is no finite number"):
        read_audio(str(tmp_path / "nan.wav"))


def test_a_failing_command_is_shown_with_what_it_said() -> None:
    with pytest.raises(AudioError, match=r"status 3 \(no such luck\)"):
        read_audio("echo no such luck >&2; exit 3 |", pipes=True)
    with pytest.raises(AudioError, match="status 1"):
        read_audio("false | cat |", pipes=True)


def test_shorten_is_refused_in_words(tmp_path: Path, samples: np.ndarray) -> None:
    content = encode(samples, "NIST").replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00")
    (tmp_path / "a.sph").write_bytes(content)
    with pytest.raises(AudioError, match=r"shorten, which is not read here; put `sph2pipe"):
        read_audio(str(tmp_path / "a.sph"))


def test_channels(tmp_path: Path, samples: np.ndarray) -> None:
    (tmp_path / "a.wav").write_bytes(encode(np.stack([samples, -samples], axis=1), "WAV"))
    np.testing.assert_array_equal(read_audio(str(tmp_path / "a.wav"), channel=0)[0], samples)
    np.testing.assert_array_equal(read_audio(str(tmp_path / "a.wav"), channel=1)[0], -samples)
    with pytest.raises(AudioError, match="expected channel 2, found 2 channels"):
        read_audio(str(tmp_path / "a.wav"), channel=2)


@pytest.fixture
def segmented(tmp_path: Path, samples: np.ndarray) -> DataDir:
    (tmp_path / "r.wav").write_bytes(encode(samples, "WAV"))  # 0.5 s
    segments = {"u1": "r 0 0.2", "u2": "r 0.2 0.45", "u3": "r 0.3 -1", "u4": "r 0.3 0.9", "u5": "r 0.6 0.7",
                "u6": "r 0.3 1.2", "u7": "s 0 1"}
    return write_datadir(tmp_path / "data", {"r": str(tmp_path / "r.wav")}, None, {u: "spk" for u in segments}, segments)


def test_segments(segmented: DataDir, samples: np.ndarray) -> None:
    found = dict(read_utterances(segmented, segmented.utterances(), RATE))
    np.testing.assert_array_equal(found["u1"], samples[:1600])
    np.testing.assert_array_equal(found["u2"], samples[1600:3600])
    np.testing.assert_array_equal(found["u3"], samples[2400:])
    np.testing.assert_array_equal(found["u4"], samples[2400:])  # ends no more than 0.5 s late, as Kaldi allows
    assert "outside of recording r" in str(found["u5"]) and "outside of recording r" in str(found["u6"])
    assert "no recording s" in str(found["u7"])


def test_wrong_rate_says_both_rates(segmented: DataDir) -> None:
    [(_, error)] = read_utterances(segmented, ["u1"], 16000)
    assert isinstance(error, AudioError) and "expected 16000 Hz, found 8000 Hz; set --sample-frequency=8000" in str(error)


def test_find_audio_prefers_by_suffix(tmp_path: Path) -> None:
    for name in ("b/x.flac", "b/x.wav", "a/y.sph", "a/z.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_audio(tmp_path) == {"a/y": tmp_path / "a/y.sph", "b/x": tmp_path / "b/x.wav"}
