"""Reading of lhotse's manifests of supervisions and of cuts, by lhotse; commands and addresses in them are not run and not fetched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.corpora.table.rows import Row, Table


def is_lhotse(entry: dict[str, Any]) -> bool:
    """Whether an object of JSON lines is one of lhotse's manifests."""
    return {"recording_id", "start", "duration"} <= entry.keys() or "sources" in entry or str(entry.get("type", "")).endswith("Cut")


def read_lhotse(entries: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """The rows of a manifest: one for each supervision. A supervision's recording is found by its name, a cut has the recording's file.

    Raises UserError for a line that lhotse cannot read, and for manifests without transcripts.
    """
    from lhotse.serialization import deserialize_item

    rows: list[Row] = []
    for where, entry in entries:
        try:
            item = deserialize_item(dict(entry))
            rows += _rows(item, where)
        except UserError:
            raise
        except Exception as error:  # lhotse raises what comes of reading fields that are not as it wrote them
            raise UserError(f"{where}: lhotse cannot read this entry ({type(error).__name__}: {error}); write the manifest again."
                            ) from error
    return Table("lhotse manifest", rows, any(row.speaker for row in rows))


def _rows(item: Any, where: str) -> list[Row]:
    from lhotse import MonoCut, Recording, SupervisionSegment

    if isinstance(item, SupervisionSegment):
        return [_row(item, str(item.recording_id), where, 0.0)]
    if isinstance(item, MonoCut) and item.has_recording:
        return [_row(supervision, _file(item.recording, where), where, item.start) for supervision in item.supervisions]
    if isinstance(item, Recording):
        raise UserError(f"{where}: this is lhotse's manifest of recordings, which has no transcripts; give that of supervisions or cuts.")
    raise UserError(f"{where}: expected a supervision or a cut with a recording, found {type(item).__name__}; write a manifest of "
                    "supervisions with lhotse (CutSet.decompose).")


def _row(item: Any, audio: str, where: str, offset: float) -> Row:
    start, end = offset + item.start, offset + item.start + item.duration
    if not 0 <= start < end < math.inf:
        raise UserError(f"{where}: the utterance begins at {start:g} s and ends at {end:g} s; correct it.")
    return Row(audio, str(item.text or ""), str(item.speaker or ""), where, round(start, 5), round(end, 5), str(item.id))


def _file(recording: Any, where: str) -> str:
    """The file of a recording; else its name, by which it is looked for."""
    if len(recording.sources) != 1:
        raise UserError(f"{where}: expected a recording of one file, found {len(recording.sources)}; write one file for each.")
    source = recording.sources[0]
    return str(source.source) if source.type == "file" else str(recording.id)
