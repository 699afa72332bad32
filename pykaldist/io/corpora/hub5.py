"""NIST's tests of conversational telephone speech: Hub5 2000 and 2001, RT-03; two sides a recording, with references (stm, glm).

A set's data directory has the segments of the evaluation's list (pem; without one, of the reference), and in `stm` and `glm` what NIST's
scoring takes. lhotse's recipe for Hub5 2000 reads other transcripts of it, and has neither list nor reference. Names are Kaldi's.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.packages import check_recordings, find_files, left_out, listed, package
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.corpora.telephone import RATE, SIDES, Segment, write_sides
from pykaldist.io.tables import read_lines

IGNORED = "ignore_time_segment_in_scoring"
GAP = "inter_segment_gap"
PADDING = 0.1  # seconds that segments of the evaluation's list are widened by, as in Kaldi's recipe; no further than half of a gap
AGREEING = 0.9  # share of the reference's segments that the evaluation's list must have


@dataclass(frozen=True)
class Package:
    """A package of the consortium: number, title, option that names its folder, patterns of files to be found in it."""

    number: str
    title: str
    option: str
    needed: tuple[str, ...]


@dataclass(frozen=True)
class TestSet:
    """Where a test set is: the audio's package, and those of the reference; `pem` is the pattern of the evaluation's list, or empty."""

    audio: Package
    reference: Package
    stm: str
    rules: Package
    glm: str
    pem: str = ""


_SPEECH = Package("LDC2002S09", "2000 HUB5 English Evaluation Speech", "eval2000", ("hub5e_00.pem",))
_TRANSCRIPTS = Package("LDC2002T43", "2000 HUB5 English Evaluation Transcripts", "eval2000-transcripts",
                       ("hub5e00.english.000405.stm", "en20000405_hub5.glm"))
_HUB5_2001 = Package("LDC2002S13", "2001 HUB5 English Evaluation", "eval2001", ("hub5e_01.pem", "hub5e01.english.*.stm"))
_RT03 = Package("LDC2007S10", "2003 NIST Rich Transcription Evaluation Data", "rt03",
                ("audio/eval03/english/cts", "references/eval03/english/cts/*.stm", "en20030506.glm"))
SETS = {
    "eval2000": TestSet(_SPEECH, _TRANSCRIPTS, _TRANSCRIPTS.needed[0], _TRANSCRIPTS, _TRANSCRIPTS.needed[1], _SPEECH.needed[0]),
    "eval2001": TestSet(_HUB5_2001, _HUB5_2001, _HUB5_2001.needed[1], _TRANSCRIPTS, _TRANSCRIPTS.needed[1], _HUB5_2001.needed[0]),
    "rt03": TestSet(_RT03, _RT03, _RT03.needed[1], _RT03, _RT03.needed[2]),
}


def read_pem(path: str | os.PathLike[str]) -> list[Segment]:
    """The segments of an evaluation's list, `en_4156 A unknown_speaker 301.85 302.48`; comments begin with ;;. Each stands once."""
    found: dict[str, Segment] = {}
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith(";;"):
            fields = line.split()
            try:
                segment = Segment(fields[0].lower(), _side(fields[1]), float(fields[3]), float(fields[4]))
            except (IndexError, ValueError) as error:
                raise UserError(f"{path}, line {number}: expected file, side, speaker, begin and end, found {line!r}; fetch it "
                                "again.") from error
            found.setdefault(segment.utterance, segment)
    return sorted(found.values(), key=lambda one: one.utterance)


def read_stm(paths: Iterable[Path], rules: Rules) -> tuple[list[str], list[Segment]]:
    """The lines of references for NIST's scoring, after `rules`, and the segments that are scored, with their words.

    Sides are A and B, where RT-03 has 1 and 2; gaps between segments are left out. Raises UserError for a line that is no reference.
    """
    lines, segments = [], []
    for path in paths:
        for number, text in enumerate(read_lines(path), 1):
            if not text.strip() or text.startswith(";;"):
                if text not in lines:  # every file names its labels
                    lines.append(text)
                continue
            fields = rules(text).split()
            if len(fields) > 2 and fields[2].lower() == GAP:
                continue
            try:
                segment = Segment(fields[0].lower(), _side(fields[1]), float(fields[3]), float(fields[4]), tuple(fields[6:]))
            except (IndexError, ValueError) as error:
                raise UserError(f"{path}, line {number}: expected file, side, speaker, begin, end, <labels> and words, found {text!r}; "
                                "fetch it again.") from error
            lines.append(" ".join([fields[0], segment.side, *fields[2:]]))
            if not (segment.words and segment.words[0].lower() == IGNORED):
                segments.append(segment)
    return lines, segments


def _side(text: str) -> str:
    side = {"1": "A", "2": "B"}.get(text.rstrip(":").upper(), text.rstrip(":").upper())
    if side not in SIDES or len(side) != 1:
        raise ValueError(f"side {text}")
    return side


def widened(segments: Sequence[Segment], padding: float) -> dict[str, tuple[float, float]]:
    """Utterance -> times, up to `padding` seconds more at both ends, but no further than half of the gap to its side's next segment."""
    sides: dict[str, list[Segment]] = {}
    for segment in sorted(segments, key=lambda one: one.start):
        sides.setdefault(segment.recording, []).append(segment)
    times = {}
    for side in sides.values():
        gaps = [float("inf"), *(max(after.start - before.end, 0.0) for before, after in itertools.pairwise(side)), float("inf")]
        for segment, (before, after) in zip(side, itertools.pairwise(gaps), strict=True):
            times[segment.utterance] = (max(segment.start - min(padding, before / 2), 0.0), segment.end + min(padding, after / 2))
    return times


def prepare(name: str, corpus: str, folders: dict[str, str], data: str | os.PathLike[str],
            stm_rules: str | os.PathLike[str]) -> Iterable[str]:
    """Write <data>/<name> of a test set (SETS), with `stm` and `glm`; yields lines that say what came out.

    `folders`: the folders of packages that are not below `corpus`, by their options; `stm_rules`: the table of rules for references.
    Raises UserError for what is not there, damaged, or does not belong together.
    """
    chosen, data = SETS[name], Path(data) / name

    def files(of: Package) -> tuple[Path, dict[str, Path]]:
        folder, paths = package(Path(folders.get(of.option) or corpus), of.number, of.title, of.option, of.needed)
        return folder, dict(zip(of.needed, paths, strict=True))

    folder, found = files(chosen.audio)
    if chosen.reference is not chosen.audio:
        found.update(files(chosen.reference)[1])
    if chosen.rules is not chosen.reference:
        found.update(files(chosen.rules)[1])
    lines, scored = read_stm(sorted(found[chosen.stm].parent.glob("*.stm")) if name == "rt03" else [found[chosen.stm]], Rules(stm_rules))
    recordings = find_files(next((path for path in found.values() if path.is_dir()), folder), ".sph", "recordings")
    headers = check_recordings(recordings, RATE)
    listed_segments = read_pem(found[chosen.pem]) if chosen.pem else scored
    segments = {one.utterance: one for one in listed_segments}
    texts = {one.utterance: " ".join(one.words).lower() for one in scored}
    both = segments.keys() & texts.keys()
    if len(both) < AGREEING * len(texts):
        raise UserError(f"{found[chosen.pem]} has {len(both)} of the {len(texts)} segments that {found[chosen.stm]} has; they are of "
                        "different releases: fetch both again.")
    heard = sorted({one.file for one in scored} - set(recordings))
    if heard:
        raise UserError(f"{folder} has no audio of {listed(heard)}, which {found[chosen.stm]} names; a part of {chosen.audio.number} "
                        "is missing.")
    mono = sorted({one.recording for one in scored if SIDES.index(one.side) >= headers[one.file].channels})
    if mono:
        raise UserError(f"{recordings[mono[0][:-2]]} has one channel, and {found[chosen.stm]} has its side B; {len(mono)} of the sides "
                        f"that are scored have no channel. Fetch {chosen.audio.number} again.")
    empty = [utt for utt in both if not texts[utt]]
    kept = sorted(both - set(empty))
    times = widened([segments[utt] for utt in kept], PADDING if chosen.pem else 0.0)
    made = write_sides(data, recordings, headers, [segments[utt] for utt in kept], texts, times)
    write_text(data / "stm", "".join(f"{line}\n" for line in lines))
    (data / "glm").write_bytes(found[chosen.glm].read_bytes())
    twice = [utt for utt, count in Counter(one.utterance for one in scored).items() if count > 1]
    if twice:
        yield f"{name}: segments that the reference has twice, {listed(twice)}; NIST's scoring counts both"
    yield from left_out(data.parent / "local" / name, (
        ("segments_without_words", f"{name}: segments without words", sorted(empty)),
        ("segments_not_listed", f"{name}: segments of the reference that the list lacks", sorted(texts.keys() - both)),
        ("audio_without_transcripts", f"{name}: recordings without reference", sorted(set(recordings) - {one.file for one in scored}))))
    yield (f"{made['utterances']:,} utterances of {made['speakers']:,} speakers (sides) of {len({one.file for one in scored}):,} "
           f"conversations, {made['hours']:.1f} h, in {data}")
