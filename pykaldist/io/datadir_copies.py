"""Data directories made of others: renamed, put together, divided, with other speakers, without segments."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from pykaldist.errors import UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import PER_RECORDING, PER_SPEAKER, PER_UTTERANCE, TABLES, DataDir, restrict, write_spk2utt, write_table
from pykaldist.io.durations import frame_shift_of
from pykaldist.io.tables import read_lines, read_map
from pykaldist.io.text_tools.lists import equal_parts

BESIDE = ("stm", "glm", "frame_shift")  # files that are no tables of a line an utterance; they stay as they are
_FACTORS = ("reco2speed", "reco2vol")  # tables whose missing entries say that nothing is changed


def _emptied(target: str | os.PathLike[str], *sources: str | os.PathLike[str]) -> Path:
    """The folder of a new data directory, without tables of an earlier one."""
    path = Path(target)
    for source in sources:
        if path.resolve() == Path(source).resolve():
            raise UserError(f"{target} is both source and target; write to another directory.")
    path.mkdir(parents=True, exist_ok=True)
    for name in (*TABLES, *BESIDE):
        (path / name).unlink(missing_ok=True)
    return path


def copy_data_dir(source: str | os.PathLike[str], target: str | os.PathLike[str], new_utt: Callable[[str], str] = str,
                  new_spk: Callable[[str], str] = str) -> DataDir:
    """Copy a data directory; utterances and speakers get the names that the functions give them.

    Recordings are renamed where they are utterances. Where names change, `utt2uniq` has the old ones. Raises UserError where source and
    target are one.
    """
    data = DataDir(source)
    path = _emptied(target, source)
    recordings_are_utterances = not data.has("segments")
    for name in TABLES:
        if name == "spk2utt" or not data.has(name):
            continue
        if name in PER_SPEAKER:
            rename = new_spk
        elif name in PER_UTTERANCE or recordings_are_utterances:
            rename = new_utt
        else:
            rename = str
        table = {rename(key): value for key, value in data.table(name).items()}
        write_table(path / name, {utt: new_spk(spk) for utt, spk in table.items()} if name == "utt2spk" else table)
    if not data.has("utt2uniq") and any(new_utt(utt) != utt for utt in data.utt2spk):
        write_table(path / "utt2uniq", {new_utt(utt): utt for utt in data.utt2spk})
    return _finished(data, path)


def _finished(data: DataDir, path: Path) -> DataDir:
    """Copy what is the same of every part of a data directory, and write spk2utt."""
    for name in BESIDE:
        if data.has(name):
            copy_file(data.path / name, path / name)
    made = DataDir(path)
    write_spk2utt(made)
    return made


def combine_data(target: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]], extra_files: Sequence[str] = ()) -> list[str]:
    """Write a data directory with the utterances of several; returns a line for each table that could not be put together.

    A table that not all have is left out, but for those that can be completed: `utt2uniq`, `segments` (an utterance is its recording),
    reco2speed and reco2vol. So is cmvn.scp where a speaker is in several, for it is of a part of the speaker's utterances then.
    Raises UserError for an utterance or recording that means different things in two of them.
    """
    parts = [DataDir(source) for source in sources]
    path = _emptied(target, *sources)
    said: list[str] = []
    for name in dict.fromkeys((*TABLES, *BESIDE, *extra_files)):
        having = [part for part in parts if part.has(name)]
        if name == "spk2utt" or not having:
            continue
        tables: list[dict[str, str]] = []
        for part in parts:
            if part.has(name):
                tables.append(part.table(name) if name not in BESIDE else {})
            elif name == "utt2uniq":
                tables.append({utt: utt for utt in part.utt2spk})
            elif name == "segments":
                tables.append({utt: f"{utt} 0 -1" for utt in part.utt2spk})
            elif name in _FACTORS:
                tables.append({})
        if len(tables) < len(parts):
            said.append(f"left out {name}, which {', '.join(str(part.path) for part in parts if not part.has(name))} does not have")
        elif name in BESIDE:
            if len({(part.path / name).read_bytes() for part in parts}) > 1:
                if name == "frame_shift":
                    raise UserError(f"{', '.join(map(str, sources))}: their features have different frame shifts (file frame_shift).")
                said.append(f"left out {name}, which differs")
            else:
                copy_file(parts[0].path / name, path / name)
        elif name == "cmvn.scp" and len({spk for part in parts for spk in part.spk2utt}) < sum(len(part.spk2utt) for part in parts):
            said.append("left out cmvn.scp, for some speakers are in several; run steps/compute_cmvn_stats.sh")
        else:
            write_table(path / name, _together(name, tables, parts))
    write_spk2utt(DataDir(path))
    return said


def _together(name: str, tables: list[dict[str, str]], parts: list[DataDir]) -> dict[str, str]:
    whole: dict[str, str] = {}
    for table, part in zip(tables, parts, strict=True):
        for key, value in table.items():
            if whole.setdefault(key, value) != value:
                raise UserError(f"{part.path / name}, {key}: found {value!r}, and {whole[key]!r} in another directory; rename one with "
                                "utils/copy_data_dir.sh --utt-prefix.")
    return whole


def split_speakers(data: DataDir, percent: float = 10.0, seed: int = 777, listed: str | os.PathLike[str] | None = None) -> tuple[
        list[str], list[str]]:
    """The utterances for training and for cross-validation, with no speaker in both.

    The second are of so many percent of the speakers, drawn at random, one at least; or of those in the first column of the file `listed`.
    Raises UserError where one of the two would be empty.
    """
    speakers = list(data.spk2utt)
    if listed is not None:
        held_out = {line.split()[0] for line in read_lines(listed) if line.split()} & set(speakers)
    else:
        Random(seed).shuffle(speakers)
        held_out = set(speakers[:max(1, int(percent * len(speakers) / 100))])
    if not held_out or len(held_out) == len(speakers):
        raise UserError(f"{data.path} has {len(speakers)} speakers, of which {len(held_out)} would be held out; both parts need some.")
    table = list(data.utt2spk.items())
    return ([utt for utt, speaker in table if speaker not in held_out], [utt for utt, speaker in table if speaker in held_out])


def regroup_speakers(data: DataDir, target: str | os.PathLike[str], most_utts: int = -1, most_seconds: float = -1.0,
                     durations: dict[str, float] | None = None, keep_speakers: bool = True) -> DataDir:
    """Copy a data directory with speakers of at most so many utterances and seconds, each of utterances that follow each other.

    A speaker is divided into `<speaker>-1`, ...; without `keep_speakers` all utterances are divided, into `speaker-1`, ... The new one
    has no cmvn.scp and spk2gender. `durations` (utterance -> seconds) are needed with `most_seconds`.
    """
    groups = data.spk2utt if keep_speakers else {"speaker": sorted(data.utt2spk)}
    utt2spk: dict[str, str] = {}
    for speaker, utts in groups.items():
        parts: list[list[str]] = [[]]
        seconds = 0.0
        for utt in utts:
            length = durations[utt] if durations else 0.0
            full = 0 < most_utts <= len(parts[-1]) or (most_seconds > 0 and seconds + length > most_seconds)
            if parts[-1] and full:
                parts.append([])
                seconds = 0.0
            parts[-1].append(utt)
            seconds += length
        digits = len(str(len(parts)))
        utt2spk.update({utt: f"{speaker}-{i:0{digits}d}" for i, part in enumerate(parts, 1) for utt in part})
    made = copy_data_dir(data.path, target)
    for name in ("cmvn.scp", "spk2gender"):
        (made.path / name).unlink(missing_ok=True)
    write_table(made.path / "utt2spk", utt2spk)
    made = DataDir(target)
    write_spk2utt(made)
    return made


def split_data(data: DataDir, number: int, per_utt: bool = False) -> Path:
    """Divide a data directory into `split<number>/1`, `2`, ..., or `split<number>utt/1` with `per_utt`, which may divide speakers.

    What is there and newer than all tables stays. Returns the folder. Raises UserError where there are too few speakers or utterances.
    """
    folder = data.path / f"split{number}{'utt' if per_utt else ''}"
    groups = [[utt] for utt in data.utterances()] if per_utt else list(data.spk2utt.values())
    if not 1 <= number <= len(groups):
        raise UserError(f"{data.path} has {len(groups)} {'utterances' if per_utt else 'speakers'}, which cannot be divided into {number} "
                        f"parts; use fewer jobs{'' if per_utt else ', or --per-utt'}.")
    tables = [name for name in TABLES if data.has(name) and name != "spk2utt"]
    last = folder / str(number) / "spk2utt"  # which is written last
    if last.is_file():
        made = last.stat().st_mtime
        if all((folder / "1" / name).is_file() and (data.path / name).stat().st_mtime < made for name in tables):
            return folder
    ends = equal_parts([len(group) for group in groups], number)
    for job in range(1, number + 1):
        restrict(data, [utt for group in groups[ends[job - 1]:ends[job]] for utt in group], folder / str(job))
    return folder


def without_repeats(data: DataDir, most: int, seed: int = 0) -> list[str]:
    """Utterances of which at most `most` have the same transcript; which of several stay is drawn at random."""
    if most < 2:
        raise UserError(f"expected at least 2 utterances of a transcript, found {most}.")
    saying: dict[tuple[str, ...], list[str]] = {}
    for utt, words in data.text.items():
        saying.setdefault(tuple(words), []).append(utt)
    random = Random(seed)
    return sorted(utt for utts in saying.values() for utt in (random.sample(utts, most) if len(utts) > most else utts))


def whole_recordings(data: DataDir, target: str | os.PathLike[str]) -> DataDir:
    """Copy a data directory without its segments: each recording is an utterance, and a speaker; its text is all that is said in it."""
    if not data.has("segments"):
        return copy_data_dir(data.path, target)
    order: dict[str, list[tuple[float, str]]] = {}
    for utt, (recording, start, _) in data.segments.items():
        order.setdefault(recording, []).append((start, utt))
    path = _emptied(target, data.path)
    write_table(path / "utt2spk", {recording: recording for recording in order})
    for name in PER_RECORDING:
        if data.has(name):
            write_table(path / name, {key: value for key, value in data.table(name).items() if key in order})
    if data.has("text"):
        text = data.text
        write_table(path / "text", {recording: " ".join(word for _, utt in sorted(utts) for word in text.get(utt, []))
                                    for recording, utts in order.items()})
    for name in BESIDE:
        if data.has(name) and name != "frame_shift":
            copy_file(data.path / name, path / name)
    made = DataDir(path)
    write_spk2utt(made)
    return made


def extract_wav_segments(data: DataDir, target: str | os.PathLike[str]) -> DataDir:
    """Copy a data directory with a wav file of its own for each utterance, in `target`/data, and so without segments.

    Speeds and volumes that tables ask for are in the files. Raises UserError where there are no segments, and for audio that cannot be
    used.
    """
    import numpy as np
    import soundfile

    from pykaldist.io.audio import AudioError, read_audio, read_utterances

    if not data.has("segments"):
        raise UserError(f"{data.path} has no segments; its utterances are recordings already.")
    names = [utt for utt, _ in sorted(data.segments.items(), key=lambda item: item[1][0])]  # utterances of one recording in a row
    _, rate = read_audio(data.wav_scp.get(data.segments[names[0]][0], ""), pipes=True)
    made = copy_data_dir(data.path, target)
    for name in ("segments", *PER_RECORDING):
        (made.path / name).unlink(missing_ok=True)
    folder = made.path / "data"
    folder.mkdir(exist_ok=True)
    for utt, samples in read_utterances(data, names, rate):
        if isinstance(samples, AudioError):
            raise samples
        soundfile.write(folder / f"{utt}.wav", np.clip(np.rint(samples), -32768, 32767).astype(np.int16), rate, "PCM_16")
    write_table(made.path / "wav.scp", {utt: f"{folder}/{utt}.wav" for utt in data.segments})
    return DataDir(made.path)


def subsegment_data_dir(data: DataDir, segments: dict[str, tuple[str, float, float]], target: str | os.PathLike[str],
                        text: dict[str, str] | None = None, end_padding: float = 0.0) -> DataDir:
    """Write a data directory of parts of utterances: `segments` has new utterance -> (old one, begin and end in seconds within it).

    Features are rows of the old ones. `end_padding` is added to the ends of segments, not of features. The text is `text`, without which
    there is none; there is no cmvn.scp, for speakers may say less. Raises UserError where there are no segments, and for a part of an
    utterance that is not there, or that ends before it begins.
    """
    if not segments:
        raise UserError(f"there are no segments of {data.path} to make a data directory of; see what has written them.")
    old = data.segments if data.has("segments") else {utt: (utt, 0.0, -1.0) for utt in data.utt2spk}
    for name, (utt, begin, end) in segments.items():
        if utt not in data.utt2spk or not 0 <= begin < end:
            raise UserError(f"segment {name}: expected a part of an utterance of {data.path}, found {utt} from {begin:g} to {end:g} s.")
    shift = frame_shift_of(data) if data.has("feats.scp") else 0.0
    path = _emptied(target, data.path)
    tables = {name: data.table(name) for name in PER_UTTERANCE if data.has(name) and name not in (
        "segments", "text", "feats.scp", "vad.scp", "utt2dur", "utt2num_frames")}
    for name, table in tables.items():
        write_table(path / name, {new: table[utt] for new, (utt, _, _) in segments.items() if utt in table})
    write_table(path / "segments", {new: f"{old[utt][0]} {old[utt][1] + begin:.3f} {old[utt][1] + end + end_padding:.3f}"
                                    for new, (utt, begin, end) in segments.items()})
    if data.has("feats.scp"):
        feats = data.table("feats.scp")
        rows = {new: (utt, round(begin / shift), round(end / shift)) for new, (utt, begin, end) in segments.items() if utt in feats}
        write_table(path / "feats.scp", {new: _rows_of(feats[utt], first, end, f"{data.path}/feats.scp, {utt}")
                                         for new, (utt, first, end) in rows.items()})
    if text is not None:
        write_table(path / "text", text)
    used = {old[utt][0] for utt, _, _ in segments.values()}
    for name in PER_RECORDING:
        if data.has(name):
            write_table(path / name, {key: value for key, value in data.table(name).items() if key in used})
    if data.has("spk2gender"):
        write_table(path / "spk2gender", data.table("spk2gender"))
    return _finished(data, path)


def _rows_of(where: str, first: int, end: int, what: str) -> str:
    """The place of rows `first` to `end`, that one not among them, of the matrix at `where`, which may be a part of another."""
    location, _, given = where.removesuffix("]").partition("[")
    rows, _, columns = given.partition(",")
    start, _, last = rows.partition(":")
    begin = int(start or 0)
    if end <= first or (last and begin + end - 1 > int(last)):
        raise UserError(f"{what}: rows {first} to {end - 1} are not within {where}; make the segments again.")
    return f"{location}[{begin + first}:{begin + end - 1}{f',{columns}' if columns else ''}]"


def limit_feature_dim(data: DataDir, target: str | os.PathLike[str], columns: str) -> DataDir:
    """Copy a data directory with only some columns of its features, `first:last` from 0; it has no cmvn.scp."""
    first, colon, last = columns.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(f"expected columns as 0:39, found {columns!r}.")
    table = read_map(data.path / "feats.scp")
    limited = next((utt for utt, where in table.items() if where.endswith("]")), None)
    if limited:
        raise UserError(f"{data.path}/feats.scp, {limited}: a part of the matrix is taken already; start from the data that has all of it.")
    made = copy_data_dir(data.path, target)
    (made.path / "cmvn.scp").unlink(missing_ok=True)
    write_table(made.path / "feats.scp", {utt: f"{where}[:,{columns}]" for utt, where in table.items()})
    return DataDir(target)
