"""Times and confidences of the words of a lattice's best path (CTM files).

The words' places follow from the path's phones by the pronunciations in `phones/align_lexicon.int`, as Kaldi's lattice-align-words-lexicon
finds them: optional silences belong to no word. Confidences are those of `confidence.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.confidence import confidences
from pykaldist.decode.lattice import Lattice, read_decode_dir
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, SymbolTable
from pykaldist.options import option
from pykaldist.progress import progress

FRAME_SHIFT = 0.01  # seconds from frame to frame of features


def frame_shift_of(model_dir: Path) -> float:
    """The seconds from frame to frame of the lattices that a directory's model makes, from features of Kaldi's frame shift."""
    return FRAME_SHIFT * read_subsampling(model_dir)


@dataclass
class CtmOptions:
    """The options of CTM files, with Kaldi's names (steps/get_ctm.sh)."""

    min_lmwt: int = option(4, "lowest language model weight (the acoustic scale is one over it)")
    max_lmwt: int = option(15, "highest language model weight")
    frame_shift: float | None = option(None, "seconds from frame to frame (0.01, times the model's frame_subsampling_factor)")

    def check(self) -> None:
        """Check the options; raises UserError for a value that cannot work."""
        if not (1 <= self.min_lmwt <= self.max_lmwt and (self.frame_shift is None or self.frame_shift > 0)):
            raise UserError(f"expected 1 <= min-lmwt <= max-lmwt and frame-shift > 0, found {self.min_lmwt}, {self.max_lmwt} and "
                            f"{self.frame_shift}.")


@dataclass
class TimedWord:
    """A word, its first frame, its number of frames, and its probability."""

    word: int
    start: int
    frames: int
    confidence: float


@dataclass
class Spoken:
    """A word, or a silence (word 0), with its first frame, its number of frames, and its phones."""

    word: int
    start: int
    frames: int
    phones: tuple[int, ...]


class WordTimer:
    """Finds the times of a lattice's words, for one language (or graph) directory and transition model."""

    def __init__(self, lang: LangDir, model: TransitionModel) -> None:
        self._model, self._lang = model, lang
        self._prons: dict[int, list[tuple[int, ...]]] = {}
        self._modelled = set(lang.modelled_words)  # these have any phones
        for word, phones in lang.align_lexicon:
            if word not in self._modelled:
                self._prons.setdefault(word, []).append(tuple(phones))

    def place(self, words: Sequence[int], phones: tuple[int, ...]) -> list[tuple[int, int]]:
        """Find (first phone, number of phones) of each word; the last word may be cut short. Raises UserError where they do not fit."""
        silences = self._prons.get(0, [])
        dead: set[tuple[int, int]] = set()
        # Depth first over (words placed, phones used); the places of the words so far are in the chain behind a node.
        stack: list[tuple[int, int, tuple]] = [(0, 0, ())]
        while stack:
            done, used, chain = stack.pop()
            if done == len(words) and used == len(phones):
                places: list[tuple[int, int]] = []
                while chain:
                    place, chain = chain
                    places.append(place)
                return places[::-1]
            if (done, used) in dead:
                continue
            dead.add((done, used))
            if done < len(words):
                stack += [(done + 1, used + length, ((used, length), chain))
                          for length in self._lengths(words[done], phones, used, done == len(words) - 1)]
            stack += [(done, used + len(pron), chain) for pron in silences if pron and phones[used : used + len(pron)] == pron]
        raise UserError(f"the phones of the path do not spell its words by {self._lang.path}/phones/align_lexicon.int; use the language "
                        "directory of the decoding graph.")

    def _lengths(self, word: int, phones: tuple[int, ...], used: int, last: bool) -> Iterator[int]:
        """How many phones from `used` on may be the word's; the `last` word may be cut short."""
        for pron in self._prons.get(word, ()):
            rest = phones[used : used + len(pron)]
            if rest == pron or (last and 0 < len(rest) < len(pron) and pron[: len(rest)] == rest):
                yield len(rest)
        if word not in self._modelled:
            return
        boundary, silence = self._lang.word_boundary, {phone for pron in self._prons.get(0, ()) for phone in pron}
        for length, phone in enumerate(phones[used:], 1):
            kind = boundary[phone] if boundary is not None else "nonword" if phone in silence else "any"
            if kind in ("end", "singleton", "any") or (last and kind != "nonword" and used + length == len(phones)):
                yield length
            if kind not in ("begin", "internal", "any"):
                return

    def spoken(self, words: Sequence[int], transition_ids: np.ndarray) -> list[Spoken]:
        """The words of an alignment, and each silence before, between and behind them (word 0), in time.

        Raises UserError where words and phones do not fit.
        """
        phones, starts, frames = (column.tolist() for column in phone_segments(transition_ids, self._model))
        places = self.place(words, tuple(phones))
        found: list[Spoken] = []
        used = 0
        for word, (first, count) in [*zip(words, places, strict=True), (0, (len(phones), 0))]:
            found += [Spoken(0, starts[i], frames[i], (phones[i],)) for i in range(used, first)]
            used = first + count
            if count:
                found.append(Spoken(word, starts[first], sum(frames[first:used]), tuple(phones[first:used])))
        return found

    def words(self, lattice: Lattice, acoustic_scale: float) -> list[TimedWord]:
        """Find the words of the best path in time.

        Raises ValueError where there is no path, UserError where the model or lexicon does not fit.
        """
        path = best_path(lattice, acoustic_scale)
        sure, _ = confidences(lattice, path.words, acoustic_scale)
        said = [part for part in self.spoken(path.words, path.transition_ids) if part.word]
        return [TimedWord(part.word, part.start, part.frames, float(p)) for part, p in zip(said, sure, strict=True)]


def ctm_lines(timer: WordTimer, words: SymbolTable, utt: str, lattice: Lattice, acoustic_scale: float, frame_shift: float,
              recording: str | None = None, begin: float = 0.0) -> list[tuple[str, float, str]]:
    """The lines of an utterance that begins at `begin` seconds: (recording, start, line) for each word.

    A line is `recording start seconds word confidence`.

    `recording` is a file and a channel; without it, the utterance and 1.
    """
    recording = recording or f"{utt} 1"
    try:
        timed = timer.words(lattice, acoustic_scale)
    except UserError as error:
        raise UserError(f"utterance {utt}: {error}") from error
    starts = [begin + w.start * frame_shift for w in timed]
    return [(recording, start, f"{recording} {start:.2f} {w.frames * frame_shift:.2f} {words.symbol(w.word)} {w.confidence:.2f}\n")
            for start, w in zip(starts, timed, strict=True)]


def write_ctms(data: DataDir, lang: LangDir, decode_dir: str | os.PathLike[str], options: CtmOptions) -> list[Path]:
    """Write `score_<lmwt>/<name of data>.ctm` in `decode_dir` for each weight, sorted by recording and time; returns the files.

    Where the data directory has segments, times count from the recording's start, and `reco2file_and_channel`, if there is one, names file
    and channel. Raises UserError where lattices, model and lexicon do not fit.
    """
    options.check()
    decode_dir = Path(decode_dir)
    timer = WordTimer(lang, read_transition_model(decode_dir.parent / "final.mdl"))
    frame_shift = options.frame_shift or frame_shift_of(decode_dir.parent)
    weights = range(options.min_lmwt, options.max_lmwt + 1)
    channels = data.table("reco2file_and_channel") if data.has("reco2file_and_channel") else {}
    segments = data.segments if data.has("segments") else {}
    lines: dict[int, list[tuple[str, float, str]]] = {lmwt: [] for lmwt in weights}
    for utt, lattice in progress(read_decode_dir(decode_dir), "word times", total=len(data.utt2spk), unit="utt"):
        recording, begin, _ = segments.get(utt, (utt, 0.0, 0.0))
        for lmwt in weights:
            lines[lmwt] += ctm_lines(timer, lang.words, utt, lattice, 1 / lmwt, frame_shift,
                                     channels.get(recording, f"{recording} 1"), begin)
    paths = []
    for lmwt, found in lines.items():
        paths.append(decode_dir / f"score_{lmwt}/{data.path.resolve().name}.ctm")
        write_text(paths[-1], "".join(line for _, _, line in sorted(found, key=lambda entry: entry[:2])))
    return paths
