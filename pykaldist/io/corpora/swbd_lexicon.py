"""The lexicon of Mississippi State's transcripts of Switchboard, and acronyms.

The transcripts write an acronym as one word in large letters (IBM, PCs, CD's), and a spelled letter as one (W). In small letters they would
fall together with words (us, it), and NIST's references have each letter by itself. So a word whose pronunciation is that of its letters
becomes `i._b._m.`, `p._c.s`, `c._d.'s`, `w.`, as Fisher's transcripts write them; before scoring its letters are taken apart again. I is a
letter only beside another one (C I A). All other words are put in small letters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.tables import read_lines

NOISES: Lexicon = {"!sil": [("sil",)], "[vocalized-noise]": [("spn",)], "<unk>": [("spn",)], "[noise]": [("nsn",)],
                   "[laughter]": [("lau",)]}
ACRONYMS = "acronyms.txt"
"""The file of a dictionary directory with each acronym as the transcripts have it, as the lexicon has it, and its letters for scoring."""

Acronyms = dict[str, str]
"""IBM -> i._b._m."""


def read_dictionary(path: str | os.PathLike[str], rules: Rules) -> Lexicon:
    """The words of sw-ms98-dict.text, in large and small letters as they stand, after `rules`, without silence and the file's head.

    Raises UserError for a word without phones.
    """
    lexicon: Lexicon = {}
    for number, line in enumerate(read_lines(path), 1):
        word, *phones = line.split() or ["#"]
        if word.startswith("#") or word == "file:":
            continue
        if not phones:
            raise UserError(f"{path}, line {number}: expected a word and its phones, found {line!r}.")
        word = rules(word)
        if word and word.lower() not in NOISES and phones != ["sil"]:
            variants = lexicon.setdefault(word, [])
            if tuple(phones) not in variants:
                variants.append(tuple(phones))
    return lexicon


def find_acronyms(lexicon: Lexicon, letters: Lexicon) -> Acronyms:
    """The words in large letters, perhaps with s or 's behind, that have the pronunciation of their letters; `letters`: W -> its own."""
    spelled = {letter: variants[0] for letter, variants in letters.items()}
    found = {letter: f"{letter.lower()}." for letter in spelled}
    for word, variants in lexicon.items():
        match = re.fullmatch(r"([A-Z]+)('?s)?", word)
        if match and all(letter in spelled for letter in match[1]):
            own = tuple(phone for letter in match[1] for phone in spelled[letter])
            endings = ((*own, "s"), (*own, "z")) if match[2] else (own,)
            if any(phones in endings for phones in variants):
                found[word] = "._".join(match[1].lower()) + "." + (match[2] or "")
    return found


def spoken_letters(acronym: str) -> list[str]:
    """The words that NIST's references have for an acronym: `i._b._m.` -> i b m, `c._d.s` and `c._d.'s` -> c d's."""
    *first, last = acronym.replace("_", "").split(".")
    words = [letter for letter in first if letter]
    return [*words[:-1], words[-1] + ("'s" if last else "")]


def written_words(words: Sequence[str], acronyms: Mapping[str, str]) -> list[str]:
    """Words of a transcript as the lexicon has them: acronyms, and all others in small letters."""
    alone = [re.fullmatch("[A-Z]", word) is not None for word in words]
    beside = [any(alone[max(i - 1, 0) : i]) or any(alone[i + 1 : i + 2]) for i in range(len(words))]
    return [acronyms[word] if word in acronyms and (word != "I" or near) else word.lower()
            for word, near in zip(words, beside, strict=True)]


def write_lexicon(source: str | os.PathLike[str], letters: str | os.PathLike[str], rules: Rules, folder: str | os.PathLike[str]) -> tuple[
        set[str], Acronyms]:
    """Write the dictionary directory of the transcripts' dictionary; returns its words, and the acronyms.

    `letters`: a lexicon of the single letters. Raises UserError for a dictionary that is damaged, or has no words.
    """
    found, single = read_dictionary(source, rules), read_lexicon(letters)
    if not found:
        raise UserError(f"{source} has no words; fetch the transcripts again.")
    for letter, variants in single.items():
        found[letter] = list(dict.fromkeys([*found.get(letter, []), *variants]))
    acronyms = find_acronyms(found, single)
    lexicon: Lexicon = {}
    for word, variants in found.items():
        written = lexicon.setdefault(acronyms.get(word, word.lower()), [])
        written += [phones for phones in variants if phones not in written]
    lexicon.setdefault("i", []).extend(phones for phones in single["I"] if phones not in lexicon["i"])
    write_dict(folder, lexicon, NOISES)
    write_text(Path(folder) / ACRONYMS, "".join(f"{word} {written} {' '.join(spoken_letters(written))}\n"
                                                for word, written in sorted(acronyms.items())))
    return set(lexicon) | set(NOISES), acronyms


def read_acronyms(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """What is scored for an acronym of the lexicon, of a file that `write_lexicon` made: i._b._m. -> i b m."""
    fields = [line.split() for line in read_lines(path)]
    if any(len(row) < 3 for row in fields):
        raise UserError(f"{path}: expected a word, an acronym and its letters on each line; make the dictionary again "
                        "(local/prepare_data.sh).")
    return {row[1]: row[2:] for row in fields}
