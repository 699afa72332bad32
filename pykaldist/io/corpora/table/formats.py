"""The tables of transcripts that are read: csv, tsv, JSON lines, Kaldi's `text`, NeMo's and lhotse's manifests, audiofolders' metadata."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError, named, to_utf8
from pykaldist.io.corpora.table.lhotse_manifests import is_lhotse, read_lhotse
from pykaldist.io.corpora.table.rows import COLUMNS, NEEDED, Row, Table, find_columns, row_of
from pykaldist.io.datadir import DataDir
from pykaldist.io.tables import read_map

IN_FOLDERS = ("text", "metadata.csv", "metadata.tsv", "metadata.jsonl", "cuts.jsonl.gz", "cuts.jsonl", "supervisions.jsonl.gz",
              "supervisions.jsonl", "manifest.json", "manifest.jsonl")
DELIMITERS = "\t|;,"  # the first that the first line has is the table's
AUDIO_SUFFIXES = (".wav", ".flac", ".sph", ".mp3", ".ogg", ".opus")


def read_transcripts(path: str | os.PathLike[str], columns: Mapping[str, str]) -> Table:
    """Read a table of transcripts, or the one of IN_FOLDERS that a folder has; `columns` names columns (`rows.chosen_columns`).

    Raises UserError, with the line, for what is none: other text, fields that are missing, two rows of one name.
    """
    path = Path(path)
    if path.is_dir():
        there = [name for name in IN_FOLDERS if (path / name).is_file()]
        if len(there) != 1:
            found = f"found {' and '.join(there)}" if there else f"found {_listing(path)}"
            raise UserError(f"{path} is a folder; looked in it for one of {', '.join(IN_FOLDERS)}, {found}; name the file.")
        path = path / there[0]
    text = _text(path)
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not first:
        raise UserError(f"{path} is empty; expected a table of transcripts.")
    if first.lstrip()[0] in "{[" or path.name.removesuffix(".gz").endswith((".json", ".jsonl")):
        table = _json(path, text, columns)
    elif path.name != "text" and (columns or path.suffix in (".csv", ".tsv") or _is_delimited(first)):
        table = _delimited(path, text, columns)
    else:
        table = _kaldi(path, text)
    if not table.rows:
        raise UserError(f"{path} has no rows; expected a table of transcripts.")
    return table


def _text(path: Path) -> str:
    with named(path):
        content = path.read_bytes()
    try:
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no UTF-8 text (byte {error.start}); {to_utf8(path)}.") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({error}); write it again.") from error


def _listing(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    return f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}" if names else "nothing"


def _is_audio(name: str) -> bool:
    return name.strip().lower().endswith(AUDIO_SUFFIXES)


def _is_delimited(first: str) -> bool:
    """Whether a first line is a header with the needed columns, or begins with an audio file and has a delimiter; else it is Kaldi's."""
    delimiter = _delimiter(first)
    fields = [field.strip().lower() for field in first.split(delimiter)] if delimiter else []
    return len(fields) > 1 and (_is_audio(fields[0]) or all(set(COLUMNS[kind]).intersection(fields) for kind in NEEDED))


def _known(field: str) -> bool:
    return any(field.strip().lower() in names for names in COLUMNS.values())


def _delimiter(first: str) -> str:
    return next((sign for sign in DELIMITERS if sign in first), "")


def _delimited(path: Path, text: str, columns: Mapping[str, str]) -> Table:
    """csv and the like, with a header; without one the first field names the audio, and the last is what is said.

    There is none where the first field is an audio file, or where | is between fields that are no known columns, as LJSpeech has it.
    """
    first = next(line for line in text.split("\n") if line.strip())
    delimiter = "\t" if path.suffix == ".tsv" else _delimiter(first) or ","
    plain = delimiter in "\t|"  # a quotation mark is a sign like others
    csv.field_size_limit(1 << 24)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
                        strict=True)
    rows: list[Row] = []
    header: list[str] = []
    names: Mapping[str, str] = {}
    while True:
        where = f"{path}, line {reader.line_num + 1}"
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{where}: the line is no csv ({error}); correct its quotation marks.") from error
        if fields is None:
            break
        if not any(field.strip() for field in fields):
            continue
        if not header:
            header = fields
            bare = _is_audio(fields[0]) or (delimiter == "|" and not any(_known(field) for field in fields))
            if bare and not columns and len(fields) > 1:
                header = [f"field {i}" for i in range(1, len(fields) + 1)]
                names = {"audio": header[0], "text": header[-1]}
            else:
                names = find_columns(header, columns, path)
                continue
        if len(fields) != len(header):
            raise UserError(f"{where}: expected {len(header)} fields, found {len(fields)}; correct the line.")
        rows.append(row_of(dict(zip(header, fields, strict=True)), names, where))
    kind = {"\t": "tab-separated table", ",": "csv table"}.get(delimiter, f"table with {delimiter} between its fields")
    return Table(kind, rows, "speaker" in names)


def _json(path: Path, text: str, columns: Mapping[str, str]) -> Table:
    """JSON lines, or one JSON list of objects; NeMo's manifests, lhotse's manifests and audiofolders' metadata are such."""
    entries = list(_entries(path, text))
    for where, entry in entries:
        if not isinstance(entry, dict):
            raise UserError(f"{where}: expected a JSON object with fields such as audio_filepath and text, found {str(entry)[:40]!r}.")
    if entries and is_lhotse(entries[0][1]):
        return read_lhotse(entries)
    fields = list(dict.fromkeys(name for _, entry in entries for name in entry))
    names = find_columns(fields, columns, path)
    kind = "NeMo manifest" if names["audio"] == "audio_filepath" else "table of JSON lines"
    for where, entry in entries:
        if lacking := next((names[kind] for kind in NEEDED if names[kind] not in entry), None):
            raise UserError(f"{where}: expected the field {lacking!r}, found {', '.join(map(repr, entry)) or 'none'}; correct the line.")
    return Table(kind, [row_of(entry, names, where) for where, entry in entries], "speaker" in names)


def _entries(path: Path, text: str) -> Iterable[tuple[str, Any]]:
    """Where an entry stands, and the entry."""
    if text.lstrip().startswith("["):
        try:
            yield from ((f"{path}, entry {i}", entry) for i, entry in enumerate(json.loads(text), 1))
            return
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: no JSON ({error}); correct it.") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: no JSON ({error}); expected an object on each line.") from error


def _kaldi(path: Path, text: str) -> Table:
    """Kaldi's text; the speakers and the parts of recordings are those of utt2spk and segments beside it, where they are."""
    folder = DataDir(path.parent)
    speakers = folder.utt2spk if path.name == "text" and folder.has("utt2spk") else {}
    segments = folder.segments if path.name == "text" and folder.has("segments") else None
    files = read_map(path.parent / "wav.scp") if path.name == "text" and folder.has("wav.scp") else {}
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        name, *rest = line.split(maxsplit=1) or [""]
        if not name:
            continue
        where = f"{path}, line {number}"
        if segments is not None and name not in segments:
            raise UserError(f"{where}: {name} is not in {folder.path}/segments; correct one of them.")
        recording, start, end = (name, 0.0, -1.0) if segments is None else segments[name]
        file = files.get(recording, "")
        audio = file if file and not file.endswith("|") else recording
        rows.append(Row(audio, rest[0].strip() if rest else "", speakers.get(name, ""), where, start, end, name))
    return Table("Kaldi text", rows, bool(speakers))
