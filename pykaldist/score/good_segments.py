"""The parts of an utterance in which what was said agrees with what is written, as new segments.

An utterance's edits (edits.py) are cut at errors. A piece without a word that is right is left out. At an edge beside an error a silence,
a noise or an unknown word may hide more: no more than `max_tainted_length` of it stays. At an edge with a word, `unk_padding` of what
stands beyond it comes along, with the word for unknown words in the text, for the cut may be off by a few frames. Other silences and
noises are shortened at edges, and a piece is cut at long ones inside. Words that were left out between two words that were said without
a pause do not cut; up to `max_deleted_words_kept_when_merging` of them stay in the text. Pieces that are short are left out. Options and
what they mean are those of Kaldi's steps/cleanup/internal/segment_ctm_edits.py; how pieces are found is this file's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykaldist.errors import UserError
from pykaldist.io.lang import EPSILON
from pykaldist.options import option
from pykaldist.score.edits import Edit


@dataclass
class SegmentOptions:
    """Options of `good_segments`, in seconds, with Kaldi's names and defaults."""

    min_segment_length: float = option(0.5, "shorter utterances are left out")
    min_new_segment_length: float = option(1.0, "shorter parts of utterances are left out")
    frame_length: float = option(0.01, "seconds from frame to frame")
    max_tainted_length: float = option(0.05, "what stays of a silence, noise or unknown word beside an error")
    max_edge_silence_length: float = option(0.5, "what stays of silence at the edge of a segment")
    max_edge_non_scored_length: float = option(0.5, "what stays of a noise at the edge of a segment")
    max_internal_silence_length: float = option(2.0, "at longer silences a segment is cut in two")
    max_internal_non_scored_length: float = option(2.0, "at longer noises a segment is cut in two")
    unk_padding: float = option(0.05, "what of an error beyond a word at the edge comes along, as the word for unknown words")
    max_junk_proportion: float = option(0.1, "largest share of such padding, and of what stays beside errors; else none of both stays")
    max_deleted_words_kept_when_merging: int = option(1, "so many words that nobody said between two words stay in the text")

    def __post_init__(self) -> None:
        if self.frame_length <= 0 or not 0 < self.min_segment_length <= self.min_new_segment_length:
            raise UserError("expected --frame-length above 0, and --min-segment-length above 0 and at most --min-new-segment-length, found "
                            f"{self.frame_length:g}, {self.min_segment_length:g} and {self.min_new_segment_length:g}.")


@dataclass(frozen=True)
class Segment:
    """A part of an utterance: its first frame, the frame behind its last one, and its words."""

    start: int
    end: int
    words: tuple[str, ...]


def good_segments(edits: Sequence[Edit], oov: str, options: SegmentOptions) -> list[Segment]:
    """Find the good parts of an utterance, in order. `oov` is the word for unknown words."""
    length = edits[-1].end if edits else 0
    found = []
    for piece in _pieces(list(edits), options):
        segment = _trimmed(piece, oov, options)
        if segment is None:
            continue
        whole = (segment.start, segment.end) == (0, length)
        least = options.min_segment_length if whole else options.min_new_segment_length
        if (segment.end - segment.start) * options.frame_length >= least - 1e-9:
            found.append(segment)
    return found


@dataclass
class _Piece:
    """Edits without errors; before and behind them an error or None; and the words in the text, deleted ones that are kept too."""

    edits: list[Edit]
    before: Edit | None = None
    behind: Edit | None = None


def _pieces(edits: list[Edit], options: SegmentOptions) -> list[_Piece]:
    """Cut at errors, but for deletions between two words without a pause, and at long silences and noises."""
    pieces = [_Piece([])]
    for edit in _with_deletions(edits, options):
        if edit.wrong:
            pieces[-1].behind = edit if pieces[-1].edits else None
            if pieces[-1].edits:
                pieces.append(_Piece([], edit))
            else:
                pieces[-1].before = edit
        elif not edit.scored and edit.frames * options.frame_length > (
                options.max_internal_silence_length if edit.kind == "sil" else options.max_internal_non_scored_length):
            half = edit.frames // 2
            pieces[-1].edits.append(replace(edit, frames=half))
            pieces.append(_Piece([replace(edit, start=edit.start + half, frames=edit.frames - half)]))
        else:
            pieces[-1].edits.append(edit)
    return [piece for piece in pieces if piece.edits]


def _with_deletions(edits: list[Edit], options: SegmentOptions) -> list[Edit]:
    """The edits, where deletions between two right words are no errors: few are words without frames, more are left out."""
    found: list[Edit] = []
    n = 0
    while n < len(edits):
        end = n
        while end < len(edits) and edits[end].kind == "del":
            end += 1
        if end == n:
            found.append(edits[n])
            n += 1
            continue
        sure = [0 <= m < len(edits) and edits[m].kind in ("cor", "fix") and edits[m].scored and not edits[m].unknown for m in (n - 1, end)]
        if all(sure):
            if end - n <= options.max_deleted_words_kept_when_merging:
                found += [replace(edit, kind="cor") for edit in edits[n:end]]
        else:
            found += edits[n:end]
        n = end
    return found


def _trimmed(piece: _Piece, oov: str, options: SegmentOptions) -> Segment | None:
    """The segment of a piece, with its edges shortened; None where no word in it is right."""
    sure = [n for n, edit in enumerate(piece.edits) if edit.scored and edit.frames and not edit.unknown]
    if not sure:
        return None
    left, start, junk_before, unknown_before = _edge(piece.edits[:sure[0]][::-1], piece.edits[sure[0]].start, -1, piece.before, options)
    right, end, junk_behind, unknown_behind = _edge(piece.edits[sure[-1] + 1:], piece.edits[sure[-1]].end, 1, piece.behind, options)
    if junk_before + junk_behind > options.max_junk_proportion * (end - start):
        start, end = start + junk_before, end - junk_behind
        unknown_before = unknown_behind = False
    inner = piece.edits[sure[0]:sure[-1] + 1]
    words = [edit.ref for edit in [*left[::-1], *inner, *right] if edit.ref != EPSILON]
    return Segment(start, end, (*([oov] if unknown_before else []), *words, *([oov] if unknown_behind else [])))


def _edge(edits: list[Edit], at: int, way: int, error: Edit | None, options: SegmentOptions) -> tuple[list[Edit], int, int, bool]:
    """What stays beyond the outermost sure word, which ends at frame `at`; `way` is 1 to the right, -1 to the left.

    Returns the edits whose words stay, the edge's frame, the frames of junk before it, and whether an unknown word stands there.
    """
    def frames(seconds: float) -> int:
        return round(seconds / options.frame_length)

    if error is not None:
        if edits:  # silence, noise or an unknown word beside an error
            junk = min(sum(edit.frames for edit in edits), frames(options.max_tainted_length))
            return [], at + way * junk, junk, False
        junk = min(error.frames, frames(options.unk_padding))
        return [], at + way * junk, junk, junk > 0
    kept: list[Edit] = []
    quiet = noise = 0
    for edit in edits:
        if edit.scored:  # an unknown word at the utterance's own edge, all right
            room = edit.frames
        elif edit.kind == "sil":
            room = min(edit.frames, frames(options.max_edge_silence_length) - quiet)
            quiet += room
        else:
            room = min(edit.frames, frames(options.max_edge_non_scored_length) - noise)
            noise += room
        if room > 0:
            kept.append(edit)
            at += way * room
        if room < edit.frames:
            break
    return kept, at, 0, False
