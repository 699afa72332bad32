"""Fisher English, parts 1 and 2 (LDC2004S13, LDC2004T19, LDC2005S13, LDC2005T19), of AN4: a call is what two of its speakers have read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layouts.speech import an4, lines, some
from layouts.swbd import channel, fisher, stereo

PACKAGES = (("LDC2004S13/fisher_eng_tr_sp_d1", "LDC2004T19/fe_03_p1_tran"), ("LDC2005S13/fe_03_p2_sph1", "LDC2005T19/fe_03_p2_tran"))


def call(folder: Path, part: int, number: int, sides: Sequence[list]) -> Path:
    """fe_03_<number>.sph and its transcript, with segments of both sides by their times; returns the path of the transcript."""
    name, (speech, transcripts) = f"fe_03_{number:05d}", PACKAGES[part]
    made = [channel(side) for side in sides]
    stereo(folder / speech / f"audio/{number // 100:03d}/{name}.sph", [samples for samples, _ in made])
    rows = sorted((begin, end, f"{letter}: {words}") for letter, (_, said) in zip("AB", made, strict=True) for begin, end, words in said)
    path = folder / transcripts / f"data/trans/{number // 100:03d}/{name}.txt"
    lines(path, [f"# {name}.sph", "# Transcribed at the LDC", "", *(f"{begin:.2f} {end:.2f} {words}" for begin, end, words in rows)])
    return path


def lay_out(shared: Path, folder: Path, speakers: int, each: int, skip: int) -> None:
    """`folder`/LDC200*: so many speakers of AN4, an even number, after `skip`; laughter, breath and doubtful words among theirs."""
    utterances = some(an4(shared), speakers, each, skip)
    names = list(dict.fromkeys(utterance.speaker for utterance in utterances))
    sides = [[(one.samples(8000), fisher(one)) for one in utterances if one.speaker == name] for name in names]
    marks = ("[breath] {}", "{} [laugh]", "(( {} ))")  # the last is left out
    for i in range(0, len(sides), 2):
        odd = [(samples, marks[j % 3].format(words) if i == 0 else words) for j, (samples, words) in enumerate(sides[i])]
        call(folder, i % 4 // 2, i // 2 + 1, [odd, sides[i + 1]])
