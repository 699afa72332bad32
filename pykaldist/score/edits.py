"""What was said beside what is written, in time: a recognised path aligned with its transcript, for the clean-up of data.

An edit is a word or a silence with its frames and its kind: `cor`, `sub`, `ins`, `del` (without frames), `sil`, and `fix`: an insertion or
substitution that is no error, for which the transcript is changed. Files of them are Kaldi's ctm_edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pykaldist.decode.ctm import Spoken
from pykaldist.io.lang import EPSILON, LangDir
from pykaldist.score.alignment import align_places

LONGEST_REPETITION = 3  # words
ERRORS = ("sub", "ins", "del")


@dataclass(frozen=True, slots=True)
class Edit:
    """A word or silence: what was said (`hyp`), what is written (`ref`), both EPSILON where there is no word; its kind and its frames.

    `scored` is False for silences and for words that sound like silence, about which transcripts need not agree. `unknown`: what was
    recognised is the word for unknown words.
    """

    start: int
    frames: int
    hyp: str
    ref: str
    kind: str
    scored: bool = True
    unknown: bool = False

    @property
    def end(self) -> int:
        return self.start + self.frames

    @property
    def wrong(self) -> bool:
        """Whether it is an error."""
        return self.kind in ERRORS

    def line(self, utt: str, frame_shift: float) -> str:
        """A line of Kaldi's ctm_edits: utterance, 1, start, seconds, hyp, 1.0, ref, kind."""
        return f"{utt} 1 {self.start * frame_shift:.2f} {self.frames * frame_shift:.2f} {self.hyp} 1.0 {self.ref} {self.kind}"


def non_scored_words(lang: LangDir) -> set[str]:
    """The words whose every pronunciation is one silence phone, such as noises; but for the word for unknown words."""
    silent: dict[int, bool] = {}
    quiet = set(lang.silence_phones)
    for word, phones in lang.align_lexicon:
        silent[word] = silent.get(word, True) and len(phones) == 1 and phones[0] in quiet
    return {lang.words.symbol(word) for word, alone in silent.items() if alone and word} - {lang.oov}


def edits_of(spoken: Sequence[Spoken], reference: Sequence[str], lang: LangDir, non_scored: set[str]) -> list[Edit]:
    """Align what was said with a transcript; a word that the lexicon lacks is the word for unknown words."""
    oov = lang.oov
    known = [word if word in lang.words else oov for word in reference]
    said = [part for part in spoken if part.word]
    hyp = [lang.words.symbol(part.word) for part in said]
    pairs = align_places(known, hyp)
    found: list[Edit] = []
    place = time = 0
    for i, j in pairs:
        if j < 0:
            found.append(Edit(time, 0, EPSILON, reference[i], "del", reference[i] not in non_scored))
            continue
        while spoken[place] is not said[j]:  # the silences before it
            found.append(Edit(spoken[place].start, spoken[place].frames, EPSILON, EPSILON, "sil", False))
            place += 1
        part, word = spoken[place], hyp[j]
        kind = "ins" if i < 0 else "cor" if known[i] == word else "sub"
        found.append(Edit(part.start, part.frames, word, reference[i] if i >= 0 else EPSILON, kind, word not in non_scored, word == oov))
        place, time = place + 1, part.start + part.frames
    found += [Edit(part.start, part.frames, EPSILON, EPSILON, "sil", False) for part in spoken[place:]]
    return _fixed(found, non_scored)


def _fixed(edits: list[Edit], non_scored: set[str]) -> list[Edit]:
    """Errors that are none: words that sound like silence, and what was said again, where the transcript follows what was said."""
    kept = []
    for edit in edits:
        silent_ref = edit.ref == EPSILON or edit.ref in non_scored
        if edit.kind == "del" and silent_ref:
            continue
        if edit.kind in ("ins", "sub") and not edit.scored and silent_ref:
            edit = replace(edit, ref=edit.hyp, kind="fix")
        kept.append(edit)
    words = [n for n, edit in enumerate(kept) if edit.scored]
    for length in range(LONGEST_REPETITION, 0, -1):
        for first in range(len(words) - length + 1):
            block = words[first:first + length]
            if any(kept[n].kind != "ins" or kept[n].unknown for n in block):
                continue
            for other in (words[first - length:first] if first >= length else [], words[first + length:first + 2 * length]):
                if [kept[n].hyp for n in other] == [kept[n].hyp for n in block] and all(kept[n].kind in ("cor", "fix") for n in other):
                    for n in block:
                        kept[n] = replace(kept[n], ref=kept[n].hyp, kind="fix")
                    break
    return kept
