"""Functions that mend data directories and take parts of them, for utils/fix_data_dir.sh and utils/subset_data_dir.sh."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from pykaldist.errors import MADE, UserError
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import PER_RECORDING, PER_SPEAKER, TABLES, DataDir, write_entries, write_spk2utt
from pykaldist.io.line_index import text_lines
from pykaldist.io.sorted_entries import Entry, StoredEntries, first_of_each, in_order, matching
from pykaldist.io.tables import read_lines
from pykaldist.progress import progress

_NEED_VALUE = ("utt2spk", "text", "segments", "feats.scp", "wav.scp")


def fix_data_dir(path: str | os.PathLike[str]) -> list[str]:
    """Sort every table, drop repeated and empty lines, and keep the utterances that all tables have; the old ones go to `.backup`.

    Tables are gone through as streams, so that memory does not grow with them; copies of them wait in nameless files in the directory.

    Returns one line for each thing that was mended. Raises UserError where no utterance is left.
    """
    path = Path(path)
    if not (path / "utt2spk").is_file():
        raise UserError(f"{path}/utt2spk does not exist; {MADE}.")
    said: list[str] = []
    there = [name for name in TABLES if name != "spk2utt" and (path / name).is_file()]
    tables = {name: _read_tolerantly(path / name, name in _NEED_VALUE, said)
              for name in progress(there, f"reading tables of {path.name}", unit="table")}
    kept = iter(tables["utt2spk"])
    for name in ("text", "segments", "feats.scp"):
        if name in tables:
            kept = matching(kept, tables[name].keys())
    keep = StoredEntries(kept, path)  # utterance, speaker
    recordings = keep
    if "segments" in tables:
        of_segments = ((line.split()[0], utt) for utt, line in matching(tables["segments"], keep.keys()))
        recordings = StoredEntries(in_order(of_segments, path), path)  # recording, utterance; a recording may be there many times
    if "wav.scp" in tables:
        recordings = StoredEntries(matching(recordings, tables["wav.scp"].keys()), path)
        heard = in_order(((utt, "") for _, utt in recordings), path) if "segments" in tables else recordings
        keep = StoredEntries(matching(keep, map(itemgetter(0), heard)), path)
    if not len(keep):
        raise UserError(f"{path}: no utterance is in all of {', '.join(tables)}; do their names agree?")
    speakers = StoredEntries(first_of_each(in_order(((speaker, "") for speaker, _ in itertools.groupby(spk for _, spk in keep)), path)),
                             path)
    backup = path / ".backup"
    backup.mkdir(exist_ok=True)
    for name, table in progress(tables.items(), f"writing tables of {path.name}", unit="table"):
        wanted = recordings if name in PER_RECORDING else speakers if name in PER_SPEAKER else keep
        copy_file(path / name, backup / name)
        count = write_entries(path / name, matching(table, wanted.keys()))
        if count < len(table):
            said.append(f"{name}: kept {count} of {len(table)} entries")
    write_spk2utt(DataDir(path))
    return said


def _read_tolerantly(path: Path, need_value: bool, said: list[str]) -> StoredEntries:
    """A sorted table without its empty lines, its entries without a value, and all but the first of repeated keys."""
    read = unsorted = 0

    def entries() -> Iterator[Entry]:
        nonlocal read, unsorted
        last = ""
        for line in text_lines(path):
            read += 1
            key, *rest = line.split(maxsplit=1) or [""]
            if key and (rest or not need_value):
                unsorted += key < last
                last = key
                yield key, rest[0].strip() if rest else ""

    table = StoredEntries(first_of_each(entries()), path.parent)
    if unsorted:
        table = StoredEntries(first_of_each(in_order(table, path.parent)), path.parent)
    if len(table) < read:
        said.append(f"{path.name}: dropped {read - len(table)} repeated or empty lines")
    if unsorted:
        said.append(f"{path.name}: sorted")
    return table


def choose_utterances(data: DataDir, number: int, how: str = "spread") -> list[str]:
    """Choose `number` utterances of a data directory in the way `how`.

    The ways are `first`, `last`, `shortest` (by utt2num_frames or utt2dur), `spread` evenly over the list, `speakers` (whole speakers
    until there are as many), `per-spk` (so many of each speaker, spread).

    Where there are fewer, all of them. Raises UserError for a number below 1.
    """
    utts = data.utterances()
    if number < 1:
        raise UserError(f"{data.path} has {len(utts)} utterances, {number} were asked for.")
    if how != "per-spk":
        number = min(number, len(utts))
    if how == "first":
        return utts[:number]
    if how == "last":
        return utts[-number:]
    if how == "shortest":
        table = data.table("utt2num_frames" if data.has("utt2num_frames") else "utt2dur")
        return sorted(utts, key=lambda utt: (float(table[utt]), utt))[:number]
    if how == "per-spk":
        return [utt for of_speaker in data.spk2utt.values() for utt in _spread(of_speaker, min(number, len(of_speaker)))]
    if how == "speakers":
        chosen: list[str] = []
        for speaker in _spread(list(data.spk2utt), len(data.spk2utt)):
            if len(chosen) < number:
                chosen += data.spk2utt[speaker]
        return chosen
    return _spread(utts, number)


def _spread(items: Sequence[str], number: int) -> list[str]:
    """`number` items at equal distances, the first among them."""
    return [items[i * len(items) // number] for i in range(number)]


def utterances_of_list(data: DataDir, file: str | os.PathLike[str], speakers: bool = False) -> list[str]:
    """The utterances (or those of the speakers) that a file lists in its first column; unknown ones are an error."""
    names = [line.split()[0] for line in read_lines(file) if line.split()]
    known = data.spk2utt if speakers else data.utt2spk
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"{unknown[0]} is not in {data.path}/utt2spk" if unknown else "the list is empty"
        raise UserError(f"{file}: {what}.")
    return [utt for name in names for utt in data.spk2utt[name]] if speakers else names
