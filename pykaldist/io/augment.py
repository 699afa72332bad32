"""Copies of a data directory in other rooms and with noise, by lhotse: its convolution with impulse responses, and its mixer.

Each recording gets an impulse response and a noise, drawn by the seed and its name, so that the copies depend neither on the order nor on
the number of threads. The audio is written, as FLAC of 16 bits, as long as before: segments and alignments stay what they were. utt2uniq
says of which utterance each is a copy.

Sources: Ko, Peddinti, Povey, Seltzer & Khudanpur, "A study on data augmentation of reverberant speech for robust speech recognition",
ICASSP 2017, for the impulse responses (OpenSLR 28); Snyder, Chen & Povey, "MUSAN", 2015, for the noises (OpenSLR 17).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import soundfile

from pykaldist.errors import UserError, quoted
from pykaldist.io.atomic import atomic_open
from pykaldist.io.audio import INT16_SCALE, find_audio, read_audio, read_channels
from pykaldist.io.datadir import DataDir, write_datadir, write_table


def augment(data: DataDir, target: str | os.PathLike[str], audio: str | os.PathLike[str], rirs: str = "", noises: str = "",
            snrs: Sequence[float] = (15.0, 10.0, 5.0), prefix: str = "aug", seed: int = 0, threads: int = 1) -> DataDir:
    """Write to `target` the utterances of `data` in rooms of the folder `rirs` and with noises of the folder `noises`, either may be empty.

    `snrs`: signal-to-noise ratios in dB, of which each recording gets one. Names of recordings, utterances and speakers begin with
    `<prefix>-`. Raises UserError for folders without audio, data that are perturbed already, and rates that differ.
    """
    data.validate(text=data.has("text"))
    if data.has("reco2speed") or data.has("reco2vol"):
        raise UserError(f"{data.path} is already perturbed (it has reco2speed or reco2vol); augment the data that it was made of.")
    if data.path.resolve() == Path(target).resolve():
        raise UserError(f"the augmented data cannot replace {data.path} itself; name another directory.")
    rooms, noise = (_files(folder, option) if folder else [] for folder, option in ((rirs, "rirs"), (noises, "noises")))
    if not rooms and not noise:
        raise UserError("neither impulse responses nor noises are given, so that the copies would not differ; give --rirs or --noises.")
    folder = Path(audio)
    folder.mkdir(parents=True, exist_ok=True)

    def copy(recording: str) -> str:
        rng = np.random.default_rng([seed, zlib.crc32(recording.encode())])
        samples, rate = read_audio(data.wav_scp[recording], pipes=True)
        made = _augmented(samples / INT16_SCALE, rate, rooms, noise, snrs, rng)
        path = folder / f"{prefix}-{recording.replace('/', '-')}.flac"
        with atomic_open(path, "wb") as stream:
            soundfile.write(stream, made, rate, format="FLAC", subtype="PCM_16")
        return str(path.resolve())

    with ThreadPoolExecutor(threads) as pool:
        paths = list(pool.map(copy, data.wav_scp))
    segments = None
    if data.has("segments"):
        segments = {f"{prefix}-{utt}": f"{prefix}-{rest}" for utt, rest in data.table("segments").items()}
    text = {f"{prefix}-{utt}": " ".join(words) for utt, words in data.text.items()} if data.has("text") else None
    made = write_datadir(target, {f"{prefix}-{recording}": path for recording, path in zip(data.wav_scp, paths, strict=True)}, text,
                         {f"{prefix}-{utt}": f"{prefix}-{speaker}" for utt, speaker in data.utt2spk.items()}, segments)
    write_table(made.path / "utt2uniq", {f"{prefix}-{utt}": data.original(utt) for utt in data.utt2spk})
    if data.has("utt2dur"):
        write_table(made.path / "utt2dur", {f"{prefix}-{utt}": seconds for utt, seconds in data.table("utt2dur").items()})
    return made


def _files(folder: str, option: str) -> list[Path]:
    found = list(find_audio(folder, (".wav", ".flac")).values()) if Path(folder).is_dir() else []
    if not found:
        raise UserError(f"--{option} {folder} has no audio (*.wav, *.flac), in it or below; give the folder of OpenSLR "
                        f"{28 if option == 'rirs' else 17}, or another.")
    return found


def _augmented(samples: np.ndarray, rate: int, rooms: Sequence[Path], noises: Sequence[Path], snrs: Sequence[float],
               rng: np.random.Generator) -> np.ndarray:
    """Samples of one channel, from -1 to 1, in a room and with a noise that are drawn."""
    from lhotse import Recording  # takes a second
    from lhotse.audio.mixer import AudioMixer
    from lhotse.augmentation import ReverbWithImpulseResponse

    made = samples[None].astype(np.float32)
    if rooms:
        room = Recording.from_file(rooms[int(rng.integers(len(rooms)))])
        _same_rate(str(room.sources[0].source), room.sampling_rate, rate)
        made = ReverbWithImpulseResponse(rir=room.to_dict(), rir_channels=[0])(made, rate)
    if noises:
        path = noises[int(rng.integers(len(noises)))]
        noise, found = read_channels(str(path))
        _same_rate(str(path), found, rate)
        begin = int(rng.integers(max(len(noise) - made.shape[1], 0) + 1))
        cut = np.resize(noise[begin:, 0], made.shape[1]) / INT16_SCALE  # a short one again and again
        mixer = AudioMixer(made, rate)
        mixer.add_to_mix(cut[None].astype(np.float32), snr=float(rng.choice(np.asarray(snrs))))
        made = mixer.mixed_audio
    return made[0] / max(1.0, float(np.abs(made).max()))


def _same_rate(path: str, found: int, rate: int) -> None:
    if found != rate:
        raise UserError(f"{path}: expected {rate} Hz, as the speech has, found {found} Hz; convert it (ffmpeg -i {quoted(path)} "
                        f"-ar {rate} FILE.wav).")
