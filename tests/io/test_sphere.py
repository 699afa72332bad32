"""sph2pipe, as recipes call it."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.io.audio import AudioError, read_audio
from pykaldist.io.sphere import PROGRAM, own_command

RATE = 8000


@pytest.fixture
def stereo(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A sphere file of two channels, and its samples."""
    samples = np.random.default_rng(1).integers(-20000, 20000, (4000, 2)).astype(np.int16)
    soundfile.write(tmp_path / "two.sph", samples, RATE, "PCM_16", format="NIST")
    return tmp_path / "two.sph", samples


def sph2pipe(root: Path, *words: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([root / PROGRAM, *map(str, words)], capture_output=True, check=False)


@pytest.mark.parametrize(("words", "where"), [
    (("-f", "wav", "-p", "-c", "1"), np.s_[:, 0]), (("-f", "rif", "-c", "2"), np.s_[:, 1]), (("-f", "wav"), np.s_[:, :]),
    (("-f", "wav", "-p", "-c", "2", "-t", "0.1:0.25"), np.s_[800:2000, 1]), (("-f", "wav", "-c", "1", "-s", "100:"), np.s_[100:, 0])])
def test_channels_and_spans(root, stereo, words, where):
    path, samples = stereo
    done = sph2pipe(root, *words, path)
    assert done.returncode == 0 and done.stdout[:4] == b"RIFF", done.stderr
    found, rate = soundfile.read(io.BytesIO(done.stdout), dtype="int16")
    assert rate == RATE and np.array_equal(found, samples[where])


def test_mu_law(root, tmp_path):
    wave = np.sin(np.arange(2000) / 20) * 0.5
    soundfile.write(tmp_path / "u.sph", wave, RATE, "ULAW", format="NIST")
    assert sph2pipe(root, "-f", "wav", "-p", tmp_path / "u.sph", tmp_path / "u.wav").returncode == 0
    found, _ = soundfile.read(tmp_path / "u.wav")
    assert soundfile.info(tmp_path / "u.wav").subtype == "PCM_16" and np.abs(found - wave).max() < 0.02


def test_features_are_read_without_a_process(root, stereo, monkeypatch):
    path, samples = stereo
    monkeypatch.setenv("PYKALDIST_ROOT", str(root))
    command = f"{root}/egs/../{PROGRAM} -f wav -p -c 2 {path}"
    assert own_command(command) == ["-f", "wav", "-p", "-c", "2", str(path)]
    for other in (f"{command} | cat", f"sox {path} -t wav -", f"/usr/bin/sph2pipe {path}", f"{command} > out"):
        assert own_command(other) is None
    monkeypatch.setenv("PATH", str((root / PROGRAM).parent))  # no shell to be found
    assert own_command(f"sph2pipe -f wav {path}") == ["-f", "wav", str(path)]
    found, rate = read_audio(f"{command} |", pipes=True)
    assert rate == RATE and np.array_equal(found, samples[:, 1])
    with pytest.raises(AudioError, match="cannot be read"):
        read_audio(f"{root}/{PROGRAM} -f wav /none.sph |", pipes=True)


def test_what_is_wrong_is_said(root, stereo, tmp_path):
    path, _ = stereo
    soundfile.write(tmp_path / "one.sph", np.zeros(10), RATE, "PCM_16", format="NIST")
    coding = b"sample_coding -s26 pcm,embedded-shorten-v2.00"
    (tmp_path / "short.sph").write_bytes(path.read_bytes().replace(b"sample_coding -s3 pcm", coding, 1))
    for words, sentence in ((["-c", "2", tmp_path / "one.sph"], b"expected channel 2, found 1 channels"), (["-x", path], b"no option -x"),
                            (["-f", "ogg", path], b"found -f ogg"), (["-t", "a:b", path], b"expected <begin>:<end>, found a:b"),
                            ([tmp_path / "short.sph"], b"is compressed with shorten"), (["none.sph"], b"none.sph")):
        done = sph2pipe(root, *words)
        assert done.returncode == 1 and sentence in done.stderr and not done.stdout, done.stderr
    assert sph2pipe(root).returncode == 1 and b"Usage: sph2pipe" in sph2pipe(root, "--help").stdout
