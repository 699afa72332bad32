"""Makes a language directory from a dictionary directory, file by file as Kaldi's utils/prepare_lang.sh.

pykaldist/io/text_tools/lexicon.py says what the lexicon transducer L is made of. In L_disambig a pronunciation that is not unique, or
begins another one, ends in a disambiguation symbol #1, #2, ...; the highest symbol stands behind silence, and #0 passes from words to
phones in self-loops. unknown_word.py says how a phone language model takes the place of the unknown word's pronunciation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kaldifst

from pykaldist.errors import UserError
from pykaldist.hmm.lang.topology import bakis_topology_text
from pykaldist.hmm.lang.unknown_word import PLACE, NumberedArc, UnknownWord, inserted, with_place
from pykaldist.io import dictdir, provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.dictdir import POSITION_SUFFIXES, DictDir, Pronunciation
from pykaldist.io.lang import EPSILON, SymbolTable
from pykaldist.io.tables import read_lines
from pykaldist.io.text_tools.lexicon import Arc, disambiguation, lexicon_arcs, silprob_arcs
from pykaldist.options import option

_KIND = {"_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}


@dataclass
class LangOptions:
    """The options of `prepare_lang`."""

    position_dependent_phones: bool = option(True, "mark phones with their place in the word: _B, _E, _I, _S")
    share_silence_phones: bool = option(False, "all silence phones share their pdfs")
    sil_prob: float = option(0.5, "probability of the optional silence between words; 0 for none")
    num_sil_states: int = option(5, "HMM states of a silence phone")
    num_nonsil_states: int = option(3, "HMM states of another phone")
    phone_symbol_table: str = option("", "phones.txt whose numbers the phones get, of a model that is there already")
    unk_fst: str = option("", "phone language model of the unknown word, unk_fst.txt of utils/lang/make_unk_lm.sh")
    extra_word_disambig_syms: str = option("", "file with more symbols like #0, a line each, that pass from words to phones")
    num_extra_phone_disambig_syms: int = option(1, "disambiguation symbols beside those of the lexicon; the last is for silence")


def prepare_lang(dict_dir: str | os.PathLike[str], oov: str, tmp: str | os.PathLike[str], lang: str | os.PathLike[str],
                 options: LangOptions) -> dict[str, int]:
    """Write the language directory `lang`; returns the numbers of words, pronunciations and phones.

    `tmp` gets the lexicon as it is used: `lexiconp.txt`, `lexiconp_disambig.txt`. Raises UserError for a dictionary directory
    with errors, an OOV word that the lexicon lacks, or a silence probability outside [0, 1).
    """
    source, tmp, lang = DictDir.read(dict_dir), Path(tmp), Path(lang)
    if not 0 <= options.sil_prob < 1:
        raise UserError(f"--sil-prob: expected a probability below 1, found {options.sil_prob:g}.")
    if options.num_extra_phone_disambig_syms < 1:
        raise UserError(f"--num-extra-phone-disambig-syms: expected at least 1, found {options.num_extra_phone_disambig_syms}.")
    if oov not in {entry.word for entry in source.lexicon}:
        raise UserError(f"{dict_dir}: the OOV word {oov} is not in the lexicon; add a line such as `{oov} SPN`.")
    passing = ["#0", *_extra_symbols(options.extra_word_disambig_syms)]
    lexicon = [_positioned(entry) for entry in source.lexicon] if options.position_dependent_phones else source.lexicon
    unknown = UnknownWord.read(Path(options.unk_fst)) if options.unk_fst else None
    if unknown:
        lexicon = with_place(lexicon, oov)
    disambiguated, highest = add_disambiguation(lexicon, 1 + len(PLACE) * bool(unknown))
    highest += options.num_extra_phone_disambig_syms  # the last one stands behind the optional silence

    provenance.forget(lang)
    (lang / "G.fst").unlink(missing_ok=True)  # it belongs to the words of an earlier lexicon
    disambig = [f"#{n}" for n in range(highest + 1)]
    silence_disambig = disambig[-1]
    disambig += passing[1:]
    if twice := set(passing[1:]) & set(disambig[: highest + 1]):
        raise UserError(f"--extra-word-disambig-syms: {min(twice)} is a symbol of the lexicon; give it another name.")
    phones = _write_phones(lang, source, disambig, options)
    words = _write_words(lang, lexicon, oov, passing[1:])
    _write_lists(lang, {"phones/disambig": [[s] for s in disambig]}, phones)
    for name, lines in (("wdisambig.txt", passing), ("wdisambig_phones.int", [phones[symbol] for symbol in passing]),
                        ("wdisambig_words.int", [words[symbol] for symbol in passing])):
        write_text(lang / "phones" / name, "".join(f"{line}\n" for line in lines))

    align = sorted({(e.word, e.word, *e.phones) for e in lexicon} | {(EPSILON, EPSILON, source.optional_silence)},
                   key=lambda row: " ".join(row).encode())
    write_text(lang / "phones/align_lexicon.txt", "".join(" ".join(row) + "\n" for row in align))
    write_text(lang / "phones/align_lexicon.int", "".join(
        " ".join(str(n) for n in (words[row[0]], words[row[1]], *(phones[p] for p in row[2:]))) + "\n" for row in align))

    for name, entries, disambig_silence in (("L.fst", lexicon, None), ("L_disambig.fst", disambiguated, silence_disambig)):
        arcs, final = _transducer(entries, source, options.sil_prob, disambig_silence)
        numbered = [(here, to, phones[phone], words[word], cost) for here, to, phone, word, cost in arcs]
        if disambig_silence:
            states = sorted({*final, *(arc[0] for arc in numbered if arc[3])})  # as Kaldi's fstaddselfloops chooses them
            numbered += [(state, state, phones[symbol], words[symbol], 0.0) for state in states for symbol in passing]
        _write_fst(lang / name, inserted(numbered, phones, unknown) if unknown else numbered, final)
    for ending, entries in (("", lexicon), ("_disambig", disambiguated)):
        for kind in ("lexiconp", *(["lexiconp_silprob"] if source.silence_probs else [])):
            write_text(tmp / f"{kind}{ending}.txt", "".join(_line(e, kind != "lexiconp") for e in entries))
    given = [Path(name) for name in (options.unk_fst, options.extra_word_disambig_syms) if name]
    provenance.record(lang, "utils/prepare_lang.sh", [*(Path(dict_dir) / name for name in dictdir.FILES), *given])
    return {"words": len({e.word for e in lexicon}), "pronunciations": len(lexicon), "phones": len(phones) - len(disambig) - 1}


def _extra_symbols(path: str) -> list[str]:
    """The symbols of --extra-word-disambig-syms; raises UserError for one that does not begin with #, or is there twice."""
    if not path:
        return []
    rows = [line.split() for line in read_lines(path)]
    symbols = [row[0] for row in rows if row]
    wrong = next((symbol for symbol in symbols if not symbol.startswith("#") or symbols.count(symbol) > 1), None)
    if wrong is not None:
        raise UserError(f"{path}: expected different symbols that begin with #, found {wrong}.")
    return symbols


def add_disambiguation(lexicon: Sequence[Pronunciation], first: int = 1) -> tuple[list[Pronunciation], int]:
    """Add disambiguation symbols to the lexicon: #1, #2, ... behind pronunciations that are not unique or begin another one.

    `first` is the lowest number. Returns the lexicon, and the highest number.
    """
    numbers, highest = disambiguation([entry.phones for entry in lexicon], first)
    return [replace(entry, phones=(*entry.phones, *([f"#{number}"] if number else [])))
            for entry, number in zip(lexicon, numbers, strict=True)], highest


def _transducer(lexicon: Sequence[Pronunciation], source: DictDir, sil_prob: float,
                silence_disambig: str | None) -> tuple[list[Arc], dict[int, float]]:
    """The arcs (source, destination, phone, word, cost) of the lexicon transducer, and its final states with their costs."""
    silence, probs = source.optional_silence, source.silence_probs
    if probs is not None:
        rows = [(entry.word, entry.probability, entry.silence, entry.phones) for entry in lexicon if entry.silence is not None]
        return list(silprob_arcs(rows, probs.begin, silence, silence_disambig)), {1: -math.log(probs.end_nonsilence),
                                                                                 2: -math.log(probs.end_silence)}
    entries = [(entry.word, entry.probability, entry.phones) for entry in lexicon]
    if sil_prob == 0:
        return list(lexicon_arcs(entries, 0, None, None)), {0: 0.0}
    return list(lexicon_arcs(entries, sil_prob, silence, silence_disambig)), {1: 0.0}


def _line(entry: Pronunciation, with_silence: bool) -> str:
    numbers = (entry.probability, *(entry.silence if with_silence and entry.silence else ()))
    return "\t".join([entry.word, *(f"{number:g}" for number in numbers), " ".join(entry.phones)]) + "\n"


def _write_fst(path: Path, arcs: list[NumberedArc], final: dict[int, float]) -> None:
    fst = kaldifst.StdVectorFst()
    for _ in range(1 + max(max(arc[0], arc[1]) for arc in arcs)):
        fst.add_state()
    fst.start = 0
    for state, cost in final.items():
        fst.set_final(state, kaldifst.TropicalWeight(cost))
    for source, destination, phone, word, cost in arcs:
        fst.add_arc(source, kaldifst.StdArc(ilabel=phone, olabel=word, weight=cost, nextstate=destination))
    kaldifst.arcsort(fst, sort_type="olabel")
    temporary = path.with_name(f".{path.name}.tmp")
    fst.write(str(temporary))
    os.replace(temporary, path)


def _positioned(entry: Pronunciation) -> Pronunciation:
    phones = entry.phones
    suffixes = ["_S"] if len(phones) == 1 else ["_B", *["_I"] * (len(phones) - 2), "_E"]
    return replace(entry, phones=tuple(p + s for p, s in zip(phones, suffixes, strict=True)))


def _write_phones(lang: Path, source: DictDir, disambig: list[str], options: LangOptions) -> SymbolTable:
    """Write `phones.txt`, `topo` and the files below `phones/`; returns the symbol table."""
    positions = POSITION_SUFFIXES if options.position_dependent_phones else ()
    quiet = {p for group in source.silence for p in group}

    def expand(group: Sequence[str]) -> list[str]:
        """The phones with each mark; silence without a mark too."""
        return [p + s for p in group for s in (("", *positions) if p in quiet or not positions else positions)]

    silence = [p for group in source.silence for p in expand(group)]
    nonsilence = [p for group in source.nonsilence for p in expand(group)]
    table = _phone_numbers([*silence, *nonsilence], disambig, options.phone_symbol_table)
    _write_symbols(lang / "phones.txt", table)

    quiet_sets = [silence] if options.share_silence_phones else [expand(group) for group in source.silence]
    sets = quiet_sets + [expand(group) for group in source.nonsilence]
    roots = [["shared", "split", *phones] for phones in sets]
    if options.share_silence_phones:
        roots[0][:2] = ["not-shared", "not-split"]
    questions = [expand(question) for question in source.extra_questions]
    for suffix in positions:
        questions.append([p + suffix for group in source.nonsilence for p in group])
    for suffix in ("", *positions) if positions else ():
        questions.append([p + suffix for group in source.silence for p in group])

    one_a_line = {"silence": silence, "nonsilence": nonsilence, "context_indep": silence,
                  "optional_silence": [source.optional_silence]}
    _write_lists(lang, {f"phones/{name}": [[p] for p in phones] for name, phones in one_a_line.items()}, table)
    for name, rows, head, tail in (("sets", sets, 0, ""), ("roots", roots, 2, ""), ("extra_questions", questions, 0, " ")):
        write_text(lang / f"phones/{name}.txt", "".join(" ".join(row) + tail + "\n" for row in rows))
        write_text(lang / f"phones/{name}.int", "".join(
            " ".join([*row[:head], *(str(table[p]) for p in row[head:])]) + "\n" for row in rows))
    for extension in ("txt", "int"):
        (lang / f"phones/word_boundary.{extension}").unlink(missing_ok=True)
    if positions:
        kinds = [(p, _KIND.get(p[-2:], "nonword")) for p in silence + nonsilence]
        write_text(lang / "phones/word_boundary.txt", "".join(f"{p} {kind}\n" for p, kind in kinds))
        write_text(lang / "phones/word_boundary.int", "".join(f"{table[p]} {kind}\n" for p, kind in kinds))
    write_text(lang / "topo", bakis_topology_text([table[p] for p in nonsilence], [table[p] for p in silence],
                                                  options.num_nonsil_states, options.num_sil_states))
    return table


def _phone_numbers(phones: list[str], disambig: list[str], known: str) -> SymbolTable:
    """Number phones and then disambiguation symbols, from 1, or as in the file `known`; raises UserError for a phone that it lacks."""
    if not known:
        return SymbolTable({symbol: number for number, symbol in enumerate([EPSILON, *phones, *disambig])}, "phones.txt")
    given = SymbolTable.read(known)
    missing = next((phone for phone in [*phones, "#0"] if phone not in given), None)
    if missing is not None:
        raise UserError(f"{known} has no {missing}; give the phones.txt of a model with these phones, with the same "
                        "--position-dependent-phones.")
    numbers = {symbol: given[symbol] for symbol in sorted([EPSILON, *phones], key=lambda symbol: given[symbol])}
    return SymbolTable({**numbers, **{symbol: given["#0"] + n for n, symbol in enumerate(disambig)}}, "phones.txt")


def _write_words(lang: Path, lexicon: Sequence[Pronunciation], oov: str, extra: Sequence[str]) -> SymbolTable:
    words = sorted({entry.word for entry in lexicon}, key=str.encode)
    table = SymbolTable({w: n for n, w in enumerate([EPSILON, *words, "#0", "<s>", "</s>", *extra])}, "words.txt")
    _write_symbols(lang / "words.txt", table)
    write_text(lang / "oov.txt", f"{oov}\n")
    write_text(lang / "oov.int", f"{table[oov]}\n")
    return table


def _write_symbols(path: Path, table: SymbolTable) -> None:
    write_text(path, "".join(f"{symbol} {number}\n" for symbol, number in table.items()))


def _write_lists(lang: Path, lists: dict[str, list[list[str]]], table: SymbolTable) -> None:
    """Write each list as `.txt`, `.int` and, with colons, `.csl`."""
    for name, rows in lists.items():
        numbers = [[str(table[s]) for s in row] for row in rows]
        write_text(lang / f"{name}.txt", "".join(" ".join(row) + "\n" for row in rows))
        write_text(lang / f"{name}.int", "".join(" ".join(row) + "\n" for row in numbers))
        write_text(lang / f"{name}.csl", ":".join(n for row in numbers for n in row) + "\n")
