"""Corpora as they are shipped: their packages' folders, their sphere files, and what has to be left out of them; for every recipe alike.

What is not there, damaged or does not belong together is said with what was looked for, what was found, and the package that has it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import soundfile

from pykaldist.errors import UserError
from pykaldist.io import sphere
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives

SHOWN = 3  # names in a message
MISSING = 0.02  # share of what has transcripts that may lack audio, but always one; of more, a disc is missing
PACKAGE = re.compile(r"LDC(\d\d|\d{4})[ST]\d+/")


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


def stem_of(path: Path) -> str:
    """The name of a recording: its file's, in small letters, without suffix."""
    return path.stem.lower()


def find_files(folder: Path, suffix: str, what: str, name_of: Callable[[Path], str] = stem_of, begin: str = "") -> dict[str, Path]:
    """Name -> file of every file below a folder with a suffix, such as .sph, in large letters too; sorted. `what` they are, for messages.

    `begin`: only those whose names begin so. Raises UserError for two files of one name, and where there is none.
    """
    found: dict[str, Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() == suffix):
        name = name_of(path)
        if not name.startswith(begin):
            continue
        if name in found:
            raise UserError(f"two {what} are called {name}: {found[name]} and {path}; take one away.")
        found[name] = path
    if not found:
        kind = "sphere files" if suffix == ".sph" else "files"
        raise UserError(f"{folder} has no {kind} (*{suffix}), in it or below; unpack the {what} there.")
    return dict(sorted(found.items()))


def check_complete(folder: Path, number: str, recordings: Mapping[str, Path], said: Collection[str], what: str) -> list[str]:
    """The names in `said`, those with transcripts, that have no audio in `recordings`; `what` they are, such as conversations.

    Raises UserError where so many of them have none that a disc of the package is missing.
    """
    unheard = sorted(set(said) - set(recordings))
    if len(unheard) > max(1, MISSING * len(said)):
        places: dict[str, int] = {}
        for path in recordings.values():
            place = path.relative_to(folder).parts[0] if folder in path.parents and path.parent != folder else "."
            places[place] = places.get(place, 0) + 1
        there = ", ".join(f"{place} ({count})" for place, count in sorted(places.items()))
        raise UserError(f"{len(unheard)} of {len(said)} {what} with transcripts have no audio in {folder}, from {unheard[0]} to "
                        f"{unheard[-1]}; its folders with sphere files: {there}. A disc of {number} is missing, or was not unpacked: put "
                        "all of them there.")
    return unheard


def left_out(folder: Path, lists: Sequence[tuple[str, str, Sequence[str]]]) -> Iterator[str]:
    """Write what was left out, each list of names to its file in `folder`; yields a line for each that is not empty.

    `lists`: name of the file, what the names are, the names.
    """
    for name, what, names in lists:
        write_text(folder / name, "".join(f"{one}\n" for one in names))
        if names:
            yield f"left out: {what}, {listed(names)} (all in {folder / name})"


def check_recordings(recordings: Mapping[str, Path], rate: int) -> dict[str, sphere.Header]:
    """The headers of all recordings.

    Raises UserError where files are damaged, not at `rate` Hz, or shortened and no program is there that reads these.
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
    other = next((name for name, found in good.items() if found.rate != rate), None)
    if other is not None:
        raise UserError(f"{recordings[other]}: expected {rate} Hz, found {good[other].rate} Hz; this is another corpus.")
    shortened = [name for name, found in good.items() if found.shortened]
    if shortened and sphere.decompressor() is None:
        raise UserError(f"{recordings[shortened[0]]} is compressed with shorten, as {len(shortened)} of {len(recordings)} recordings are; "
                        "this needs the Linguistic Data Consortium's sph2pipe, which `lhotse install-sph2pipe` fetches and compiles; or "
                        "put it on PATH.")
    return good


def plain_files(recordings: Mapping[str, Path], headers: Mapping[str, sphere.Header], folder: Path) -> dict[str, Path]:
    """The files of recordings of one channel; of those that are shortened, which lhotse does not read, copies in `folder`.

    Raises UserError where the program gives less or more than a file's header says.
    """
    def plain(name: str) -> Path:
        path, header = recordings[name], headers[name]
        if not header.shortened:
            return path
        program = sphere.decompressor()
        assert program is not None, "check_recordings refuses shortened files without a program"
        copy = folder / f"{name}.wav"
        done = subprocess.run([program, "-f", "wav", "-p", "-c", "1", str(path)], capture_output=True, check=False)
        try:
            samples = soundfile.info(io.BytesIO(done.stdout)).frames
        except soundfile.LibsndfileError:
            samples = 0
        if samples != header.samples:
            raise UserError(f"{path} is damaged: {program} gives {samples} of its {header.samples} samples; fetch it again.")
        with atomic_open(copy, "wb") as stream:
            stream.write(done.stdout)
        return copy

    with ThreadPoolExecutor() as pool:
        return dict(zip(headers, pool.map(plain, headers), strict=True))


def find_models(corpus: str | None, fetch_dir: str | os.PathLike[str], wanted: Mapping[str, Archive]) -> dict[str, Path]:
    """Files that come beside a corpus, such as language models: in its folder or in its folder `lm`, else fetched.

    `wanted`: name -> where it is fetched from. They have their publisher's names, or Kaldi's: lm_tgsmall.arpa.gz. Raises UserError where
    one is not there and cannot be fetched.
    """
    places = [Path(corpus), Path(corpus) / "lm", Path(corpus) / "LibriSpeech"] if corpus else []
    places += [Path(fetch_dir) / "lm" / name for name in wanted]
    found = {}
    for name, file in wanted.items():
        known = (file.name, f"lm_{name}.arpa.gz")
        path = next((place / own for place in places for own in known if (place / own).is_file()), None)
        if path is None:
            try:
                fetch_archives([file], Path(fetch_dir) / "lm" / name)
            except Unreachable as error:
                raise UserError(f"{file.name} could not be fetched ({error}); download {file.urls[0]} elsewhere, and put it beside the "
                                "corpus that --corpus names.") from error
            path = Path(fetch_dir) / "lm" / name / file.name
        found[name] = path
    return found
