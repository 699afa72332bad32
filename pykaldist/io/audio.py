"""Reading speech: wav, flac, NIST sphere and whatever else libsndfile reads, from files, pipes and segments.

Samples come in the scale of 16-bit integers (-32768 to 32767) as float32, as Kaldi's features expect them. Entries of `wav.scp` that end
in `|` are shell commands. They are run, for the user has named the data directory; nothing else that is read is ever run.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile

from pykaldist.errors import UserError, named, of_the_machine, quoted
from pykaldist.io import flac, sphere
from pykaldist.io.datadir import DataDir, pipe_command

INT16_SCALE = 32768.0
MAX_OVERSHOOT_S = 0.5  # a segment may end so much after its recording, as in Kaldi's extract-segments
# What programs write into a wav header when they do not know how much they will pipe.
_UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0x7FFFF000, 0x80000000, 0xFFFFFFFF)


class AudioError(UserError):
    """One recording or utterance that cannot be used; a stage may go on without a few of them."""


class NotAudioError(AudioError):
    """A file that is none by its name, which has no suffix, and its content, which is text: a README beside the audio, say."""


def read_audio(source: str, channel: int = -1, pipes: bool = False) -> tuple[np.ndarray, int]:
    """Samples (float32, 16-bit scale) and sampling rate in Hz of a file; with `pipes`, `command |` is run, and its output read.

    `channel` picks one of several channels, from 0; -1 expects mono. Raises AudioError for a file that is missing, empty,
    truncated, of an unknown format, or holds values that are no numbers.
    """
    samples, rate = read_channels(source, pipes)
    channels = samples.shape[1]
    if channel >= channels or (channel < 0 and channels > 1):
        wish = "one channel" if channel < 0 else f"channel {channel}"
        raise AudioError(f"{source}: expected {wish}, found {channels} channels; choose one with --channel 0 to {channels - 1}.")
    return np.ascontiguousarray(samples[:, max(channel, 0)]), rate


def read_channels(source: str, pipes: bool = False) -> tuple[np.ndarray, int]:
    """Samples of all channels (float32, 16-bit scale, [samples, channels]) and sampling rate in Hz of a file, or of a pipe's output.

    Raises AudioError as `read_audio` does.
    """
    command = pipe_command(source) if pipes else None
    content = _file_content(source) if command is None else _pipe_output(command)
    try:
        return decode_audio(content, source, command is not None)
    except AudioError as error:
        if content and command is None and not Path(source).suffix and _is_text(content):
            raise NotAudioError(f"{source} is text, not audio; take it out of wav.scp.") from error
        raise


def decode_audio(content: bytes, source: str, piped: bool = False) -> tuple[np.ndarray, int]:
    """The samples of all channels in a file's content, and the sampling rate; `source` is its name in messages."""
    if not content:
        raise AudioError(f"{source} is empty; fetch the audio again.")
    content = _complete(source, content, piped)
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as sound:
            declared, rate = sound.frames, sound.samplerate
            samples = sound.read(dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError, ValueError, MemoryError) as error:  # the last two for a length that cannot be
        raise AudioError(f"{source} is damaged or no audio format that libsndfile reads ({str(error).rsplit(': ', 1)[-1].rstrip('.')}); "
                         f"convert it to wav or flac (ffmpeg -i {quoted(source)} FILE.wav).") from error
    if len(samples) < declared < 2**62:  # libsndfile's mark for an unknown length is 2^63 - 1
        raise AudioError(f"{source} is truncated: {declared} samples expected, {len(samples)} found; fetch it again.")
    if len(samples) == 0:
        raise AudioError(f"{source} holds no samples; fetch the audio again.")
    if not np.isfinite(samples).all():
        row = int(np.flatnonzero(~np.isfinite(samples).all(axis=1))[0])
        raise AudioError(f"{source}: sample {row} is no finite number; convert the audio again.")
    return samples * np.float32(INT16_SCALE), rate


def _is_text(content: bytes) -> bool:
    """Whether a file's content is text: UTF-8 without control characters but for the ends of lines and tabulators."""
    try:
        return all(character.isprintable() or character in "\n\r\t\f" for character in content.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _file_content(path: str) -> bytes:
    try:
        with named(path):
            return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if of_the_machine(error):
            raise  # the utterance is sound, and must not be left out
        raise AudioError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}); "
                         "check the path in wav.scp.") from error


def _pipe_output(command: str) -> bytes:
    try:  # without a process
        if (words := sphere.own_command(command)) is not None:
            return sphere.convert(words)[0]
        if (words := flac.own_command(command)) is not None:
            return flac.convert(words)
    except UserError as error:
        raise AudioError(str(error)) from error
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise AudioError(f"command of wav.scp `{command}` ended with status {done.returncode}"
                         + (f" ({said[-1]})" if said else "") + "; run it by hand.")
    return done.stdout


def _complete(source: str, content: bytes, piped: bool) -> bytes:
    """The bytes of an audio file, checked to be complete; a piped wav whose header did not know its length gets one.

    libsndfile takes what is there of a truncated wav or sphere file, but their headers tell how much there should be.
    """
    expected = found = 0
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        position = 12
        while position + 8 <= len(content):
            name, size = struct.unpack_from("<4sI", content, position)
            position += 8
            if name == b"data":
                expected, found = size, len(content) - position
                if piped and size in _UNKNOWN_SIZES:
                    return content[: position - 4] + struct.pack("<I", found) + content[position:]
                if size:
                    _check_chunks(source, content, position + size + size % 2)
                break
            position += size + size % 2
    elif content.startswith(b"NIST_1A"):
        try:
            header = sphere.parse_header(content[:4096], len(content), source)
        except UserError as error:
            raise AudioError(str(error)) from error
        if header.shortened:
            raise AudioError(f"{source} is compressed with shorten, which is not read here; "
                             "put `sph2pipe -f wav FILE |` in wav.scp.")
    if found < expected:
        raise AudioError(f"{source} is truncated: {expected} bytes of samples expected, {found} found; fetch it again.")
    return content


def _check_chunks(source: str, content: bytes, position: int) -> None:
    """Raise AudioError where something but chunks, or zeros, stands behind the samples of a wav file: its header says too few of them."""
    while content[position:].strip(b"\0"):
        name, size = content[position : position + 4], content[position + 4 : position + 8]
        if not name.isascii() or not name.decode().isprintable() or len(size) < 4:
            raise AudioError(f"{source} is damaged: its header says fewer samples than there are, or something else stands behind them (at "
                             f"byte {position}); fetch it again.")
        position += 8 + int.from_bytes(size, "little") + size[0] % 2


def read_utterances(data: DataDir, utts: Sequence[str], rate: int, channel: int = -1) -> Iterator[tuple[str, np.ndarray | AudioError]]:
    """Iterate over utterances as (name, samples at `rate` Hz), or (name, the AudioError that says why it has no samples).

    Utterances of one recording that follow each other read it once.
    """
    segments = data.segments if data.has("segments") else None
    recording, audio = "", np.empty(0, dtype=np.float32)
    problem: AudioError | None = None
    for utt in utts:
        wanted = segments[utt][0] if segments is not None else utt
        if wanted != recording:
            recording, problem = wanted, None
            try:
                audio = _read_recording(data, wanted, rate, channel)
            except AudioError as error:
                problem = error
        if problem is not None:
            yield utt, problem
            continue
        try:
            yield utt, audio if segments is None else cut_segment(audio, rate, utt, *segments[utt])
        except AudioError as error:
            yield utt, error


def _read_recording(data: DataDir, recording: str, rate: int, channel: int) -> np.ndarray:
    if recording not in data.wav_scp:
        raise AudioError(f"{data.path}/wav.scp has no recording {recording}; run utils/fix_data_dir.sh {data.path}.")
    source = data.wav_scp[recording]
    if not source:
        raise AudioError(f"{data.path}/wav.scp, {recording}: no file is named; correct the line.")
    audio, found = read_audio(source, channel, pipes=True)
    if found != rate:
        raise AudioError(f"{source}: expected {rate} Hz, found {found} Hz; set --sample-frequency={found} or resample the audio.")
    speed, volume = data.reco2speed.get(recording, 1.0), data.reco2vol.get(recording, 1.0)
    audio = audio if speed == 1.0 else change_speed(audio, speed)
    return audio if volume == 1.0 else audio * np.float32(volume)


def change_speed(audio: np.ndarray, factor: float) -> np.ndarray:
    """`audio` played `factor` times as fast, tempo and pitch: resampled by a polyphase filter to 1 / factor of its length."""
    from scipy.signal import resample_poly

    ratio = Fraction(factor).limit_denominator(100)
    return np.asarray(resample_poly(audio, ratio.denominator, ratio.numerator), dtype=np.float32)


def cut_segment(audio: np.ndarray, rate: int, utt: str, recording: str, start: float, end: float,
                max_overshoot: float = MAX_OVERSHOOT_S) -> np.ndarray:
    """The samples of a segment, from `start` to `end` seconds (-1: to the end); raises AudioError where it is not in the recording."""
    duration = len(audio) / rate
    if start >= duration or end > duration + max_overshoot:
        raise AudioError(f"segment {utt}: {start:g} to {end:g} s lies outside of recording {recording}, which has {duration:g} s; "
                         "correct segments.")
    return audio[round(start * rate) : len(audio) if end == -1 else min(len(audio), round(end * rate))]


def find_audio(folder: str | os.PathLike[str], suffixes: Sequence[str] = (".wav", ".flac", ".sph")) -> dict[str, Path]:
    """Every audio file below `folder`: its path without suffix, relative to `folder` -> its path; sorted.

    Where one stem has several files the first of `suffixes` counts.
    """
    return {stem: paths[0] for stem, paths in find_all_audio(folder, suffixes).items()}


def find_all_audio(folder: str | os.PathLike[str], suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Every audio file below `folder`, likewise; all files of one stem, in the order of `suffixes`."""
    found: dict[str, list[Path]] = {}
    for suffix in suffixes:
        for path in sorted(Path(folder).rglob(f"*{suffix}")):
            found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), []).append(path)
    return dict(sorted(found.items()))
