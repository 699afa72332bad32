"""Resource Management (LDC93S3A): three discs with their documents; of AN4."""

from __future__ import annotations

from pathlib import Path

from layouts.speech import Utterance, an4, an4_lexicon, lines, some, words_of, write

TESTS = ("1_mar87", "2_oct87", "4_feb89", "5_oct89", "6_feb91", "7_sep92")
END = "SENTENCE-END"


def lay_out(shared: Path, folder: Path, speakers: int = 10, each: int = 8) -> None:
    """`folder`/{rm1_audio1,rm1_audio2,rm2_audio}; some speakers are in two test sets, as one is on the discs.

    `speakers`: of the training data, with `each` utterances.
    """
    train, development = some(an4(shared), speakers, each), some(an4(shared), 3, 8, speakers)
    tested = some(an4(shared, "test"), 7, 4)
    disc1, disc2 = folder / "rm1_audio1/rm1", folder / "rm1_audio2/2_4_2"
    numbers: dict[str, int] = {}
    for place, utterances in ((disc1 / "ind_trn", train), (disc2 / "rm1/ind/dev_aug", development), (disc2 / "rm1/ind/tests", tested)):
        for utterance in utterances:
            name = f"sr{numbers.setdefault(utterance.name, len(numbers) + 1):03d}"
            write(place / f"{speaker(utterance)}_5" / f"{name}.sph", utterance.samples(), 16000, "NIST")
    for i, test in enumerate(TESTS):
        own = tested[len(tested) * i // len(TESTS) : len(tested) * (i + 1) // len(TESTS)]
        lines(disc2 / f"rm1/doc/tests/{test}/{test[0]}_indtst.ndx",
              [";; sentences of the test", *(f"rm1/ind/tests/{speaker(u)}_5/sr{numbers[u.name]:03d}.sph" for u in own)])
    everything = [*train, *development, *tested]
    lines(disc1 / "doc/al_sents.snr", [";; sentences", *(f"{u.text} (SR{numbers[u.name]:03d})" for u in everything)])
    listed = [";; speakers", *sorted({f"{speaker(u).upper()} {u.gender.upper()} NWE" for u in everything})]
    lines(folder / "rm1_audio2/2_5_1/rm1/doc/al_spkrs.txt", listed)
    lines(folder / "rm2_audio/3-1.2/rm2/doc/al_spkrs.txt", listed[:2])
    said = words_of(everything)
    lines(disc2 / "score/src/rdev/pcdsril.txt",
          ["; dictionary", *(f"{word.lower()} {' '.join(phones).lower()}" for word, phones in an4_lexicon(shared) if word in said)])
    follows: dict[str, set[str]] = {}
    for utterance in everything:
        for word, following in zip((END, *utterance.words), (*utterance.words, END), strict=True):
            follows.setdefault(word, set()).add(following)
    grammar = ["; word pairs: a word, and those that may follow it"]
    for word in sorted(follows):
        grammar += [f">{word}", *(f" {following}" for following in sorted(follows[word]))]
    lines(disc1 / "doc/wp_gram.txt", grammar)


def speaker(utterance: Utterance) -> str:
    """A speaker's name as on the discs: three letters and a number."""
    return utterance.speaker[:3] + str(sum(map(ord, utterance.speaker[3:])) % 10)
