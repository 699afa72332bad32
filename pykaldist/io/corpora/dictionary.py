"""Writes dictionary directories (Kaldi's data/local/dict), from which utils/prepare_lang.sh makes a language directory."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.tables import read_lines

Pronunciations = list[tuple[str, ...]]
Lexicon = dict[str, Pronunciations]
"""Word -> its pronunciations."""

NOISE_WORDS: Lexicon = {"<SIL>": [("SIL",)], "<UNK>": [("SPN",)]}


def read_lexicon(path: str | os.PathLike[str]) -> Lexicon:
    """Read a lexicon: `word phone phone ...` on each line; a word may have several lines.

    Lines that begin with ;;; are comments, as in cmudict.

    Raises UserError for a word without phones.
    """
    lexicon: Lexicon = {}
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith(";;;"):
            continue
        word, *phones = line.split() or [""]
        if not phones:
            raise UserError(f"{path}, line {number}: expected a word and its phones, found {line!r}.")
        lexicon.setdefault(word, []).append(tuple(phones))
    return lexicon


def write_dict(folder: str | os.PathLike[str], lexicon: Lexicon, noise: Lexicon = NOISE_WORDS, stress: bool = False) -> None:
    """Write lexicon.txt and the lists of phones; `noise` are words of silence phones, the first of which is the optional silence.

    `stress`: a digit at the end of a phone is a mark of stress or tone. Phones that differ only in it share the root of a tree, and phones
    with the same mark make a question, as in Kaldi's recipes.
    """
    path = Path(folder)
    for old in ("lexiconp.txt", "lexicon.txt"):
        (path / old).unlink(missing_ok=True)
    silence = list(dict.fromkeys(phone for variants in noise.values() for phones in variants for phone in phones))
    spoken = {phone for variants in lexicon.values() for phones in variants for phone in phones}
    overlap = spoken & set(silence)
    if overlap:
        raise UserError(f"the lexicon's words have the silence phone {min(overlap)}; rename it.")
    _write(path / "silence_phones.txt", silence)
    _write(path / "optional_silence.txt", silence[:1])
    roots, marks = defaultdict(list), defaultdict(list)
    for phone in sorted(spoken):
        bare = re.sub(r"\d$", "", phone) if stress else phone
        roots[bare].append(phone)
        marks[phone[len(bare):]].append(phone)
    _write(path / "nonsilence_phones.txt", map(" ".join, roots.values()))
    _write(path / "extra_questions.txt", map(" ".join, [silence, *(marks[mark] for mark in sorted(marks))]) if stress else [])
    _write(path / "lexicon.txt", sorted({f"{word} {' '.join(phones)}" for words in (noise, lexicon) for word, variants in words.items()
                                         for phones in variants}))


def _write(path: Path, lines: Iterable[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))
