"""A Kaldi alignment directory: `ali.<job>.gz` with transition_ids, `final.mdl`, `tree`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, archives
from pykaldist.hmm.import_ali.sources.base import Frames, SourceOptions


def recognises(path: Path) -> bool:
    """Whether `path` is an alignment directory."""
    return path.is_dir() and bool(archives(path, "ali") or archives(path, "ali_pdf"))


class KaldiDir:
    """The directory of a system of Kaldi or of ours; also one of ours that holds pdfs (`ali_pdf.<job>.gz`)."""

    def __init__(self, path: Path) -> None:
        self._dir = AlignmentDir(path)
        self.format = "Kaldi alignment directory" if self._dir.has_transition_ids else "alignment directory of pdfs"
        self.model = self._dir.model
        self.system_dir = path
        self.in_parts = False

    def utterances(self) -> Iterator[tuple[str, Frames]]:
        kind = "transition_id" if self._dir.has_transition_ids else "pdf"
        return ((utt, Frames(kind, values)) for utt, values in self._dir.items())


def read(path: Path, options: SourceOptions) -> KaldiDir:
    """Open the alignment directory `path` as a source."""
    return KaldiDir(path)
