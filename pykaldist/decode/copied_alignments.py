"""Alignments and lattices of the original utterances, written for their copies with noise, in other rooms or at other volumes.

Such a copy (utils/data/augment_data_dir.sh) is as long as its original, and what is said in it is said at the same times. The alignment of
the clean speech is the better one, and costs nothing. A copy's name is that of its original behind a prefix and `-`, as in Kaldi's
steps/copy_ali_dir.sh and copy_lat_dir.sh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pykaldist.decode.lattice import Lattice, read_decode_dir, write_lattices
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import FILES, TEXTS, AlignmentDir, archives, clear, record, write_labels
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.scratch import StoredValues
from pykaldist.progress import progress

T = TypeVar("T")
#: files of the original's directory that hold for its copies
_COPIED = (*(name for name in FILES if name not in ("num_jobs", "num_pdfs", "provenance.json", "resume.npz", TEXTS, provenance.FILE)),
           "frame_subsampling_factor")


class OfOriginals(Mapping[str, T]):
    """A mapping from names of copies, `<prefix>-<name>`, to the values of the originals, `<name>`; with `itself` from these names, too."""

    def __init__(self, values: Mapping[str, T], prefixes: Sequence[str], itself: bool = True) -> None:
        self._values, self._prefixes, self._itself = values, prefixes, itself

    def _original(self, name: str) -> str | None:
        if self._itself and name in self._values:
            return name
        heads = (f"{prefix}-" for prefix in self._prefixes)
        return next((name.removeprefix(head) for head in heads if name.startswith(head) and name.removeprefix(head) in self._values), None)

    def __getitem__(self, name: str) -> T:
        original = self._original(name)
        if original is None:
            raise KeyError(name)
        return self._values[original]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._original(name) is not None

    def __iter__(self) -> Iterator[str]:
        for name in self._values:
            yield from ([name] if self._itself else [])
            yield from (f"{prefix}-{name}" for prefix in self._prefixes)

    def __len__(self) -> int:
        return len(self._values) * (len(self._prefixes) + self._itself)


def copy_alignments(data: DataDir, src: Path, out: Path, prefixes: Sequence[str], include_original: bool = True, nj: int = 1) -> str:
    """Write to `out` the alignments in `src` of the utterances of `data`, which are copies, in `nj` archives.

    With `include_original`, `data` may have the originals, too. Features do not come into it: copies must be as long as their originals.
    Returns a line that says what came out. Raises UserError where no utterance of `data` is a copy of one of `src`.
    """
    _prepare(src, out)
    alignment = AlignmentDir(src, out)
    copies = OfOriginals(alignment.labels, prefixes, include_original)
    made = _found(data, copies, src, prefixes, "alignments")
    clear(out)
    write_labels(out, data, copies, nj, None if alignment.has_transition_ids else alignment.num_pdfs)
    _finish(src, out, "steps/copy_ali_dir.sh", data)
    return made


def copy_lattices(data: DataDir, src: Path, out: Path, prefixes: Sequence[str], include_original: bool = True, nj: int = 1) -> str:
    """Write to `out` the lattices in `src` of the utterances of `data`, which are copies; arguments are those of `copy_alignments`."""
    _prepare(src, out)
    provenance.check(src)
    lattices: StoredValues[Lattice] = StoredValues(lambda content: Lattice.parse(memoryview(content), 0)[0],
                                                   lambda stream, lattice: stream.write(lattice.to_bytes()), out)
    for utt, lattice in progress(read_decode_dir(src), "reading lattices", unit="utt"):
        lattices.add(utt, lattice)
    copies = OfOriginals(lattices, prefixes, include_original)
    made = _found(data, copies, src, prefixes, "lattices")
    clear(out)
    for old in archives(out, "lat"):
        old.unlink()
    for job in range(1, nj + 1):
        write_lattices(out / f"lat.{job}.gz", ((utt, copies[utt]) for utt in data.part(job, nj) if utt in copies))
    write_text(out / "num_jobs", f"{nj}\n")
    _finish(src, out, "steps/copy_lat_dir.sh", data)
    return made


def _prepare(src: Path, out: Path) -> None:
    if src.resolve() == out.resolve():
        raise UserError(f"{out} is both source and target; write the copies to another directory.")
    out.mkdir(parents=True, exist_ok=True)


def _found(data: DataDir, copies: OfOriginals[T], src: Path, prefixes: Sequence[str], what: str) -> str:
    """Say how many utterances of `data` are copies. Raises UserError where none is."""
    utts = data.utterances()
    found = sum(utt in copies for utt in utts)
    if not found:
        raise UserError(f"{data.path}/utt2spk, {utts[0]}: expected names of {src} behind a prefix ({' '.join(prefixes)}) and -, found none "
                        f"in {len(utts)} utterances; give the prefixes as --prefixes.")
    return f"{what} of {found} of {len(utts)} utterances"


def _finish(src: Path, out: Path, made_by: str, data: DataDir) -> None:
    for name in _COPIED:
        if (src / name).is_file():
            copy_file(src / name, out / name)
    record(out, made_by, data, features=False)
