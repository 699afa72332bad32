"""flac, as LibriSpeech's recipes call it."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.io.audio import AudioError, read_audio
from pykaldist.io.flac import PROGRAM, own_command

RATE = 16000


@pytest.fixture
def speech(tmp_path: Path) -> tuple[Path, np.ndarray]:
    samples = np.random.default_rng(2).integers(-20000, 20000, 3000).astype(np.int16)
    soundfile.write(tmp_path / "a.flac", samples, RATE, "PCM_16", format="FLAC")
    return tmp_path / "a.flac", samples


def test_a_file_comes_out_as_wav(root, speech):
    path, samples = speech
    for words in (("-c", "-d", "-s"), ("-cds",), ("--stdout", "--decode", "--silent")):
        done = subprocess.run([root / PROGRAM, *words, path], capture_output=True, check=False)
        assert done.returncode == 0 and done.stdout[:4] == b"RIFF", done.stderr
        found, rate = soundfile.read(io.BytesIO(done.stdout), dtype="int16")
        assert rate == RATE and np.array_equal(found, samples)


def test_features_are_read_without_a_process(root, speech, monkeypatch):
    path, samples = speech
    monkeypatch.setenv("PYKALDIST_ROOT", str(root))
    monkeypatch.setenv("PATH", str((root / PROGRAM).parent))  # no shell to be found
    command = f"flac -c -d -s {path}"
    assert own_command(command) == ["-c", "-d", "-s", str(path)]
    assert own_command(f"{command} | cat") is None and own_command(f"sox {path} -t wav -") is None
    found, rate = read_audio(f"{command} |", pipes=True)
    assert rate == RATE and np.array_equal(found, samples)
    with pytest.raises(AudioError, match="does not exist"):
        read_audio("flac -c -d -s /none.flac |", pipes=True)


def test_the_program_that_is_installed_is_taken(root, speech, tmp_path, monkeypatch):
    monkeypatch.setenv("PYKALDIST_ROOT", str(root))
    (tmp_path / "flac").write_text("#!/bin/sh\n")
    (tmp_path / "flac").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{(root / PROGRAM).parent}")
    assert own_command(f"flac -c -d -s {speech[0]}") is None


def test_what_is_wrong_is_said(root, speech, tmp_path):
    path, samples = speech
    soundfile.write(tmp_path / "a.wav", samples, RATE)
    (tmp_path / "short.flac").write_bytes(path.read_bytes()[:2000])
    for words, sentence in ((["-d", path], b"expected -c, -d and a file"), (["-c", "-d", "--best", path], b"--best is not known here"),
                            (["-c", "-d", "none.flac"], b"none.flac does not exist"),
                            (["-c", "-d", tmp_path / "a.wav"], b"is no FLAC file, but WAV"),
                            (["-c", "-d", tmp_path / "short.flac"], b"short.flac")):
        done = subprocess.run([root / PROGRAM, *map(str, words)], capture_output=True, check=False)
        assert done.returncode == 1 and sentence in done.stderr and not done.stdout, done.stderr
