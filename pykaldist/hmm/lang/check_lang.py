"""The check of a language directory: do its files agree with each other? For utils/validate_lang.pl.

The checks are those that Kaldi documents for its validate_lang.pl: symbol tables; lists as symbols, numbers and with colons; phones that
are silence, not silence, or disambiguation symbols, and nothing else; sets, roots, questions and positions; the topology; the word for
unknown words; and the transducers' labels and order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.lang import EPSILON, LangDir
from pykaldist.io.tables import read_lines

_WITH_COLONS = ("silence", "nonsilence", "disambig", "optional_silence", "context_indep")
_HEADS = {"roots": 2}  # words before a line's phones


def problems_of(lang: LangDir) -> list[str]:
    """What is wrong in a language directory, a sentence each; empty where it is sound."""
    found = _tried(_symbols, lang)
    if not found:  # the others ask for the symbol tables
        for check in (_lists, _kinds_of_phones, _topology, _words, _transducers):
            found += _tried(check, lang)
    return found


def _tried(check: Callable[[LangDir], Iterator[str]], lang: LangDir) -> list[str]:
    said: list[str] = []
    try:
        said.extend(check(lang))
    except UserError as error:
        said.append(str(error))
    return said


def _symbols(lang: LangDir) -> Iterator[str]:
    for table in (lang.phones, lang.words):
        if table.get(EPSILON) != 0:
            yield f"{table.name}: {EPSILON} must have the number 0."
    if "#0" not in lang.words:
        yield f"{lang.words.name} has no #0, which back-off arcs take."


def _rows(lang: LangDir, name: str, ending: str) -> list[list[str]]:
    return [line.split() for line in read_lines(lang.file(f"phones/{name}.{ending}"))]


def _lists(lang: LangDir) -> Iterator[str]:
    names = [*_WITH_COLONS, "sets", "roots", "extra_questions"]
    if (lang.path / "phones/word_boundary.txt").is_file():
        names.append("word_boundary")
    for name in names:
        path = lang.path / "phones" / name
        texts, numbers = _rows(lang, name, "txt"), _rows(lang, name, "int")
        if len(texts) != len(numbers):
            yield f"{path}.txt has {len(texts)} lines, {name}.int {len(numbers)}."
            continue
        for line, (symbols, ids) in enumerate(zip(texts, numbers, strict=True), 1):
            head = _HEADS.get(name, 0)
            last = 1 if name == "word_boundary" else len(symbols)
            unknown = next((symbol for symbol in symbols[head:last] if symbol not in lang.phones), None)
            if unknown is not None:
                yield f"{path}.txt, line {line}: {unknown} is not in phones.txt."
            elif ids != [*symbols[:head], *(str(lang.phones[symbol]) for symbol in symbols[head:last]), *symbols[last:]]:
                yield f"{path}.int, line {line}: {' '.join(ids)!r} does not stand for {' '.join(symbols)!r}."
            elif name in _WITH_COLONS and len(symbols) != 1:
                yield f"{path}.txt, line {line}: expected one phone, found {len(symbols)}."
        if name in _WITH_COLONS:
            colons = "".join(read_lines(lang.file(f"phones/{name}.csl"))).strip()
            if colons != ":".join(number for row in numbers for number in row):
                yield f"{path}.csl does not hold the numbers of {name}.int with colons between them."


def _kinds_of_phones(lang: LangDir) -> Iterator[str]:
    kinds = {name: [row[0] for row in _rows(lang, name, "txt") if row] for name in ("silence", "nonsilence", "disambig")}
    seen: dict[str, str] = {}
    for name, phones in kinds.items():
        for phone in phones:
            if phone in seen:
                yield f"{lang.path}/phones/{name}.txt: {phone} is in {seen[phone]}.txt too."
            seen[phone] = name
    stray = [phone for phone in lang.phones if phone not in seen and phone != EPSILON and not phone.startswith("#nonterm")]
    if stray:
        yield f"{lang.path}/phones.txt: {', '.join(stray[:5])} in none of silence.txt, nonsilence.txt and disambig.txt."
    if not {"#0", "#1"} <= set(kinds["disambig"]):
        yield f"{lang.path}/phones/disambig.txt lacks #0 or #1."
    wrong = [phone for phone in kinds["disambig"] if not phone.startswith("#")]
    if wrong:
        yield f"{lang.path}/phones/disambig.txt: {wrong[0]} is no disambiguation symbol, which begin with #."
    optional = [row[0] for row in _rows(lang, "optional_silence", "txt") if row]
    if len(optional) != 1 or optional[0] not in kinds["silence"]:
        yield f"{lang.path}/phones/optional_silence.txt: expected one phone of silence.txt, found {' '.join(optional) or 'none'}."
    real = sorted(kinds["silence"] + kinds["nonsilence"])
    for name in ("sets", "roots"):
        if sorted(phone for row in _rows(lang, name, "txt") for phone in row[_HEADS.get(name, 0):]) != real:
            yield f"{lang.path}/phones/{name}.txt does not have each phone of silence.txt and nonsilence.txt once."


def _topology(lang: LangDir) -> Iterator[str]:
    text = lang.file("topo").read_text(encoding="utf-8")
    modelled = [int(number) for part in re.findall(r"<ForPhones>([\s\d]*)</ForPhones>", text) for number in part.split()]
    real = {*lang.silence_phones, *lang.nonsilence_phones}
    if len(set(modelled)) != len(modelled):
        yield f"{lang.path}/topo has a phone twice."
    for numbers, what in ((real - set(modelled), "lacks phone"), (set(modelled) - real, "has a number that is no phone's,")):
        if numbers:
            yield f"{lang.path}/topo {what} {min(numbers)}."


def _words(lang: LangDir) -> Iterator[str]:
    if " ".join(read_lines(lang.file("oov.int"))).split() != [str(lang.words[lang.oov])]:
        yield f"{lang.path}/oov.int is not the number of {lang.oov}."
    if (lang.path / "phones/wdisambig.txt").is_file():
        symbols = [row[0] for row in _rows(lang, "wdisambig", "txt") if row]
        for name, table in (("wdisambig_phones", lang.phones), ("wdisambig_words", lang.words)):
            if [row[0] for row in _rows(lang, name, "int")] != [str(table.get(symbol)) for symbol in symbols]:
                yield f"{lang.path}/phones/{name}.int does not stand for wdisambig.txt."


def _sorted(fst: Fst, labels: np.ndarray) -> bool:
    return not ((np.diff(labels) < 0) & (np.diff(fst.source) == 0)).any()


def _transducers(lang: LangDir) -> Iterator[str]:
    disambig, phones, words = set(lang.disambig_phones), set(lang.phones.values()), set(lang.words.values())
    for name in ("L.fst", "L_disambig.fst"):
        path = lang.file(name)
        fst = Fst.read(path)
        if not _sorted(fst, fst.olabel):
            yield f"{path} is not sorted by output labels."
        inputs, outputs = set(np.unique(fst.ilabel).tolist()), set(np.unique(fst.olabel).tolist())
        if not inputs <= phones or (name == "L.fst" and inputs & disambig and not lang.modelled_words) or not outputs <= words:
            yield f"{path} has labels that are not those of phones.txt and words.txt."
        boundary = lang.word_boundary
        if boundary is not None:
            kinds = {boundary.get(phone) for phone in np.unique(fst.ilabel[(fst.olabel > 0) & (fst.ilabel > 0)]).tolist()}
            if kinds & {"internal", "end"}:
                yield f"{path} has words that begin with a phone of the inside or the end of a word (word_boundary.int)."
        unsaid = sorted(word for word, number in lang.words.items() if number not in outputs and not _no_word(word))
        if unsaid:
            yield f"{path} has no pronunciation of {', '.join(unsaid[:5])}{' and others' * (len(unsaid) > 5)}."
    if (lang.path / "G.fst").is_file():
        yield from _grammar(lang, lang.path / "G.fst", words)


def _no_word(symbol: str) -> bool:
    return symbol in (EPSILON, "<s>", "</s>") or symbol.startswith("#")


def _grammar(lang: LangDir, path: Path, words: set[int]) -> Iterator[str]:
    fst = Fst.read(path)
    if fst.num_states == 0:
        yield f"{path} is empty; make it again (utils/format_lm.sh)."
        return
    if not _sorted(fst, fst.ilabel):
        yield f"{path} is not sorted by input labels."
    if not set(np.unique(fst.ilabel).tolist()) | set(np.unique(fst.olabel).tolist()) <= words:
        yield f"{path} has labels that are not in words.txt."
    reserved = [lang.words[symbol] for symbol in ("<s>", "</s>") if symbol in lang.words]
    if np.isin(fst.ilabel, reserved).any():
        yield f"{path} has <s> or </s> as input, which nobody says; make it with utils/format_lm.sh."
    if (fst.olabel == lang.words["#0"]).any():
        yield f"{path} has #0 as output."
    if ((fst.ilabel == 0) & (fst.olabel == 0)).any():
        yield f"{path} has arcs without a word; back-off arcs take #0, so that what is made of them can be determinised."
