"""TIMIT (LDC93S1): the speakers of its development and core test sets, and others for training; of AN4, with phones of its lexicon."""

from __future__ import annotations

from pathlib import Path

from layouts.speech import an4, an4_lexicon, lines, some, write

RATE = 16000
DEV, TEST = ("faks0", "mmdb1", "fjem0"), ("fdhc0", "mdab0", "felc0")  # as lhotse's recipe knows them
CLOSURES = {"b": "bcl", "d": "dcl", "g": "gcl", "p": "pcl", "t": "tcl", "k": "kcl"}


def phones_of(words: tuple[str, ...], lexicon: dict[str, list[str]]) -> list[str]:
    """TIMIT's phones of words: closures before stops, a glottal stop before words that begin with a vowel, silence at both ends."""
    found = ["h#"]
    for word in words:
        own = [phone.lower() for phone in lexicon[word]]
        found += ["q"] if own[0][0] in "aeiou" else []
        for phone in own:
            found += [CLOSURES[phone], phone] if phone in CLOSURES else [phone]
    return [*found, "h#"]


def lay_out(shared: Path, folder: Path, speakers: int, each: int, small_letters: bool = False) -> int:
    """`folder`/TRAIN and TEST; so many speakers for training, three each for development and test; returns how many sentences.

    `small_letters`: names of folders and files as in the release of 1990. Everybody reads two sentences (SA) that recipes leave out.
    """
    lexicon = {word: phones for word, phones in reversed(an4_lexicon(shared))}
    utterances = some(an4(shared), speakers + len(DEV) + len(TEST), each)
    own = list(dict.fromkeys(utterance.speaker for utterance in utterances))
    train = [f"{name[0]}trn{i}" for i, name in enumerate(own[:speakers])]
    names = dict(zip(own, [*train, *DEV, *TEST], strict=True))
    count: dict[str, int] = {}
    for utterance in utterances:
        name = names[utterance.speaker]
        number = count[name] = count.get(name, 0) + 1
        place = Path("TRAIN" if name in train else "TEST") / "DR1" / name.upper()
        samples, phones = utterance.samples(RATE), phones_of(utterance.words, lexicon)
        for stem in (f"SX{number}", *(("SA1",) if number == 1 else ())):
            path = Path(str(place / stem).lower() if small_letters else place / stem)
            suffix = (lambda s: s.lower()) if small_letters else (lambda s: s)
            write(folder / f"{path}{suffix('.WAV')}", samples, RATE, "NIST")
            step = len(samples) / len(phones)
            lines(folder / f"{path}{suffix('.PHN')}", [f"{round(i * step)} {round((i + 1) * step)} {one}" for i, one in enumerate(phones)])
            lines(folder / f"{path}{suffix('.TXT')}", [f"0 {len(samples)} {utterance.text.capitalize()}."])
            lines(folder / f"{path}{suffix('.WRD')}", [f"0 {len(samples)} {word.lower()}" for word in utterance.words])
    return len(utterances)
