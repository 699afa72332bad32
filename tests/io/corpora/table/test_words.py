"""Words of transcripts in any script, and their graphemes."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.io.corpora.table.words import graphemes, letters_apart, remarks, words_of

unhurried = settings()  # a test asserts no time
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.text("aé'’ -.I\u0301\u0308İßΣσکیـ\u200cกिकि中aあ3٣½[]<>", max_size=20)


@pytest.mark.parametrize(("text", "words"), [
    ("Don’t — stop, «please»!", "don't stop please"),
    ("'quoted' words", "quoted words"),
    ("cafe\u0301 CAFÉ", "café café"),  # decomposed and composed
    ("peut-être l'homme", "peut être l'homme"),
    ("ΟΔΟΣ", "οδος"),
    ("Straße", "straße"),
    ("می\u200cروم مـــن", "میروم من"),  # a joiner within a word; tatweel
    ("हिन्दी।", "हिन्दी"),
    ("١٢ items", "12 items"),  # digits of another script
    ("uh <noise> well [laughter] {breath} yes", "uh well yes"),
    ("oʻzbek o‘zbek", "o'zbek o'zbek"),
    ("\u0301 alone", "alone"),
    ("...", ""),
])
def test_words(text: str, words: str) -> None:
    assert words_of(text) == words.split()


def test_small_letters_of_turkish() -> None:
    assert words_of("ISPARTA İzmir", "tr") == ["ısparta", "izmir"] and words_of("ISPARTA") == ["isparta"]


@unhurried
@given(TEXTS)
def test_words_are_composed_small_letters_and_are_their_own_words(text: str) -> None:
    words = words_of(text)
    for word in words:
        assert word and not any(c.isspace() for c in word) and word == unicodedata.normalize("NFC", word)
        assert {unicodedata.category(c)[0] for c in word.replace("'", "")} <= {"L", "M", "N"}
    assert words_of(" ".join(words)) == words


@unhurried
@given(TEXTS)
def test_the_graphemes_of_a_word_joined_are_the_word(text: str) -> None:
    for word in words_of(text):
        letters = graphemes(word)
        assert "".join(letters) == word
        for letter in letters:  # one letter or digit, and what belongs to it
            assert unicodedata.category(letter[0])[0] in "LN"
            assert all(unicodedata.category(c)[0] == "M" or c == "'" for c in letter[1:])


@pytest.mark.parametrize(("word", "letters"), [
    ("don't", "d o n' t"), ("हिन्दी", "हि न् दी"), ("o'zbek", "o' z b e k"), ("q\u0323\u0301a", "q\u0323\u0301 a"), ("ابن", "ا ب ن"),
])
def test_graphemes(word: str, letters: str) -> None:
    assert graphemes(word) == letters.split()


@pytest.mark.parametrize(("words", "apart"), [
    ("你好 吗", "你 好 吗"), ("カラオケ", "カ ラ オ ケ"), ("ไป wifi ไหม", "ไ ป wifi ไ ห ม"), ("用app吗", "用 app 吗"),
    ("plain words", "plain words"), ("ที่", "ที่"),
])
def test_letters_of_scripts_without_blanks_stand_apart(words: str, apart: str) -> None:
    assert letters_apart(words.split()) == apart.split()


@unhurried
@given(TEXTS)
def test_what_is_taken_apart_has_the_same_letters(text: str) -> None:
    words = words_of(text)
    apart = letters_apart(words)
    assert "".join(apart).replace("'", "") == "".join(words).replace("'", "") and letters_apart(apart) == apart


def test_what_may_not_be_as_it_is_said_is_said() -> None:
    lines = remarks(["at 10 % of 20", "20 and [noise]", "plain"])
    assert lines == ["transcripts with numbers in digits, which stay as they are: 2, such as 20 10; better write them out in words",
                     "transcripts with signs that may be said, which are dropped: 1, such as %; better write them out in words",
                     "transcripts with marks of what is no speech, which are dropped: 1, such as [noise]"]
    assert remarks(["plain"]) == []
