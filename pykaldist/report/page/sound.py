"""Audio of utterances for the page: Ogg Opus or wav, as text in the page, the worst utterances first, as much as there is room for."""

from __future__ import annotations

import base64
import io
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.audio import INT16_SCALE, AudioError, read_audio, read_utterances
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress

FORMS: dict[str, dict[str, Any]] = {
    # libsndfile's level of compression stands for a bit rate: this one for 21 kbit/s.
    "opus": {"format": "OGG", "subtype": "OPUS", "compression_level": 0.94},
    "wav": {"format": "WAV", "subtype": "PCM_16"},
}
TYPES = {"opus": "audio/ogg", "wav": "audio/wav"}
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)
BYTES_PER_SECOND = {"opus": 3000, "wav": 20000}  # in the page, at the least
BESIDE = 24  # bytes of an utterance's number, length and punctuation in the page


@dataclass
class Sound:
    """The audio of an utterance: a data URI, its seconds, and the sampling rate in Hz that it was recorded with."""

    uri: str
    seconds: float
    rate: int


def encoded(samples: np.ndarray, rate: int, form: str) -> Sound:
    """Encode samples (16-bit scale); Opus has sampling rates of its own, so that others are changed to the next higher one."""
    seconds, recorded = len(samples) / rate, rate
    audio = samples / np.float32(INT16_SCALE)
    if form == "opus" and rate not in OPUS_RATES:
        from scipy.signal import resample_poly

        above = next((known for known in OPUS_RATES if known > rate), OPUS_RATES[-1])
        audio, rate = np.asarray(resample_poly(audio, above, rate), np.float32), above
    stream = io.BytesIO()
    soundfile.write(stream, np.clip(audio, -1, 1), rate, **FORMS[form])
    return Sound(f"data:{TYPES[form]};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}", seconds, recorded)


def sounds(data: DataDir, utts: Sequence[str], form: str, room: int, seconds: Mapping[str, float]) -> dict[str, Sound]:
    """The audio of as many utterances as fill `room` bytes, the first of `utts` before the others.

    `seconds` are their lengths, as far as they are known. An utterance whose audio cannot be used is left out, with a warning.
    """
    likely = set(_within(utts, {utt: BYTES_PER_SECOND[form] * length for utt, length in seconds.items()}, room))
    made: dict[str, Sound] = {}
    problem = ""
    in_order = [utt for utt in data.utterances() if utt in likely]  # those of a recording follow each other
    for utt, rate, samples in progress(_samples(data, in_order), "audio", total=len(in_order), unit="utt"):
        if isinstance(samples, AudioError):
            problem = problem or f"{utt}: {samples}"
        else:
            made[utt] = encoded(samples, rate, form)
    if problem:
        print(f"WARNING: utterances of {data.path} without audio in the page; the first: {problem}", file=sys.stderr)
    kept = _within([utt for utt in utts if utt in made], {utt: len(one.uri) + BESIDE for utt, one in made.items()}, room)
    return {utt: made[utt] for utt in kept}


def _within(utts: Sequence[str], sizes: Mapping[str, float], room: float) -> list[str]:
    """The first of `utts` whose sizes fit together; those without a size count nothing."""
    ends = itertools.accumulate(sizes.get(utt, 0) for utt in utts)
    return [utt for utt, end in zip(utts, ends, strict=True) if end <= room]


def _samples(data: DataDir, utts: Sequence[str]) -> Iterator[tuple[str, int, np.ndarray | AudioError]]:
    """Iterate over utterances as (name, sampling rate in Hz, samples or the AudioError); all have the rate of the first."""
    if not utts:
        return
    recording = data.segments[utts[0]][0] if data.has("segments") else utts[0]
    if recording not in data.wav_scp:
        raise UserError(f"{data.path}/wav.scp has no recording {recording}; run utils/fix_data_dir.sh {data.path}.")
    try:
        _, rate = read_audio(data.wav_scp[recording], pipes=True)
    except AudioError as error:
        yield utts[0], 0, error
        return
    for utt, samples in read_utterances(data, utts, rate):
        yield utt, rate, samples
