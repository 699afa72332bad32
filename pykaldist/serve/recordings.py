"""Recordings of somebody's own: their samples at a model's rate, and a data directory of them with features."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError, quoted
from pykaldist.feats.extract import KINDS, FeatureOptions
from pykaldist.feats.make import collect_parts, extract_part, speaker_cmvn
from pykaldist.io.audio import INT16_SCALE, AudioError, decode_audio, read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir

MOST_UNPACKED_MB = 256.0  # of an upload


def feature_options(kind: str, config: str) -> FeatureOptions:
    """The options of features of a kind, from their file."""
    return read_conf(KINDS[kind], config)


def samples_of(path: str, channel: int, rate: int) -> np.ndarray:
    """The samples of a recording at `rate` Hz; raises UserError where it cannot be read, or has a lower rate."""
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; give the paths of recordings.")
    try:
        samples, found = read_audio(path, channel)
    except AudioError as error:
        raise UserError(str(error).replace("check the path in wav.scp", "check the path")) from error
    check_rate(path, found, rate)
    return resampled(samples, found, rate)


def samples_of_upload(content: bytes, name: str, rate: int, longest: float) -> np.ndarray:
    """The samples at `rate` Hz of a file's content, channels mixed.

    Raises UserError where it is damaged, longer than `longest` seconds, or takes too much memory, which is known before its samples are
    read: a few bytes may stand for hours.
    """
    import soundfile

    seconds = megabytes = 0.0
    with suppress(soundfile.LibsndfileError, RuntimeError, ValueError), soundfile.SoundFile(io.BytesIO(content)) as sound:
        seconds, megabytes = sound.frames / sound.samplerate, sound.frames * sound.channels * 4 / 1e6
        check_rate(name, sound.samplerate, rate)
    if seconds > longest:
        raise UserError(f"{name} has {seconds / 60:.0f} minutes, at most {longest / 60:g} are taken; cut it.")
    if megabytes > MOST_UNPACKED_MB:
        raise UserError(f"{name} takes {megabytes:.0f} MB of memory unpacked, at most {MOST_UNPACKED_MB:g} are taken; make it mono, at "
                        f"{rate} Hz, or cut it (ffmpeg -i {quoted(name)} -ac 1 -ar {rate} FILE.wav).")
    samples, found = decode_audio(content, name)
    return resampled(samples.mean(1), found, rate)


def check_rate(name: str, found: int, rate: int) -> None:
    """Raise UserError where a recording has a lower sampling rate than the model's."""
    if found < rate:
        raise UserError(f"{name}: expected {rate} Hz or more, found {found} Hz; the model was trained on {rate} Hz, and only a higher "
                        "rate can be taken to it.")


def resampled(samples: np.ndarray, found: int, rate: int) -> np.ndarray:
    """Resample samples at `found` Hz to `rate` Hz, by a polyphase filter."""
    from scipy.signal import resample_poly

    ratio = Fraction(rate, found)
    return samples if ratio == 1 else np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator), np.float32)


class ResampleStream:
    """Samples that still come, on their way to a lower rate; together they are those of `resampled` on the whole.

    A sample of the result needs `reach` samples before and behind it. Blocks begin at multiples of the ratio's denominator, so that each
    is filtered as in the whole.
    """

    def __init__(self, found: int, rate: int) -> None:
        ratio = Fraction(rate, found)
        self._up, self._down = ratio.numerator, ratio.denominator
        filter_reach = 10 * max(self._up, self._down) // self._up + 1  # scipy's filter has 10 max(up, down) taps on each side
        self._reach = -(-filter_reach // self._down) * self._down
        self._kept = np.zeros(0, np.float32)  # from `reach` samples, or all, before the next block on
        self._before = 0  # how many those are

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """Take the next samples; returns those of the result that they complete."""
        if self._down == 1:
            return samples
        self._kept = np.concatenate([self._kept, np.asarray(samples, np.float32)])
        block = (len(self._kept) - self._before - self._reach) // self._down * self._down
        return self._take(block) if block > 0 else np.zeros(0, np.float32)

    def finish(self) -> np.ndarray:
        """End the samples; returns the rest of the result."""
        return self._take(len(self._kept) - self._before) if self._down > 1 and len(self._kept) > self._before else np.zeros(0, np.float32)

    def _take(self, block: int) -> np.ndarray:
        from scipy.signal import resample_poly

        end = min(self._before + block + self._reach, len(self._kept))
        made = np.asarray(resample_poly(self._kept[:end], self._up, self._down), np.float32)
        first = self._before * self._up // self._down
        ours = made[first:first + -(-block * self._up // self._down)]
        at = self._before + block
        keep = min(at, self._reach)
        self._kept, self._before = self._kept[at - keep:], keep
        return ours


def make_features(samples: Iterable[tuple[str, np.ndarray]], speakers: Mapping[str, str], work: Path, kind: str, config: str,
                  text: dict[str, str] | None = None) -> DataDir:
    """Make the data directory `work`/data of utterances (name, samples at the model's rate), with features and CMVN statistics."""
    import soundfile

    rate = int(feature_options(kind, config).sample_frequency)
    (work / "audio").mkdir()
    wav: dict[str, str] = {}
    for number, (utt, one) in enumerate(samples):
        wav[utt] = str(work / "audio" / f"{number:06d}.wav")
        soundfile.write(wav[utt], one / INT16_SCALE, rate, subtype="FLOAT")
    data = write_datadir(work / "data", wav, text, dict(speakers))
    extract_part(data, work / "feats", config, kind, 1, 1)
    collect_parts(data, work / "feats", kind, 1)
    speaker_cmvn(data, work / "feats")
    return DataDir(data.path)
