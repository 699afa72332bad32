"""Archives with a label a frame: pdfs or phones as integers, text or binary, gzipped or not; or phones by name, as text.

A file, or a directory of `*.ark`, `*.txt` or `*.gz`. A name that holds `pdf` or `phone` (`train_pdf.ark`, `phones.gz`) says what the
labels are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.sources.base import Frames, PlainSource, SourceOptions
from pykaldist.io.entries import DAMAGE, open_archive
from pykaldist.io.tables import read_int_vectors

_SUFFIXES = (".ark", ".txt", ".gz", ".ali")


def recognises(path: Path) -> bool:
    """Whether `path` is a file, or a directory with archives of labels."""
    return path.is_file() or bool(_files(path))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file() and p.suffix in _SUFFIXES)


def read(path: Path, options: SourceOptions) -> PlainSource:
    """Open the archives of labels at `path` as a source."""
    files = _files(path)
    for file in files:
        if file.name.startswith("ali.") and options.labels == "auto":
            raise UserError(f"{file} is named like Kaldi's archives of transition_ids, which need final.mdl beside them; give the "
                            "directory that has both, or say with --labels what the numbers are.")
    return PlainSource("archive of frame labels", (item for file in files for item in _entries(file, options)))


def _entries(path: Path, options: SourceOptions) -> Iterator[tuple[str, Frames]]:
    kind = kind_of(path.name if options.labels == "auto" else options.labels)
    for utt, values in _text_entries(path) if _is_text(path) else read_int_vectors(path):
        yield utt, Frames("phone" if values.dtype.kind == "U" else kind, values)


def kind_of(name: str) -> str:
    """`pdf` or `phone` where a name holds that word, else `label`."""
    return next((kind for kind in ("pdf", "phone") if kind in name.lower()), "label")


def _is_text(path: Path) -> bool:
    try:
        with open_archive(path) as stream:
            head = stream.read(4096)
    except DAMAGE as error:
        raise UserError(f"{path} cannot be read ({error}); make it again.") from error
    return b"\0" not in head


def _text_entries(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with open_archive(path) as stream:
            for line in stream:
                fields = line.decode("utf-8").split()
                if fields:
                    yield fields[0], labels_array(fields[1:])
    except DAMAGE as error:
        raise UserError(f"{path} is no readable text archive ({error}); make it again.") from error


def labels_array(fields: list[str]) -> np.ndarray:
    """Labels as an array: integers where all fields are integers, else strings."""
    try:
        return np.array(fields, dtype=np.int64).astype(np.int32)
    except ValueError:
        return np.array(fields)
