"""Dictionary directories: the phones and pronunciations, as text, from which a language directory is made.

`silence_phones.txt` and `nonsilence_phones.txt` have a group of phones a line (variants of one phone that share their tree
root), `optional_silence.txt` one silence phone, `lexicon.txt` lines `word phone ...`, `lexiconp.txt` lines
`word probability phone ...` (it goes first where both exist), and `extra_questions.txt`, which may be empty or absent, sets of
phones. `lexiconp_silprob.txt`, which goes before both, has three numbers more behind a line's probability: that of silence behind the
word, and factors on the word behind silence and behind a word; `silprob.txt` has those of the sentence's begin and end (Chen et al.,
Pronunciation and Silence Probability Modeling for ASR, 2015). The checks are those of Kaldi's validate_dict_dir.pl.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import MADE, UserError
from pykaldist.io.tables import read_lines

RESERVED_WORDS = ("<s>", "</s>", "<eps>", "#0")
LEXICONS = {"lexiconp_silprob.txt": 4, "lexiconp.txt": 1, "lexicon.txt": 0}  # numbers behind a line's word; the first that exists is read
FILES = (*LEXICONS, "silprob.txt", "silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt", "extra_questions.txt")
POSITION_SUFFIXES = ("_B", "_E", "_I", "_S")


def without_position(phone: str) -> str:
    """The name of a phone without its place in the word: AH of AH_I."""
    return phone[:-2] if phone.endswith(POSITION_SUFFIXES) else phone


@dataclass(frozen=True)
class Pronunciation:
    """A word, the probability of this pronunciation, and its phones.

    `silence` has the probability of silence behind it, and the factors on its own probability behind silence and behind a word; None where
    the lexicon has no such numbers.
    """

    word: str
    probability: float
    phones: tuple[str, ...]
    silence: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class SilenceProbs:
    """`silprob.txt`: the probability of silence at a sentence's begin, factors on its end behind silence and behind a word; in all."""

    begin: float
    end_silence: float
    end_nonsilence: float
    overall: float


@dataclass(frozen=True)
class DictDir:
    """The checked content of a dictionary directory."""

    silence: list[list[str]]
    nonsilence: list[list[str]]
    optional_silence: str
    lexicon: list[Pronunciation]
    extra_questions: list[list[str]]
    silence_probs: SilenceProbs | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DictDir:
        """Read a dictionary directory and check it; raises UserError with file and line."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path} is no dictionary directory; {MADE}.")
        seen: dict[str, str] = {}
        silence = _read_phones(path / "silence_phones.txt", seen)
        nonsilence = _read_phones(path / "nonsilence_phones.txt", seen)
        optional = [line.split() for line in _lines(path / "optional_silence.txt")]
        if len(optional) != 1 or len(optional[0]) != 1 or seen.get(optional[0][0]) != "silence_phones.txt":
            raise UserError(f"{path}/optional_silence.txt: expected one phone of silence_phones.txt, found {optional}.")
        probs = _read_silprob(path / "silprob.txt") if (path / "lexiconp_silprob.txt").is_file() else None
        return cls(silence, nonsilence, optional[0][0], _read_lexicon(path, seen), _read_questions(path, seen), probs)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{path} does not exist; {MADE}.")
    return read_lines(path)


def _read_phones(path: Path, seen: dict[str, str]) -> list[list[str]]:
    groups = []
    for number, line in enumerate(_lines(path), 1):
        phones = line.split()
        if not phones:
            raise UserError(f"{path}, line {number}: empty line; remove it.")
        for phone in phones:
            if phone in seen:
                both = "twice" if seen[phone] == path.name else f"in {seen[phone]} too"
                raise UserError(f"{path}, line {number}: phone {phone} is listed {both}; keep one.")
            if phone == "<eps>" or phone.startswith("#") or phone.endswith(POSITION_SUFFIXES):
                raise UserError(f"{path}, line {number}: phone {phone} has a reserved name (<eps>, # in front, or _B, _E, _I, _S "
                                "behind); rename it.")
            seen[phone] = path.name
        groups.append(phones)
    if not groups:
        raise UserError(f"{path} is empty; list the phones in it.")
    return groups


def _numbers(fields: list[str], count: int, most: tuple[float, ...], names: tuple[str, ...], where: str, form: str) -> list[float]:
    """The first `count` fields as numbers above 0 and up to `most`; raises UserError that says which is not."""
    try:
        values = [float(field) for field in fields[:count]]
    except ValueError:
        values = []
    if len(values) < count:
        raise UserError(f"{where}: expected `{form}`, found {' '.join(fields)!r}.")
    for value, limit, name in zip(values, most, names, strict=False):
        if not 0 < value <= limit or value == math.inf:
            at_most = f" and at most {limit:g}" if limit < math.inf else ""
            raise UserError(f"{where}: {name} {value:g}; it must be above 0{at_most}.")
    return values


_SILENCE_NAMES = ("the sentence begins with silence with the probability", "the end behind silence has the factor",
                  "the end behind a word has the factor", "silence has the probability")


def _read_silprob(path: Path) -> SilenceProbs:
    keys = ("<s>", "</s>_s", "</s>_n", "overall")
    table = dict(line.split(maxsplit=1) for line in _lines(path) if len(line.split()) == 2)
    if set(table) != set(keys) or len(_lines(path)) != len(keys):
        raise UserError(f"{path}: expected a number for each of {', '.join(keys)}, found {', '.join(table) or 'none'}; make it with "
                        "utils/dict_dir_add_pronprobs.sh.")
    values = _numbers([table[key] for key in keys], 4, (_BELOW_ONE, math.inf, math.inf, 1.0), _SILENCE_NAMES, str(path), "four numbers")
    return SilenceProbs(*values)


_BELOW_ONE = math.nextafter(1.0, 0.0)


def _read_lexicon(path: Path, phones: dict[str, str]) -> list[Pronunciation]:
    name = next((name for name in LEXICONS if (path / name).is_file()), "lexicon.txt")
    count, file = LEXICONS[name], path / name
    form = f"word probability {'silence-behind factor-behind-silence factor-behind-word ' if count == 4 else ''}phone ..."
    lexicon: list[Pronunciation] = []
    seen: dict[tuple[str, tuple[str, ...]], int] = {}
    for number, line in enumerate(_lines(file), 1):
        where = f"{file}, line {number}"
        fields = line.split()
        if not fields:
            raise UserError(f"{where}: empty line; remove it.")
        word, rest = fields[0], fields[1:]
        if word in RESERVED_WORDS:
            raise UserError(f"{where}: {word} is reserved; it must not be in the lexicon.")
        said = (f"{word} has the probability", f"silence behind {word} has the probability", f"{word} behind silence has the factor",
                f"{word} behind a word has the factor")
        values = _numbers(rest, count, (1.0, _BELOW_ONE, math.inf, math.inf), said, where, form)
        rest = rest[count:]
        if not rest:
            raise UserError(f"{where}: {word} has no phones; add its pronunciation or remove the line.")
        unknown = next((phone for phone in rest if phone not in phones), None)
        if unknown is not None:
            raise UserError(f"{where}: {word} has the phone {unknown}, which is neither in silence_phones.txt nor in "
                            "nonsilence_phones.txt.")
        key = (word, tuple(rest))
        if key in seen:
            raise UserError(f"{where}: {word} has this pronunciation in line {seen[key]} too; keep one.")
        seen[key] = number
        silence = (values[1], values[2], values[3]) if count == 4 else None
        lexicon.append(Pronunciation(word, values[0] if values else 1.0, tuple(rest), silence))
    if not lexicon:
        raise UserError(f"{file} is empty; put the pronunciations in it.")
    return lexicon


def _read_questions(path: Path, phones: dict[str, str]) -> list[list[str]]:
    file = path / "extra_questions.txt"
    questions = [line.split() for line in read_lines(file)] if file.is_file() else []
    for number, question in enumerate(questions, 1):
        unknown = next((phone for phone in question if phone not in phones), None)
        if unknown is not None or len(set(question)) != len(question):
            problem = f"phone {unknown} is unknown" if unknown is not None else "a phone is listed twice"
            raise UserError(f"{file}, line {number}: {problem}; correct the line.")
    return questions
