"""Words of transcripts in any script, and their graphemes.

A transcript becomes words in small letters, in Unicode's composed form (NFC). What happens to a character is said by the tables here, else
by its Unicode category: letters, the marks that combine with them, and numbers stay; other signs end a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

APOSTROPHE = "'"
SIGNS = {  # character -> what stands in its place
    **dict.fromkeys("'’‘ʼʻ＇", APOSTROPHE),  # between letters it belongs to the word, elsewhere it is a quotation mark
    "ـ": "",  # Arabic's tatweel, which stretches a line
    "\u00ad": "",  # soft hyphen
}
CATEGORIES = {  # the Unicode category, or its first letter, of other characters -> whether they stay (None), or what stands in their place
    "L": None, "M": None, "N": None,  # letters, combining marks, numbers
    "Cf": "",  # invisible: joiners, directions
    "P": " ", "S": " ", "Z": " ", "C": " ",  # punctuation, symbols, blanks, control characters
}
PERHAPS_SAID = "%&@#+=€$£¥°§"  # signs that end a word here, while a speaker may have said them
MARK = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}")  # of what is no speech: <noise>, [laughter]
SMALL_LETTERS = {  # language -> capital letters whose small ones are others than elsewhere
    "az": {"I": "ı", "İ": "i"},
    "tr": {"I": "ı", "İ": "i"},
}
UNSPACED = (  # scripts without blanks between words: the first and the last character
    ("㐀", "鿿"), ("豈", "﫿"), ("\U00020000", "\U0003ffff"), ("々", "〇"),  # Chinese characters
    ("ぁ", "ヿ"), ("ㇰ", "ㇿ"),  # Japanese syllables
    ("ก", "\u0e7f"), ("\u0e80", "\u0eff"), ("က", "႟"), ("ក", "\u17ff"),  # Thai, Lao, Burmese, Khmer
)


def replacement(character: str) -> str:
    """What stands in a character's place: itself where it stays, a blank where it ends a word, nothing where it is dropped."""
    if character in SIGNS:
        return SIGNS[character]
    category = unicodedata.category(character)
    found = CATEGORIES.get(category, CATEGORIES[category[0]])
    if category == "Nd":
        return str(unicodedata.decimal(character))  # ٣ is 3
    return character if found is None else found


def words_of(text: str, language: str = "") -> list[str]:
    """The words of a transcript; marks of what is no speech, such as <noise> and [laughter], are left out.

    `language` is a code such as `tr`, for the few whose small letters differ.
    """
    text = unicodedata.normalize("NFC", MARK.sub(" ", text))
    for capital, small in SMALL_LETTERS.get(language, {}).items():
        text = text.replace(capital, small)
    text = unicodedata.normalize("NFC", text.lower())
    text = unicodedata.normalize("NFC", "".join(replacement(character) for character in text))
    return [word for token in text.split() if (word := _bare(token))]


def _bare(token: str) -> str:
    """A word without apostrophes at its ends, and without marks at its begin, which have no letter to combine with."""
    start, end = 0, len(token)
    while start < end and (token[start] == APOSTROPHE or _combines(token[start])):
        start += 1
    while end > start and token[end - 1] == APOSTROPHE:
        end -= 1
    return token[start:end]


def _combines(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def graphemes(word: str) -> list[str]:
    """The letters of a word, each with the marks that combine with it, and with an apostrophe behind it; together they are the word."""
    found: list[str] = []
    for character in word:
        if found and (character == APOSTROPHE or _combines(character)):
            found[-1] += character
        else:
            found.append(character)
    return found


def unspaced(character: str) -> bool:
    """Whether a character's script has no blanks between words."""
    return any(first <= character <= last for first, last in UNSPACED)


def letters_apart(words: Iterable[str]) -> list[str]:
    """Words, those of a script without blanks between words taken apart: each of their letters is a word."""
    found: list[str] = []
    for word in words:
        apart = False  # whether the letter before stands alone
        begun = True
        for letter in graphemes(word):
            alone = unspaced(letter[0])
            if begun or alone or apart:
                found.append(letter)
            else:
                found[-1] += letter
            apart, begun = alone, False
    return [word for one in found if (word := _bare(one))]


def remarks(transcripts: Iterable[str]) -> list[str]:
    """Sentences about what is in transcripts and may not be as it is said: numbers in digits, signs, marks of what is no speech."""
    numbers: Counter[str] = Counter()
    signs: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    utterances: Counter[str] = Counter()
    for text in transcripts:
        marked = MARK.findall(text)
        rest = MARK.sub(" ", text)
        digits = [token for token in rest.split() if any(unicodedata.category(character)[0] == "N" for character in token)]
        spoken = [character for character in rest if character in PERHAPS_SAID]
        for counter, found, kind in ((marks, marked, "marks"), (numbers, digits, "numbers"), (signs, spoken, "signs")):
            counter.update(found)
            utterances[kind] += bool(found)
    said = []
    if numbers:
        said.append(f"transcripts with numbers in digits, which stay as they are: {utterances['numbers']}, such as {_most(numbers)}; "
                    "better write them out in words")
    if signs:
        said.append(f"transcripts with signs that may be said, which are dropped: {utterances['signs']}, such as {_most(signs)}; "
                    "better write them out in words")
    if marks:
        said.append(f"transcripts with marks of what is no speech, which are dropped: {utterances['marks']}, such as {_most(marks)}")
    return said


def _most(counter: Counter[str]) -> str:
    return " ".join(key for key, _ in counter.most_common(3))
