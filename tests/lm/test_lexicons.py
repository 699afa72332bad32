"""Lexicons of a corpus's words: graphemes, a given lexicon, and words that it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.lm.lexicons import of_file, of_graphemes

PHONES = {"b": "B", "d": "D", "k": "K", "m": "M", "s": "S", "t": "T", "a": "AA", "e": "EH", "i": "IY", "o": "OW"}


def syllables(number: int, seed: int) -> list[str]:
    """Different words of a regular spelling."""
    rng = np.random.default_rng(seed)
    return sorted({"".join(rng.choice(list("bdkmst")) + rng.choice(list("aeio")) for _ in range(rng.integers(2, 5)))
                   for _ in range(number)})


def sounds(word: str) -> tuple[str, ...]:
    return tuple(PHONES[letter] for letter in word)


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_each_letter_is_a_phone() -> None:
    found = of_graphemes(["don't", "añb", "añb"])
    assert found.lexicon == {"añb": [("a", "ñ", "b")], "don't": [("d", "o", "n'", "t")]}
    assert found.said == ["2 words of 7 graphemes"] and not found.without


def test_words_that_a_lexicon_lacks_are_pronounced_as_its_own_are(tmp_path):
    known = syllables(200, 0)
    unknown = [word for word in syllables(60, 1) if word not in known]
    path = write(tmp_path / "lexicon.txt", [f"{word} {' '.join(sounds(word))}" for word in known])
    found = of_file(path, [*unknown, *known[:5], "bañ7"])
    assert found.modelled == unknown and len(unknown) > 20
    assert all(found.lexicon[word] == [sounds(word)] for word in unknown + known)
    assert found.without == ["bañ7"] and "bañ7" not in found.lexicon
    assert found.said[0] == f"{len(known)} words of {path}"
    assert f"{len(unknown)} words that it lacks" in found.said[1] and "(0.0 % of phones wrong on " in found.said[1]
    assert found.said[2].endswith("count as <UNK>: bañ7")


def test_lexicons_of_other_forms(tmp_path):
    """Capital letters, cmudict's variants, probabilities, words that are none."""
    path = write(tmp_path / "l.txt", [";;; comment", "<SIL> SIL", "!NOISE SPN", "READ R IY D", "READ(2) R EH D", "Read R IY D",
                                      "FORTY-TWO F T", "CAFE\u0301 K F"])
    found = of_file(path, ["read", "café"])
    assert found.lexicon == {"read": [("R", "IY", "D"), ("R", "EH", "D")], "café": [("K", "F")]}
    assert found.said == [f"2 words of {path}; 3 others are no words of transcripts"]
    path = write(tmp_path / "lexiconp.txt", ["read 1.0 R IY D", "read 0.5 R EH D"])
    assert of_file(path, ["read"]).lexicon == {"read": [("R", "IY", "D"), ("R", "EH", "D")]}


@pytest.mark.parametrize(("lines", "message"), [
    (["нет n e t"], "has none of the 2 words of the transcripts, such as one, but 1 others, such as нет; give a lexicon of the same"),
    (["one"], "line 1: expected a word and its phones, found 'one'"), (["one 1.0"], "one has a probability and no phones"),
])
def test_lexicons_that_do_not_fit(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        of_file(write(tmp_path / "l.txt", lines), ["one", "two"])
