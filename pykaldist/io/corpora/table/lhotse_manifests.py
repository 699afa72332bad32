"""lhotse's manifests of supervisions and of cuts, by lhotse's own classes; what a manifest would run or fetch is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.corpora.table.rows import Row, Table


def is_lhotse(entry: dict[str, Any]) -> bool:
    """Whether an object of JSON lines is one of lhotse's manifests."""
    return {"recording_id", "start", "duration"} <= entry.keys() or "sources" in entry or str(entry.get("type", "")).endswith("Cut")


def read_lhotse(path: Path, entries: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """The rows of a manifest: one for each supervision. A supervision's recording is found by its name, a cut has the recording's file.

    Raises UserError for a line that lhotse cannot read, and for manifests without transcripts.
    """
    from lhotse import MonoCut, Recording, SupervisionSegment
    from lhotse.serialization import deserialize_item

    rows = []
    for where, entry in entries:
        try:
            item = deserialize_item(dict(entry))
        except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise UserError(f"{where}: lhotse cannot read this entry ({type(error).__name__}: {error}); write the manifest again."
                            ) from error
        if isinstance(item, SupervisionSegment):
            rows.append(_row(item, item.recording_id, where, 0.0))
        elif isinstance(item, MonoCut) and item.has_recording:
            rows += [_row(supervision, _file(item.recording, where), where, item.start) for supervision in item.supervisions]
        elif isinstance(item, Recording):
            raise UserError(f"{path} is lhotse's manifest of recordings, which has no transcripts; give that of the supervisions or cuts.")
        else:
            raise UserError(f"{where}: expected a supervision or a cut with a recording, found {type(item).__name__}; write a manifest of "
                            "supervisions with lhotse (CutSet.decompose).")
    return Table("lhotse manifest", rows, any(row.speaker for row in rows))


def _row(item: Any, audio: str, where: str, offset: float) -> Row:
    start = round(offset + item.start, 5)
    return Row(audio, item.text or "", item.speaker or "", where, start, round(start + item.duration, 5), item.id)


def _file(recording: Any, where: str) -> str:
    """The file of a recording; else its name, by which it is looked for."""
    if len(recording.sources) != 1:
        raise UserError(f"{where}: expected a recording of one file, found {len(recording.sources)}; write one file for each.")
    source = recording.sources[0]
    return str(source.source) if source.type == "file" else str(recording.id)
