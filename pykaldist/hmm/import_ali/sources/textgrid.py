"""TextGrid files of Praat, long or short, as the Montreal Forced Aligner writes them: tiers `phones` and `words`.

A file, or a directory with a file an utterance (or recording), at any depth; the utterance is the file's name. An empty label, `sil`,
`sp` or the like is silence. Tiers of one of several speakers are named `<speaker> - phones`; files with more than one such are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from pykaldist.errors import UserError, to_utf8
from pykaldist.hmm.import_ali.sources.base import Interval, PlainSource, SourceOptions, Times

#: what may stand between two values: nothing but space in the short form; names, and numbers of tiers and intervals, in the long one
_BETWEEN = re.compile(r"(?:\s|[=:?]|\[\s*\d*\s*\]|![^\n]*|\b(?:File type|Object class|xmin|xmax|tiers|size|item|class|name|intervals|"
                      r"points|number|time|mark|text)\b)*")
_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(?<!\S)(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?!\S)|<(exists|absent)>')


def recognises(path: Path) -> bool:
    """Whether `path` is a TextGrid file, or a directory of such."""
    return path.suffix.lower() == ".textgrid" or (path.is_dir() and next(_files(path), None) is not None)


def _files(path: Path) -> Iterator[Path]:
    return (p for p in ([path] if path.is_file() else sorted(path.rglob("*"))) if p.suffix.lower() == ".textgrid")


def read(path: Path, options: SourceOptions) -> PlainSource:
    """Open the TextGrid files at `path` as a source."""
    return PlainSource("TextGrid", ((file.stem, _times(file, options)) for file in _files(path)))


def _times(path: Path, options: SourceOptions) -> Times:
    tiers, end = parse(path)
    phones, words = (_tier(path, tiers, name) for name in (options.phones_tier, options.words_tier))
    if phones is None and words is None:
        raise UserError(f"{path} has no tier {options.phones_tier} or {options.words_tier}, only {', '.join(tiers) or 'none'}; name the "
                        "tiers with --phones-tier and --words-tier.")
    return Times(phones=phones, words=words, end=end)


def _tier(path: Path, tiers: dict[str, list[Interval]], name: str) -> list[Interval] | None:
    found = [tier for tier in tiers if tier == name or tier.endswith(f" - {name}")]
    if len(found) > 1:
        raise UserError(f"{path} has the tiers {', '.join(found)}; split the recording into a TextGrid a speaker.")
    return tiers[found[0]] if found else None


def parse(path: Path) -> tuple[dict[str, list[Interval]], float]:
    """Read a TextGrid file: its interval tiers by name, and where it ends in seconds; raises UserError for a file of another form."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is neither UTF-8 nor UTF-16 text; {to_utf8(path)}.") from error
    tokens = _Tokens(path, text)
    if tokens.string() != "ooTextFile" or tokens.string() != "TextGrid":
        raise tokens.error("expected a TextGrid text file")
    tokens.number()
    end = tokens.number()
    tiers: dict[str, list[Interval]] = {}
    for _ in range(tokens.count() if tokens.flag() else 0):
        kind, name = tokens.string(), tokens.name()
        tokens.number(), tokens.number()
        if kind == "IntervalTier":
            tiers[name] = [Interval(tokens.number(), tokens.number(), tokens.string().strip()) for _ in range(tokens.count())]
        elif kind == "TextTier":
            for _ in range(tokens.count()):
                tokens.number(), tokens.string()
        else:
            raise tokens.error(f"expected IntervalTier or TextTier, found {kind!r}")
    if not tokens.at_end():
        raise tokens.error("there is more in the file than its counts say")
    return tiers, end


class _Tokens:
    """The strings, numbers and flags of a file in order; in the long form the names before them are passed over."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.number_read = path, 0
        self._text, self._end = text, 0
        self._matches = _TOKEN.finditer(text)

    def error(self, problem: str) -> UserError:
        return UserError(f"{self.path}, value {self.number_read}: {problem}; the file is damaged or no TextGrid.")

    def _next(self, group: int, what: str) -> str:
        self.number_read += 1
        match = self._match()
        if match is None or match[group] is None:
            raise self.error(f"expected {what}, found {repr(match[0][:40]) if match else 'the end of the file'}")
        return match[group]

    def _match(self) -> re.Match[str] | None:
        match = next(self._matches, None)
        between = self._text[self._end : match.start() if match else len(self._text)]
        if _BETWEEN.fullmatch(between) is None:
            raise self.error(f"expected a TextGrid's names before it, found {between.strip()[:40]!r}")
        self._end = match.end() if match else len(self._text)
        return match

    def at_end(self) -> bool:
        return self._match() is None

    def name(self) -> str:
        name = self.string()
        if "\n" in name:
            raise self.error(f"expected a tier's name, found {name[:40]!r}")
        return name

    def string(self) -> str:
        return self._next(1, "a string in quotes").replace('""', '"')

    def number(self) -> float:
        number = float(self._next(2, "a number"))
        if not math.isfinite(number):
            raise self.error("expected a time or a count, found a number too large")
        return number

    def count(self) -> int:
        number = self.number()
        if number < 0 or number != int(number):
            raise self.error(f"expected a number of tiers or intervals, found {number:g}")
        return int(number)

    def flag(self) -> bool:
        return self._next(3, "<exists>") == "exists"
