"""Clean-up of training data: utterances decoded with language models biased towards their transcripts, and what comes of it.

Of each lattice the path is taken that is nearest to the transcript. Where both differ, the speech does not say what is written, or the
model does not hear it. steps/cleanup/clean_and_segment_data.sh makes a data directory of the parts where they agree, find_bad_utts.sh a
list of utterances with the worst first.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import AcousticModel
from pykaldist.decode.biased_lm import BiasedGraphs, BiasedLmOptions, groups_of
from pykaldist.decode.ctm import Spoken, WordTimer
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.oracle import oracle_path
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import EPSILON, LangDir
from pykaldist.io.tables import read_lines
from pykaldist.progress import Progress
from pykaldist.score.alignment import GAP
from pykaldist.score.details import operation_details, speaker_details, utterance_details
from pykaldist.score.edits import Edit, edits_of, non_scored_words
from pykaldist.score.good_segments import SegmentOptions, good_segments


def decoded(data: DataDir, utts: list[str], lang: LangDir, graphs: BiasedGraphs, acoustic: AcousticModel, timer: WordTimer,
            lm_options: BiasedLmOptions, options: DecoderOptions) -> Iterator[tuple[str, list[Spoken]]]:
    """Iterate over (utterance, words and silences in time of the path that is nearest to its transcript).

    An utterance on which no path reaches the end is named and left out. Raises UserError where that is so of every one.
    """
    words = {utt: lang.word_ids(data.text[utt])[0] for utt in utts}
    done = 0
    with Progress("decoding with biased language models", len(utts), "utt") as bar:
        for group in groups_of(utts, words, lm_options.min_words_per_graph):
            decoder = LatticeDecoder(graphs.graph([words[utt] for utt in group]), acoustic.tid2pdf, options)
            for utt in group:
                bar.update()
                lattice = decoder.decode(acoustic.loglikes(acoustic.features(data, utt)))
                if lattice is None or not lattice.reached_final:
                    print(f"WARNING: {utt}: {'no path survived the beam' if lattice is None else 'no final state was reached'}; left out")
                    continue
                path = oracle_path(determinize(lattice, options.acwt, options.lattice_beam), words[utt])
                done += 1
                yield utt, timer.spoken(path.words, path.transition_ids)
    if utts and not done:
        raise UserError(f"none of the {len(utts)} utterances could be decoded; do the model, the language directory and {data.path} belong "
                        "together?")


def write_edits(path: Path, found: Iterable[tuple[str, list[Edit]]], frame_shift: float) -> int:
    """Write a job's edits; returns the number of utterances."""
    lines, count = [], 0
    for utt, edits in found:
        count += 1
        flags = [" " + " ".join(name for name, on in (("noise", not edit.scored and edit.kind != "sil"), ("unk", edit.unknown)) if on)
                 for edit in edits]
        lines += [(edit.line(utt, frame_shift) + flag).rstrip() + "\n" for edit, flag in zip(edits, flags, strict=True)]
    write_text(path, "".join(lines))
    return count


def edits_of_jobs(folder: Path, frame_shift: float) -> dict[str, list[Edit]]:
    """Read the edits of all jobs: utterance -> edits. Raises UserError where there are none, and for a line of another form."""
    found: dict[str, list[Edit]] = {}
    paths = [path for path in folder.glob("ctm_edits.*") if path.suffix[1:].isdecimal()]
    if not paths:
        raise UserError(f"{folder} has no ctm_edits.*; run steps/cleanup/clean_and_segment_data.sh from its beginning.")
    for path in sorted(paths, key=lambda path: int(path.suffix[1:])):
        for number, line in enumerate(read_lines(path), 1):
            fields = line.split()
            try:
                utt, _, start, seconds, hyp, _, ref, kind, *flags = fields
                hyp, ref, kind = map(sys.intern, (hyp, ref, kind))  # a corpus has millions of them
                edit = Edit(round(float(start) / frame_shift), round(float(seconds) / frame_shift), hyp, ref, kind,
                            kind != "sil" and "noise" not in flags, "unk" in flags)
            except (ValueError, OverflowError) as error:
                raise UserError(f"{path}, line {number}: expected `utterance 1 start seconds hyp 1.0 ref kind`, found {line!r}.") from error
            found.setdefault(utt, []).append(edit)
    return found


@dataclass
class CleanUp:
    """What a clean-up kept: utterances before, those of which nothing is left, segments, and seconds before and after."""

    utterances: int
    lost: int
    segments: int
    seconds: float
    kept_seconds: float

    def __str__(self) -> str:
        share = 100 * self.kept_seconds / max(self.seconds, 1e-9)
        return (f"{self.segments} segments of {self.utterances - self.lost} of {self.utterances} utterances, "
                f"{self.kept_seconds / 3600:.3f} of {self.seconds / 3600:.3f} h ({share:.1f} %)")


def write_segments(folder: Path, edits: dict[str, list[Edit]], oov: str, utterances: int, options: SegmentOptions) -> CleanUp:
    """Write `segments` and `text` of the good parts, `ctm_edits.segmented` and `word_stats.txt` (Kaldi's names)."""
    segments: list[str] = []
    texts: list[str] = []
    marked: list[str] = []
    bad, total = Counter[str](), Counter[str]()
    lost = utterances - len(edits)
    frames = kept = 0
    for utt in sorted(edits):
        found = good_segments(edits[utt], oov, options)
        lost += not found
        width = len(str(len(found)))
        frames += edits[utt][-1].end if edits[utt] else 0
        for number, part in enumerate(found, 1):
            name, shift = f"{utt}-{number:0{width}d}", options.frame_length
            segments.append(f"{name} {utt} {part.start * shift:.2f} {part.end * shift:.2f}\n")
            texts.append(f"{name} {' '.join(part.words)}\n")
            kept += part.end - part.start
        for edit in edits[utt]:
            inside = [n for n, part in enumerate(found, 1) if part.start <= edit.start and edit.end <= part.end]
            marked.append(f"{edit.line(utt, options.frame_length)}{f' segment-{inside[0]}' if inside else ''}\n")
            if edit.ref != EPSILON:
                total[edit.ref] += 1
                bad[edit.ref] += not inside or edit.wrong
    if not segments:
        raise UserError(f"nothing of the {utterances} utterances is left: nowhere do speech and transcript agree for "
                        f"{options.min_segment_length:g} s; check that they belong together, or train a better model first.")
    for name, lines in (("text", texts), ("segments", segments), ("ctm_edits.segmented", marked)):
        write_text(folder / name, "".join(lines))
    ordered = sorted(total, key=lambda word: (-bad[word] / total[word], -total[word], word))
    write_text(folder / "word_stats.txt", "".join(f"{word} {bad[word] / total[word]:.3f} {total[word]}\n" for word in ordered))
    return CleanUp(utterances, lost, len(segments), frames * options.frame_length, kept * options.frame_length)


def write_bad_utts(folder: Path, edits: dict[str, list[Edit]], data: DataDir) -> tuple[int, int]:
    """Write utterances with their errors, the worst first, and details (find_bad_utts.sh); returns the numbers of errors and of words.

    `all_info.txt` and `all_info.sorted.txt` have `utterance errors words said written`, with tabs between; `edits.txt`, `length.txt`,
    `aligned_ref.txt` and `text` have their columns, `analysis/` the details of scoring.
    """
    rows, details, counts, pairs = [], [], [], []
    for utt in sorted(edits):
        said = [edit.hyp for edit in edits[utt] if edit.hyp != EPSILON]
        written = data.text[utt]
        wrong = sum(edit.wrong for edit in edits[utt])
        rows.append((utt, wrong, len(written), " ".join(said), " ".join(written)))
        words = [(edit.ref, edit.ref if edit.kind == "cor" else edit.hyp) for edit in edits[utt] if edit.kind != "sil"]
        pairs.append([(GAP if ref == EPSILON else ref, GAP if hyp == EPSILON else hyp) for ref, hyp in words])
        text, count = utterance_details(utt, pairs[-1])
        details.append(text)
        counts.append((data.utt2spk[utt], count))
    lines = ["\t".join(map(str, row)) + "\n" for row in rows]
    order = np.argsort([-row[1] for row in rows], kind="stable")
    for name, content in (("all_info.txt", lines), ("all_info.sorted.txt", [lines[n] for n in order]),
                          ("edits.txt", [f"{row[0]} {row[1]}\n" for row in rows]), ("length.txt", [f"{row[0]} {row[2]}\n" for row in rows]),
                          ("aligned_ref.txt", [f"{row[0]} {row[3]}\n" for row in rows]), ("text", [f"{row[0]} {row[4]}\n" for row in rows]),
                          ("analysis/per_utt_details.txt", details), ("analysis/per_spk_details.txt", [speaker_details(counts)]),
                          ("analysis/ops_details.txt", [operation_details(pairs)])):
        write_text(folder / name, "".join(content))
    return sum(row[1] for row in rows), sum(row[2] for row in rows)


def edited(found: Iterable[tuple[str, list[Spoken]]], data: DataDir, lang: LangDir) -> Iterator[tuple[str, list[Edit]]]:
    """Iterate over (utterance, its edits)."""
    non_scored = non_scored_words(lang)
    for utt, spoken in found:
        yield utt, edits_of(spoken, data.text[utt], lang, non_scored)
