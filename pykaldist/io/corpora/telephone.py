"""Recordings of telephone conversations as the Linguistic Data Consortium ships them: sphere files with a channel for each side.

The sides of `sw02001.sph` are the recordings sw02001-A (channel 1) and sw02001-B (channel 2), as in Kaldi's recipes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io import sphere
from pykaldist.io.datadir import write_datadir, write_table

SIDES = "AB"
SHOWN = 3  # names in a message
PACKAGE = re.compile(r"LDC(\d\d|\d{4})[ST]\d+/")
RATE = 8000  # Hz


@dataclass(frozen=True)
class Segment:
    """What one side says from `start` to `end`, in seconds."""

    file: str
    side: str
    start: float
    end: float
    words: tuple[str, ...] = ()

    @property
    def recording(self) -> str:
        return f"{self.file}-{self.side}"

    @property
    def utterance(self) -> str:
        """The name as in Kaldi's recipes: file, side, and both times in hundredths of a second."""
        return f"{self.recording}_{round(100 * self.start):06d}-{round(100 * self.end):06d}"


def listed(names: Iterable[str]) -> str:
    """`3: a, b, c`, or `9: a, b, c, ...`: how many names there are, and the first ones."""
    names = sorted(names)
    return f"{len(names)}: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"


def package(corpus: Path, number: str, title: str, option: str, needed: Iterable[str]) -> tuple[Path, list[Path]]:
    """The folder of a package of the consortium, and the first path below it for each pattern of `needed`.

    It is `corpus` itself, or the folder below it that has the package's number. Raises UserError where it is not there, which says what was
    looked for, what was found, and which package it is.
    """
    folder = corpus / number if (corpus / number).is_dir() else corpus
    wanted = f"{number} ({title}); give its folder with --{option}, or with --corpus the folder that has {number}/"
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; expected {wanted}.")
    found = []
    there = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    if any(PACKAGE.fullmatch(name) for name in there):  # many packages without this one are not searched through
        raise UserError(f"{folder} has no folder {number}; found {listed(there)}. Expected {wanted}.")
    for pattern in needed:
        first = next(iter(sorted({*folder.rglob(pattern), *folder.rglob(pattern.upper())})), None)
        if first is None:
            raise UserError(f"{folder} has no {pattern}, which was looked for in it and below; found "
                            f"{listed(there) if there else 'nothing'}. Expected {wanted}.")
        found.append(first)
    return folder, found


def find_recordings(folder: Path) -> dict[str, Path]:
    """Name -> sphere file of every recording below a folder, sorted; suffixes are .sph, in large letters too.

    Raises UserError for two files of one name, and where there is none.
    """
    found: dict[str, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".sph"):
        name = path.stem.lower()
        if name in found:
            raise UserError(f"two recordings are called {name}: {found[name]} and {path}; take one away.")
        found[name] = path
    if not found:
        raise UserError(f"{folder} has no sphere files (*.sph), in it or below; unpack the audio there.")
    return dict(sorted(found.items()))


def check_recordings(recordings: Mapping[str, Path]) -> dict[str, sphere.Header]:
    """The headers of all recordings.

    Raises UserError where files are damaged, not at 8 kHz, or shortened and no program is there that reads these.
    """
    def header(path: Path) -> sphere.Header | str:
        try:
            return sphere.read_header(path)
        except UserError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:  # of a few thousand files, often on a network drive
        headers = dict(zip(recordings, pool.map(header, recordings.values()), strict=True))
    damaged = [found for found in headers.values() if isinstance(found, str)]
    if damaged:
        raise UserError(f"{len(damaged)} of {len(recordings)} recordings cannot be used. The first: {damaged[0]}")
    good = {name: found for name, found in headers.items() if isinstance(found, sphere.Header)}
    other = next((name for name, found in good.items() if found.rate != RATE), None)
    if other is not None:
        raise UserError(f"{recordings[other]}: expected {RATE} Hz, found {good[other].rate} Hz; this is another corpus.")
    shortened = [name for name, found in good.items() if found.shortened]
    if shortened and sphere.decompressor() is None:
        raise UserError(f"{recordings[shortened[0]]} is compressed with shorten, as {len(shortened)} of {len(recordings)} recordings are; "
                        "this needs the Linguistic Data Consortium's sph2pipe, which `lhotse install-sph2pipe` fetches and compiles; or "
                        "put it on PATH.")
    return good


def write_sides(path: str | os.PathLike[str], recordings: Mapping[str, Path], headers: Mapping[str, sphere.Header],
                segments: Iterable[Segment], texts: Mapping[str, str],
                times: Mapping[str, tuple[float, float]] | None = None) -> dict[str, float]:
    """Write a data directory of the sides that have utterances, each of them a speaker; returns the hours and the counts of what came out.

    `texts`: utterance -> words; `times`: utterance -> begin and end in place of the segment's own. `reco2file_and_channel` is for CTM
    files. Raises UserError for two utterances of one name.
    """
    own, other = sphere.own_program(), sphere.decompressor()
    wav: dict[str, str] = {}
    table: dict[str, str] = {}
    channels: dict[str, str] = {}
    speakers: dict[str, str] = {}
    seconds = 0.0
    for segment in segments:
        utt, side = segment.utterance, segment.recording
        if utt in table:
            raise UserError(f"two utterances are called {utt}: side {segment.side} of {segment.file} has two segments of the same times; "
                            "take one of them out of the transcripts.")
        program = other if headers[segment.file].shortened else own
        assert program is not None, "check_recordings refuses shortened files without a program"
        wav.setdefault(side, sphere.pipe(program, recordings[segment.file].resolve(), SIDES.index(segment.side) + 1))
        channels[side] = f"{segment.file} {segment.side}"
        begin, end = times[utt] if times is not None else (segment.start, segment.end)
        table[utt] = f"{side} {begin:.2f} {end:.2f}"
        speakers[utt] = side
        seconds += end - begin
    data = write_datadir(path, wav, {utt: texts[utt] for utt in table}, speakers, table)
    write_table(data.path / "reco2file_and_channel", channels)
    return {"utterances": len(table), "speakers": len(wav), "hours": seconds / 3600}
