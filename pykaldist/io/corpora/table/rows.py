"""The rows of a table of transcripts, and the names that its columns have in different places."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pykaldist.errors import UserError

COLUMNS = {  # what a column has -> its names, small letters; the first that a table has is taken
    "audio": ("audio_filepath", "file_name", "filename", "audio", "audio_path", "audio_file", "path", "filepath", "file_path", "file",
              "wav", "wav_path", "wav_filename", "recording", "recording_id", "id", "utt_id", "utt"),
    "text": ("text", "transcript", "transcription", "sentence", "normalized_text", "normalized_transcription", "words", "utterance"),
    "speaker": ("speaker", "speaker_id", "spk", "spk_id", "client_id", "user_id", "reader", "reader_id", "speakerid"),
    "start": ("start", "offset", "begin", "start_time"),
    "end": ("end", "end_time"),
    "duration": ("duration",),
}
NEEDED = ("audio", "text")


@dataclass
class Row:
    """One row: what names its audio, what is said, who says it ("" where the table does not tell), and where it stands.

    `start` and `end` are seconds in the audio; from 0 to -1, its end, where the row is about all of it. `name` is the utterance's own name,
    where it has one.
    """

    audio: str
    text: str
    speaker: str
    where: str
    start: float = 0.0
    end: float = -1.0
    name: str = ""


@dataclass
class Table:
    """The rows of a table, and what kind of table it is, in words."""

    kind: str
    rows: list[Row]
    has_speakers: bool


def chosen_columns(text: str) -> dict[str, str]:
    """The option --columns: `audio=path text=sentence` -> what a column has and the name that it has; raises UserError for others."""
    chosen = {}
    for word in text.split():
        kind, equals, name = word.partition("=")
        if kind not in COLUMNS or not equals or not name:
            raise UserError(f"--columns: expected words such as audio=path text=sentence, of {', '.join(COLUMNS)}, found {word!r}.")
        chosen[kind] = name
    return chosen


def find_columns(names: Sequence[str], chosen: Mapping[str, str], path: str | os.PathLike[str]) -> dict[str, str]:
    """What a column has -> its name in a table whose columns are `names`; raises UserError where the audio's or the text's is not there."""
    by_small = {name.strip().lower(): name for name in reversed(names)}
    found = {}
    for kind, usual in COLUMNS.items():
        if kind in chosen:
            if chosen[kind] not in names:
                raise UserError(f"{path} has no column {chosen[kind]!r} for the {kind}; it has {', '.join(map(repr, names))}.")
            found[kind] = chosen[kind]
        elif name := next((by_small[name] for name in usual if name in by_small), None):
            found[kind] = name
    missing = [kind for kind in NEEDED if kind not in found]
    if missing:
        raise UserError(f"{path}: no column is known to have the {missing[0]}; looked for {', '.join(COLUMNS[missing[0]])}; found "
                        f"{', '.join(map(repr, names))}; name it with --columns, such as '{missing[0]}={names[-1]}'.")
    return found


def row_of(values: Mapping[str, object], columns: Mapping[str, str], where: str) -> Row:
    """The row of a table's line; raises UserError for times that are no numbers, or end before they begin."""
    def text(kind: str) -> str:
        value = values.get(columns[kind]) if kind in columns else None
        return "" if value is None else str(value).strip()

    start = _seconds(text("start"), where, 0.0)
    end = _seconds(text("end"), where, -1.0)
    if "end" not in columns and "start" in columns and text("duration"):
        end = start + _seconds(text("duration"), where, 0.0)
    if end != -1 and end <= start:
        raise UserError(f"{where}: the utterance begins at {start:g} s and ends at {end:g} s; correct it.")
    return Row(text("audio"), text("text"), text("speaker"), where, start, end)


def _seconds(text: str, where: str, otherwise: float) -> float:
    try:
        value = float(text) if text else otherwise
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value >= 0 or value == otherwise)):
        raise UserError(f"{where}: expected seconds, found {text!r}; correct it.")
    return value
