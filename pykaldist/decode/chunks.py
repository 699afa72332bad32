"""The options that say how an utterance goes through an nnet3 network in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError


@dataclass(frozen=True)
class ChunkOptions:
    """The frames of a chunk, which share an i-vector, and the frames around it that a recurrent network goes through beside.

    `extra_left_context` and `extra_right_context` are beyond those that an output needs; `extra_left_context_initial` is before the first
    chunk of an utterance, `extra_right_context_final` behind its last one, where they are not below 0. Raises UserError for a chunk
    without frames, and for context below 0.
    """

    frames_per_chunk: int = 50
    extra_left_context: int = 0
    extra_right_context: int = 0
    extra_left_context_initial: int = -1
    extra_right_context_final: int = -1

    def __post_init__(self) -> None:
        if self.frames_per_chunk < 1:
            raise UserError(f"--frames-per-chunk must be at least 1, found {self.frames_per_chunk}.")
        for name in ("extra_left_context", "extra_right_context"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")

    def around(self, first: bool, last: bool) -> tuple[int, int]:
        """The frames before and behind a chunk, which is the first or the last one of its utterance."""
        return (self.extra_left_context_initial if first and self.extra_left_context_initial >= 0 else self.extra_left_context,
                self.extra_right_context_final if last and self.extra_right_context_final >= 0 else self.extra_right_context)


@dataclass(frozen=True)
class Nnet3Options:
    """Where an nnet3 network's i-vectors are (None: it takes none), and how utterances go through it in chunks."""

    online_ivector_dir: Path | None = None
    chunks: ChunkOptions = ChunkOptions()
