"""The audio files below a folder, and which of them a row of a table is about."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import soundfile

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.audio import INT16_SCALE, AudioError, find_all_audio, read_channels
from pykaldist.io.corpora.table.formats import AUDIO_SUFFIXES
from pykaldist.io.corpora.table.rows import Row

HIGHEST_RATE = 16000  # Hz; what is recorded at higher ones is converted
SUFFIXES = (*AUDIO_SUFFIXES, *(suffix.upper() for suffix in AUDIO_SUFFIXES))


@dataclass
class Recording:
    """An audio file: its path, the name that it has in wav.scp, and what its header says."""

    path: Path
    name: str
    rate: int = 0  # Hz
    channels: int = 0
    seconds: float = 0.0


@dataclass
class Utterance:
    """A row with its recording; `whole` says whether the utterance is all of it."""

    row: Row
    recording: Recording
    name: str = ""
    whole: bool = True

    @property
    def seconds(self) -> float:
        return self.recording.seconds if self.whole else self.row.end - self.row.start


class Folder:
    """The audio below a folder, to be found by the names that tables have for it; `hidden` are files beside others of the same name.

    Raises UserError where there is no such folder, or no audio in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(f"--audio {path} is no folder; give the folder with the audio files.")
        found = find_all_audio(self.path, SUFFIXES)
        self.files = {key: paths[0] for key, paths in found.items()}
        self.hidden = [str(path) for paths in found.values() for path in paths[1:]]
        if not self.files:
            names = sorted(entry.name for entry in self.path.iterdir())
            there = f"found {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}" if names else "it is empty"
            raise UserError(f"{path} has no audio: looked for *{', *'.join(AUDIO_SUFFIXES)} in it and its folders, "
                            f"{there}; give --audio the folder with the audio files.")
        self.by_stem: dict[str, list[str]] = {}
        for key in self.files:
            self.by_stem.setdefault(PurePosixPath(key).name, []).append(key)
        self._keys = {path.absolute(): key for key, path in self.files.items()}

    def key(self, name: str, table: Path, by_name: bool = True) -> str | None:
        """The key in `files` of the audio that a table names: by its path here or beside the table, else by the end of its path.

        With `by_name` the file name alone is enough. None where there is no such file. Raises UserError where several files fit.
        """
        if not name:
            return None
        plain, stem = PurePosixPath(name.replace("\\", "/")), _stem(name)
        if str(stem) in self.files:
            return str(stem)
        for place in (plain, table.parent / plain):
            if (key := self._keys.get(Path(place).absolute())) is not None:
                return key
        candidates = self.by_stem.get(stem.name, [])
        parts = stem.parts
        for count in range(len(parts), 0 if by_name or len(parts) == 1 else 1, -1):
            fitting = [key for key in candidates if PurePosixPath(key).parts[-count:] == parts[-count:]]
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                raise UserError(f"{name!r} of {table} may be {' or '.join(sorted(fitting)[:3])} below {self.path}; give the table paths "
                                "from that folder on.")
        return None

    def name_of(self, key: str) -> str:
        """The name of a file without folders where no other file has it, else with them."""
        stem = PurePosixPath(key).name
        return safe(stem if len(self.by_stem[stem]) == 1 else key)


def _stem(name: str) -> PurePosixPath:
    """The path that a table has for an audio file, without suffix."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.with_suffix("") if path.suffix.lower() in AUDIO_SUFFIXES else path


def safe(name: str) -> str:
    """A name that may stand in Kaldi's tables: what is no letter, digit, mark, dot, dash or underline is one dash or underline."""
    return "".join("-" if c in "/\\" else c if c.isprintable() and not c.isspace() and c not in "|<>" else "_" for c in name)


@dataclass
class Matched:
    """Utterances with audio and words, and what is left out: a reason and the names."""

    utterances: list[Utterance]
    left_out: dict[str, list[str]] = field(default_factory=dict)


def match(folder: Folder, table: Path, rows: Sequence[Row]) -> Matched:
    """Find each row's audio, and read the headers of the files.

    Rows without audio or text, files without a row, and files that cannot be read are left out, each with its reason. Raises UserError
    where no row has audio, and where two utterances have one name, or are the same part of a file.
    """
    left: dict[str, list[str]] = {"transcripts without audio": [], "audio files without a transcript": [], "empty transcripts": [],
                                  "audio files that cannot be read": []}
    recordings: dict[str, Recording] = {}
    utterances: list[Utterance] = []
    named: set[str] = set()
    same_name = Counter(_stem(name).name for name in {row.audio for row in rows})
    for row in rows:
        key = folder.key(row.audio, table, same_name[_stem(row.audio).name] == 1)
        if key is None:
            left["transcripts without audio"].append(f"{row.audio or row.name} ({row.where})")
            continue
        named.add(key)
        if not row.text:
            left["empty transcripts"].append(f"{row.audio} ({row.where})")
            continue
        utterances.append(Utterance(row, recordings.setdefault(key, Recording(folder.files[key], folder.name_of(key)))))
    if not named:
        raise UserError(f"none of the {len(rows)} rows of {table} has audio below {folder.path}: looked for {rows[0].audio!r}, found "
                        f"{min(folder.files)!r} and {len(folder.files) - 1} more; give --audio the folder that the table is about.")
    left["audio files without a transcript"] = [str(path) for key, path in folder.files.items() if key not in named]
    left["audio files beside another of the same name"] = folder.hidden
    for key, recording in list(recordings.items()):
        try:
            _read_header(recording)
        except AudioError as error:
            del recordings[key]
            left["audio files that cannot be read"].append(str(error))
    readable = {id(recording) for recording in recordings.values()}
    kept = []
    behind = left["parts that begin behind the end of their audio"] = []
    for utterance in utterances:
        if id(utterance.recording) in readable:
            if utterance.row.start < utterance.recording.seconds:
                _name(utterance)
                kept.append(utterance)
            else:
                behind.append(f"{utterance.row.audio} ({utterance.row.where})")
    _refuse_doubles(kept)
    return Matched(kept, {reason: names for reason, names in left.items() if names})


def _name(utterance: Utterance) -> None:
    """See whether an utterance is the whole of its recording, and name it."""
    row, seconds = utterance.row, utterance.recording.seconds
    utterance.whole = row.start <= 0.01 and (row.end == -1 or row.end >= seconds - 0.05)
    if not utterance.whole:
        row.end = seconds if row.end == -1 else min(row.end, seconds)
    part = "" if utterance.whole else f"-{round(1000 * row.start):07d}-{round(1000 * row.end):07d}"
    utterance.name = safe(row.name) if row.name else utterance.recording.name + part


def _refuse_doubles(utterances: Sequence[Utterance]) -> None:
    seen: dict[tuple[str, ...], Utterance] = {}
    doubles: list[tuple[str, Utterance, Utterance]] = []
    for utterance in utterances:
        row = utterance.row
        part = (utterance.recording.name, str(row.start), str(row.end)) if not utterance.whole else (utterance.recording.name, "whole")
        for name, key in ((utterance.name, ("name", row.speaker, utterance.name)), (row.audio, ("part", *part))):
            if (other := seen.setdefault(key, utterance)) is not utterance:
                doubles.append((name, other, utterance))
                break
    if doubles:
        name, first, second = doubles[0]
        raise UserError(f"rows that the table has twice: {len(doubles)}, such as {name} ({first.row.where}, and "
                        f"{second.row.where.rsplit(', ', 1)[-1]}); keep one of each.")


def _read_header(recording: Recording) -> None:
    try:
        info = soundfile.info(str(recording.path))
        recording.rate, recording.channels = info.samplerate, info.channels
        recording.seconds = info.frames / info.samplerate if 0 < info.frames < 2**62 else 0.0  # 2^63 - 1: the header does not know
    except (soundfile.LibsndfileError, RuntimeError):
        pass  # the next lines say what is wrong
    if not recording.seconds:
        samples, recording.rate = read_channels(str(recording.path))
        recording.channels, recording.seconds = samples.shape[1], len(samples) / recording.rate


def rate_of(recordings: Sequence[Recording]) -> int:
    """The sampling rate of the features in Hz: that of most of the speech, 16 kHz where it is higher."""
    seconds: dict[int, float] = {}
    for recording in recordings:
        seconds[recording.rate] = seconds.get(recording.rate, 0.0) + recording.seconds
    return min(max(seconds, key=lambda rate: (seconds[rate], rate)), HIGHEST_RATE)


def fits(recording: Recording, rate: int) -> bool:
    """Whether a file can be read as it is: one channel at `rate` Hz."""
    return recording.rate == rate and recording.channels == 1


def convert(recording: Recording, rate: int, folder: Path) -> Path:
    """Write a file as FLAC of one channel, the mean of all, at `rate` Hz; raises AudioError where it cannot be read."""
    from scipy.signal import resample_poly

    samples, found = read_channels(str(recording.path))
    mono = samples.mean(axis=1) / INT16_SCALE
    if found != rate:
        divisor = int(np.gcd(found, rate))
        mono = resample_poly(mono, rate // divisor, found // divisor)
    target = folder / f"{recording.name}.flac"
    with atomic_open(target, "wb") as stream:
        soundfile.write(stream, np.clip(mono, -1.0, 1.0), rate, format="FLAC", subtype="PCM_16")
    return target
