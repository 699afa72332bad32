"""Provenance: of which files a folder was made, so that a file that has changed since is found, and named.

A stage that makes a folder leaves `inputs.json` in it: the files that it was made of and those of its own that belong together, each with
size, time and checksum; and facts, checksums of what a folder's content means to others, such as a graph's transition-ids. Whoever uses
the folder calls `check`. It looks at sizes and times, and reads a file again only where these differ: a copy is as good as the original.

Paths are kept relative to the folder, so that they hold in a copy of a whole experiment. An input that is gone is no error, for the folder
has all that it needs. In a folder that was moved away from its inputs, what stands at their paths may be something else: there a changed
input is a warning. A folder without the file, as Kaldi makes it, is not checked. Whoever means what he does removes the file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import write_text
from pykaldist.io.schema import read_json
from pykaldist.io.sums import SUFFIX, sums_path

FILE, FORMAT = "inputs.json", 1
COMMAND = "PYKALDIST_COMMAND"  # set by scripts to their own command line, quoted for a shell
SLACK = 2_000_000_000  # ns: a file this young may be changed again without a new time
PathLike = str | os.PathLike[str]


@dataclass
class Stamp:
    """A file as it was: bytes, time of its last change in ns, checksum, and when it was looked at."""

    size: int
    changed: int
    checksum: str
    seen: int


@dataclass
class Record:
    """What `inputs.json` holds; `place` is where the folder stood, `inputs` are paths relative to it, `own` names in it.

    `command` is the command line of the script `made_by`, as it was run in the folder `cwd` (relative, too), to be run again.
    """

    format: int
    made_by: str
    place: str
    inputs: dict[str, Stamp]
    own: dict[str, Stamp]
    facts: dict[str, str]
    command: str = ""
    cwd: str = ""


def checksum(path: PathLike) -> str:
    """The checksum of a file's content (BLAKE2b, 16 bytes)."""
    digest = hashlib.blake2b(digest_size=16)
    with named(path), open(path, "rb") as stream:
        while chunk := stream.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def checksum_of(content: bytes) -> str:
    """The checksum of content that has been read, as `checksum` makes it of a file's."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def of_archives(paths: Iterable[PathLike]) -> list[Path]:
    """Files that stand for archives: their checksums, which change with them and are small; an archive itself where it has none."""
    return [sums if (sums := Path(sums_path(path))).is_file() else Path(path) for path in paths]


def _stamp(path: Path) -> Stamp:
    state, seen = path.stat(), time.time_ns()
    return Stamp(state.st_size, state.st_mtime_ns, checksum(path), seen)


def _same(path: Path, stamp: Stamp) -> Stamp | None:
    """The stamp of a file now if its content is as it was, else None; it is read only if size and time do not show that."""
    state = path.stat()
    if state.st_size != stamp.size:
        return None
    if state.st_mtime_ns == stamp.changed and stamp.seen - stamp.changed > SLACK:
        return stamp
    now = _stamp(path)
    return now if now.checksum == stamp.checksum else None


def read(folder: PathLike) -> Record | None:
    """Read the record of a folder; None where it has none."""
    path = Path(folder) / FILE
    return read_json(path, Record, f"make {folder} again, or remove the file to leave it unchecked", FORMAT) if path.is_file() else None


def forget(folder: PathLike) -> None:
    """Remove the record of a folder that is about to be made again."""
    (Path(folder) / FILE).unlink(missing_ok=True)


def record(folder: PathLike, made_by: str, inputs: Iterable[PathLike] = (), own: Iterable[str] = (), facts: Mapping[str, str] | None = None,
           sources: Iterable[PathLike] = ()) -> None:
    """Write the record of a folder that `made_by` has made of the files `inputs`.

    Of `inputs` and `own` those are taken that exist. Folders in `sources` hand on their own inputs, as they were when these were made.
    """
    folder = Path(folder)
    place = os.path.abspath(folder)
    handed_on = {os.path.relpath(_place(source, path), place): stamp for source in sources if (record := read(source)) is not None
                 for path, stamp in record.inputs.items()}
    stamped = {os.path.relpath(os.path.abspath(path), place): _stamp(Path(path)) for path in inputs if Path(path).is_file()}
    mine = {name: _stamp(folder / name) for name in own if (folder / name).is_file()}
    command = os.environ.get(COMMAND, "")
    command = command if os.path.basename(command.split(" ", 1)[0]) == os.path.basename(made_by) else ""
    _write(folder, Record(FORMAT, made_by, place, {**handed_on, **stamped}, mine, dict(facts or {}), command,
                          os.path.relpath(os.getcwd(), place) if command else ""))


def _write(folder: Path, record: Record) -> None:
    write_text(folder / FILE, json.dumps(dataclasses.asdict(record), indent=1) + "\n")


def _place(folder: PathLike, path: str) -> Path:
    """Where an input of a folder stands: the folder's name is followed as it is written, symbolic links in it are not."""
    return Path(os.path.normpath(os.path.join(os.path.abspath(folder), path)))


def check(folder: PathLike, inputs: bool = True) -> None:
    """Check that the files that a folder was made of, and those of its own, are as they were.

    Without `inputs`, only its own are checked. Raises UserError that names the first file that has changed.
    """
    folder = Path(folder)
    known = read(folder)
    if known is None:
        return
    fresh = dataclasses.replace(known, own=dict(known.own), inputs=dict(known.inputs))
    cure = f"run {known.made_by} again, or remove {folder / FILE} if it is meant"
    for name, stamp in known.own.items():
        if (folder / name).is_file():
            now = _same(folder / name, stamp)
            if now is None:
                raise UserError(f"{folder / name} has changed since {known.made_by} made {folder}; {cure}.")
            fresh.own[name] = now
    place, gone = os.path.abspath(folder), False
    for name, stamp in known.inputs.items() if inputs else ():
        path = _place(folder, name)
        if not path.is_file():
            gone = True
            continue
        now = _same(path, stamp)
        if now is None:
            shown = os.path.relpath(path) if not os.path.isabs(folder) else str(path)
            said = f"{shown.removesuffix(SUFFIX)} has changed since {known.made_by} made {folder} of it"
            if place == known.place:
                raise UserError(f"{said}; {cure}.")
            print(f"WARNING: {said}, in {known.place}", file=sys.stderr)
            gone = True
        else:
            fresh.inputs[name] = now
    if inputs and not gone:
        fresh.place = place  # a copy of the whole
    if fresh != known:
        with suppress(OSError):
            _write(folder, fresh)


def compare(folder: PathLike, facts: Mapping[str, str], what: str, cure: str) -> None:
    """Check that `what` means what a folder does by its facts, as far as both have them; raises UserError that ends in `cure`."""
    known = read(folder)
    for name, value in facts.items():
        if known is not None and known.facts.get(name, value) != value:
            raise UserError(f"{what} and {folder} do not belong together: their {name} differ; {cure}.")
