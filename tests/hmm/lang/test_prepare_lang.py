"""The language directory equals Kaldi's, file by file; options and errors."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import kaldifst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.lang.check_lang import problems_of
from pykaldist.hmm.lang.prepare_lang import LangOptions, add_disambiguation, prepare_lang
from pykaldist.io import provenance
from pykaldist.io.dictdir import Pronunciation
from pykaldist.io.lang import LangDir

from ..conftest import LEXICON, write_dict

FST_FILES = {"L.fst", "L_disambig.fst", "G.fst"}


def arcs(path: Path) -> list[str]:
    """Arcs and final states as text, sorted: `arcsort` leaves arcs with the same label in any order."""
    fst = kaldifst.StdVectorFst.read(str(path))
    assert fst.start == 0
    return sorted(fst.to_str().splitlines())


def test_golden_lang(golden: Path, tmp_path: Path) -> None:
    expected = golden / "an4_kaldi/lang"
    count = prepare_lang(golden / "an4_kaldi/dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions())
    assert count == {"words": 103, "pronunciations": 132, "phones": 142}
    names = {str(p.relative_to(expected)) for p in expected.rglob("*") if p.is_file()} - {"G.fst"}
    assert {str(p.relative_to(tmp_path / "lang")) for p in (tmp_path / "lang").rglob("*") if p.is_file()} == {*names, provenance.FILE}
    for name in names - FST_FILES:
        assert (tmp_path / "lang" / name).read_bytes() == (expected / name).read_bytes(), name
    for name in ("L.fst", "L_disambig.fst"):
        assert arcs(tmp_path / "lang" / name) == arcs(expected / name)


def test_without_positions_and_silence(tmp_path: Path) -> None:
    write_dict(tmp_path / "dict", extra_questions="A B\nSIL SPN\n")
    options = LangOptions(position_dependent_phones=False, share_silence_phones=True, sil_prob=0, num_nonsil_states=2)
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", options)
    lang = LangDir(tmp_path / "lang")
    assert list(lang.phones) == ["<eps>", "SIL", "SPN", "A", "B", "C", "#0", "#1", "#2"]
    assert lang.phone_sets == [[1, 2], [3], [4], [5]] and lang.word_boundary is None
    assert (lang.path / "phones/roots.txt").read_text().splitlines()[:2] == ["not-shared not-split SIL SPN", "shared split A"]
    assert lang.int_lists("phones/extra_questions.int") == [[3, 4], [1, 2]]
    fst = kaldifst.StdVectorFst.read(str(lang.path / "L.fst"))
    assert float(fst.final(0).value) == 0 and "SIL" not in {lang.phones.symbol(int(line.split()[2]))
                                                             for line in fst.to_str().splitlines() if len(line.split()) >= 4}


def test_costs_of_pronunciations_and_silence(tmp_path: Path) -> None:
    write_dict(tmp_path / "dict", lexiconp="<UNK> 1 SPN\na 0.25 A\na 0.75 B\n")
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions(sil_prob=0.2))
    lang = LangDir(tmp_path / "lang")
    found = {(line.split()[1], line.split()[2]): float(line.split()[4]) for line in arcs(lang.path / "L.fst")
             if len(line.split()) == 5 and line.split()[3] == str(lang.words["a"])}
    for phone, p in (("A_S", 0.25), ("B_S", 0.75)):
        for state, q in (("1", 0.8), ("2", 0.2)):
            assert found[state, str(lang.phones[phone])] == pytest.approx(-math.log(p * q), abs=1e-5)


def sentence_cost(path: Path, lang: LangDir, phones: str, words: str) -> float:
    """The least cost of a phone sequence and a word sequence in a lexicon transducer, by a search over all paths."""
    fst = kaldifst.StdVectorFst.read(str(path))
    wanted = [lang.phones[p] for p in phones.split()], [lang.words[w] for w in words.split()]
    best, stack = math.inf, [(0, 0, 0, 0.0)]
    while stack:
        state, p, w, cost = stack.pop()
        if (p, w) == (len(wanted[0]), len(wanted[1])):
            best = min(best, cost + float(fst.final(state).value))
        for arc in kaldifst.ArcIterator(fst, state):
            fits = [label == 0 or (at < len(row) and row[at] == label)
                    for label, at, row in zip((arc.ilabel, arc.olabel), (p, w), wanted, strict=True)]
            if all(fits):
                stack.append((arc.nextstate, p + (arc.ilabel > 0), w + (arc.olabel > 0), cost + float(arc.weight.value)))
    return best


def test_silence_probabilities_of_words(tmp_path: Path) -> None:
    """The probability of a sentence, with and without silences, is the product of what lexiconp_silprob.txt and silprob.txt say."""
    silprob = "<s> 0.9\n</s>_s 1.5\n</s>_n 0.5\noverall 0.3\n"
    write_dict(tmp_path / "dict", lexiconp_silprob="<UNK> 1 0.2 1 1 SPN\na 0.5 0.1 1.2 0.8 A\nab 1 0.3 0.7 1.1 A B\n", silprob=silprob)
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions())
    lang = LangDir(tmp_path / "lang")
    for phones, probability in (
            ("A_S A_B B_E", 0.1 * (0.8 * 0.5) * 0.9 * 1.1 * 0.7 * 0.5),
            ("SIL A_S A_B B_E", 0.9 * (1.2 * 0.5) * 0.9 * 1.1 * 0.7 * 0.5),
            ("SIL A_S SIL A_B B_E SIL", 0.9 * (1.2 * 0.5) * 0.1 * 0.7 * 0.3 * 1.5),
            ("A_S SIL A_B B_E", 0.1 * (0.8 * 0.5) * 0.1 * 0.7 * 0.7 * 0.5)):
        assert sentence_cost(lang.path / "L.fst", lang, phones, "a ab") == pytest.approx(-math.log(probability), abs=1e-5)
    marked = (tmp_path / "tmp/lexiconp_silprob_disambig.txt").read_text().splitlines()
    assert marked[1] == "a\t0.5\t0.1\t1.2\t0.8\tA_S" and (tmp_path / "tmp/lexiconp.txt").read_text().splitlines()[1] == "a\t0.5\tA_S"
    # with disambiguation symbols: that of silence is where silence might be and is not, #0 passes behind words and behind silence
    silence = lang.phones.symbol(lang.disambig_phones[-1])
    assert sentence_cost(lang.path / "L_disambig.fst", lang, f"SIL #0 A_S {silence} A_B B_E SIL #0", "#0 a ab #0") == pytest.approx(
        -math.log(0.9 * (1.2 * 0.5) * 0.9 * 1.1 * 0.3 * 1.5), abs=1e-5)


def test_phones_get_the_numbers_of_a_table(tmp_path: Path) -> None:
    write_dict(tmp_path / "dict")
    (tmp_path / "phones.txt").write_text("<eps> 0\nC 1\nB 3\nSIL 4\nA 5\nSPN 6\nZ 7\n#0 9\n#1 10\n")
    options = LangOptions(position_dependent_phones=False, phone_symbol_table=str(tmp_path / "phones.txt"))
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", options)
    lang = LangDir(tmp_path / "lang")
    assert list(lang.phones.items()) == [("<eps>", 0), ("C", 1), ("B", 3), ("SIL", 4), ("A", 5), ("SPN", 6), ("#0", 9), ("#1", 10),
                                         ("#2", 11)]
    assert lang.silence_phones == [4, 6] and lang.nonsilence_phones == [5, 3, 1] and problems_of(lang) == []
    with pytest.raises(UserError, match=r"phones\.txt has no SIL_B"):
        prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions(
            phone_symbol_table=str(tmp_path / "phones.txt")))


def test_more_disambiguation_symbols(tmp_path: Path) -> None:
    """Symbols of words that pass as #0 does, and symbols of phones before that of silence."""
    write_dict(tmp_path / "dict")
    (tmp_path / "extra").write_text("#city\n#name\n")
    options = LangOptions(extra_word_disambig_syms=str(tmp_path / "extra"), num_extra_phone_disambig_syms=3)  # none are the lexicon's
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", options)
    lang = LangDir(tmp_path / "lang")
    assert problems_of(lang) == []
    assert (lang.path / "phones/disambig.txt").read_text().split() == ["#0", "#1", "#2", "#3", "#city", "#name"]
    assert (lang.path / "phones/wdisambig.txt").read_text().split() == ["#0", "#city", "#name"]
    for symbols in ("#city a #name", "#0 a #city"):
        before, after = symbols.split(" a ")
        assert sentence_cost(lang.path / "L_disambig.fst", lang, f"SIL #3 {before} A_S {after}", symbols) < math.inf
    (tmp_path / "extra").write_text("#2\n")
    with pytest.raises(UserError, match="#2 is a symbol of the lexicon"):
        prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", options)
    (tmp_path / "extra").write_text("city\n")
    with pytest.raises(UserError, match="begin with #, found city"):
        prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", options)


def test_an_old_grammar_and_old_positions_go(tmp_path: Path) -> None:
    write_dict(tmp_path / "dict")
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions())
    (tmp_path / "lang/G.fst").write_bytes(b"of other words")
    prepare_lang(tmp_path / "dict", "<UNK>", tmp_path / "tmp", tmp_path / "lang", LangOptions(position_dependent_phones=False))
    assert not (tmp_path / "lang/G.fst").exists() and not (tmp_path / "lang/phones/word_boundary.txt").exists()


@pytest.mark.parametrize(("oov", "options", "message"), [
    ("<unk>", LangOptions(), "the OOV word <unk> is not in the lexicon"),
    ("<UNK>", LangOptions(sil_prob=1.0), "--sil-prob"),
    ("<UNK>", LangOptions(num_sil_states=0), "at least one state"),
])
def test_errors(tmp_path: Path, oov: str, options: LangOptions, message: str) -> None:
    write_dict(tmp_path / "dict", LEXICON)
    with pytest.raises(UserError, match=message):
        prepare_lang(tmp_path / "dict", oov, tmp_path / "tmp", tmp_path / "lang", options)
    assert not (tmp_path / "lang/L.fst").exists()


@given(st.sets(st.tuples(st.sampled_from("uvwxyz"), st.text("AB", min_size=1, max_size=3)), min_size=1))
def test_disambiguated_lexicon_is_unambiguous(entries: set[tuple[str, str]]) -> None:
    """No pronunciation equals or begins another one, and none that was unique has a symbol."""
    lexicon = [Pronunciation(word, 1.0, tuple(phones)) for word, phones in sorted(entries)]
    marked, highest = add_disambiguation(lexicon)
    phones = [entry.phones for entry in marked]
    assert all(a == b or a != b[:len(a)] for a in phones for b in phones) and max(Counter(phones).values()) == 1
    assert {p for row in phones for p in row if p.startswith("#")} == {f"#{n}" for n in range(1, highest + 1)}
    for before, after in zip(lexicon, marked, strict=True):
        alone = all(before is other or before.phones != other.phones[:len(before.phones)] for other in lexicon)
        assert (before.phones == after.phones) == alone
