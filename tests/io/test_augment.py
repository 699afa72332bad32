"""Copies in other rooms and with noise: against convolutions and sums by hand, names, seeds, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.augment import augment
from pykaldist.io.datadir import DataDir, write_datadir, write_table

RATE, LENGTH = 16000, 8000


def sound(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, "PCM_16")
    return path


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    rng = np.random.default_rng(1)
    paths = {f"s{i}-r": str(sound(tmp_path / f"wav/{i}.wav", rng.uniform(-0.1, 0.1, LENGTH))) for i in range(4)}
    made = write_datadir(tmp_path / "data", paths, {f"s{i}-r-u": "one two" for i in range(4)}, {f"s{i}-r-u": f"s{i}" for i in range(4)},
                         {f"s{i}-r-u": f"s{i}-r 0.1 0.4" for i in range(4)})
    write_table(made.path / "utt2dur", {f"s{i}-r-u": "0.3" for i in range(4)})
    return made


def read(made: DataDir, recording: str) -> np.ndarray:
    return soundfile.read(made.wav_scp[recording])[0]


def test_a_room_is_a_convolution_of_the_same_power(data: DataDir, tmp_path: Path) -> None:
    response = np.zeros(400)
    response[[30, 130, 390]] = (0.5, 0.25, -0.125)  # the direct sound, and two echoes
    sound(tmp_path / "rooms/a/room.wav", response)
    made = augment(data, tmp_path / "aug", tmp_path / "audio", rirs=str(tmp_path / "rooms"))
    for recording in data.wav_scp:
        before = soundfile.read(data.wav_scp[recording])[0]
        expected = np.convolve(before, response)[30 : 30 + LENGTH]
        expected *= np.sqrt((before**2).sum() / (expected**2).sum())
        assert np.allclose(read(made, f"aug-{recording}"), expected, atol=1e-4)


def test_noise_is_at_the_ratio(data: DataDir, tmp_path: Path) -> None:
    sound(tmp_path / "noises/short.wav", np.random.default_rng(2).uniform(-0.3, 0.3, 1000))  # it is repeated
    made = augment(data, tmp_path / "aug", tmp_path / "audio", noises=str(tmp_path / "noises"), snrs=[10.0])
    for recording in data.wav_scp:
        before = soundfile.read(data.wav_scp[recording])[0]
        noise = read(made, f"aug-{recording}") - before
        assert 10 * np.log10((before**2).sum() / (noise**2).sum()) == pytest.approx(10.0, abs=0.05)
        assert np.allclose(noise[:1000], noise[1000:2000], atol=1e-4)


def test_names_say_what_they_are_copies_of(data: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound(tmp_path / "noises/n.wav", np.random.default_rng(2).uniform(-0.3, 0.3, 3 * LENGTH))
    assert main(["augment-data-dir", "--noises", str(tmp_path / "noises"), "--prefix", "noisy", str(data.path), str(tmp_path / "new"),
                 str(tmp_path / "audio")]) == 0
    assert "4 utterances" in capsys.readouterr().out
    made = DataDir(tmp_path / "new")
    made.validate()
    assert made.original("noisy-s2-r-u") == "s2-r-u" and made.utt2spk["noisy-s2-r-u"] == "noisy-s2"
    assert made.segments["noisy-s2-r-u"] == ("noisy-s2-r", 0.1, 0.4) and made.table("utt2dur")["noisy-s2-r-u"] == "0.3"


def test_copies_depend_on_the_seed_alone(data: DataDir, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for i in range(5):
        sound(tmp_path / f"noises/{i}.wav", rng.uniform(-0.3, 0.3, 2 * LENGTH))
    made = [augment(data, tmp_path / f"aug{i}", tmp_path / f"audio{i}", noises=str(tmp_path / "noises"), seed=seed, threads=threads)
            for i, (seed, threads) in enumerate(((0, 1), (0, 3), (1, 1)))]
    names = [f"aug-{recording}" for recording in data.wav_scp]
    same = [[np.array_equal(read(made[0], name), read(other, name)) for name in names] for other in made[1:]]
    assert all(same[0]) and not all(same[1])


def test_errors_say_what_is_wanted(data: DataDir, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    eight = sound(tmp_path / "eight/n.wav", np.full(800, 0.1), 8000).parent

    def refused(message: str, **options: str) -> None:
        with pytest.raises(UserError, match=message):
            augment(data, tmp_path / "aug", tmp_path / "audio", **options)  # type: ignore[arg-type]  # folders are text

    refused("neither impulse responses nor noises are given")
    refused(r"--rirs .*empty has no audio \(\*.wav, \*.flac\), in it or below; give the folder of OpenSLR 28", rirs=str(tmp_path / "empty"))
    refused("expected 16000 Hz, as the speech has, found 8000 Hz", rirs=str(eight))
    refused("expected 16000 Hz, as the speech has, found 8000 Hz", noises=str(eight))
    with pytest.raises(UserError, match="cannot replace"):
        augment(data, data.path, tmp_path / "audio", noises=str(eight))
    write_table(data.path / "reco2vol", dict.fromkeys(data.wav_scp, "2"))
    refused("is already perturbed", noises=str(eight))
