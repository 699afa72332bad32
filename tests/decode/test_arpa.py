from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import kaldilm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.decode import arpa as arpa_module
from pykaldist.decode.arpa import format_lm, grammar
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import sort_arcs, trimmed
from pykaldist.io.fstops import remove_eps_local
from pykaldist.lm import model as model_module
from pykaldist.lm import texts
from pykaldist.lm.arpa import read_ngrams, write_arpa
from pykaldist.lm.prune import prune
from pykaldist.lm.smoothing import estimate

ARPA = """comment
\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-0.5\t</s>
-99\t<s>\t-0.2
-0.6\ta\t-0.1
-0.7\tb\t-0.3

\\2-grams:
-0.3\t<s> a
-0.2\ta b
-0.4\tb </s>

\\end\\
"""

SYMBOLS = {"<eps>": 0, "a": 1, "b": 2, "#0": 3, "<s>": 4, "</s>": 5}


@pytest.fixture
def lang(tmp_path: Path) -> Path:
    folder = tmp_path / "lang"
    (folder / "phones").mkdir(parents=True)
    (folder / "words.txt").write_text("<eps> 0\na 1\nb 2\n#0 3\n<s> 4\n</s> 5\n")
    (folder / "L_disambig.fst").write_bytes(b"only copied here")
    (folder / "phones/silence.csl").write_text("1\n")
    (tmp_path / "lexicon.txt").write_text("a AH\nb B IY\n")
    return folder


def test_grammar_of_an4_equals_kaldis(golden: Path, shared: Path) -> None:
    lang = golden / "an4_kaldi/lang"
    ours, summary = grammar(shared / "data/an4/etc/an4.lm", lang / "words.txt")
    kaldis = Fst.read(lang / "G.fst")
    assert summary.counts == [107, 1] and summary.outside == 5
    assert ours.start == kaldis.start
    for name in ("final", "offset", "ilabel", "olabel", "weight", "nextstate"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(kaldis, name))


def of_kaldilm(path: Path, words: Path) -> Fst:
    """G as kaldilm makes it, which is arpa2fst's code, without states from which one can only back off."""
    kaldilm.arpa2fst(str(path), f"{path}.fst", disambig_symbol="#0", read_symbol_table=str(words), max_arpa_warnings=0)
    fst = Fst.read(f"{path}.fst")
    lone = (np.diff(fst.offset) == 1) & np.isinf(fst.final)
    fst.ilabel[lone[fst.source] & (fst.ilabel == 3)] = 0
    fst = trimmed(remove_eps_local(fst))
    sort_arcs(fst.offset, fst.ilabel, fst.olabel, fst.weight, fst.nextstate)
    return fst


def rows(fst: Fst) -> list[tuple[object, ...]]:
    """The states from the start on, each with its final cost and its arcs; numbered as they are reached."""
    number: dict[int, int] = {fst.start: 0}
    found: list[tuple[object, ...]] = []
    while len(found) < len(number):
        state, arcs = list(number)[len(found)], []
        for a in range(fst.offset[state], fst.offset[state + 1]):
            to = number.setdefault(int(fst.nextstate[a]), len(number))
            arcs.append((int(fst.ilabel[a]), int(fst.olabel[a]), round(float(fst.weight[a]), 4), to))
        found.append((round(float(fst.final[state]), 4), *arcs))
    return found


@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from("abxyz"), min_size=1, max_size=6), min_size=1, max_size=12), st.integers(1, 4),
       st.sampled_from([0.0, 0.02, 0.3]), st.sampled_from([1, 3, 1 << 20]), st.booleans())
def test_grammar_is_that_of_kaldilm(tmp_path_factory: pytest.TempPathFactory, text: list[list[str]], order: int, threshold: float,
                                    block: int, fewer_words: bool) -> None:
    folder = tmp_path_factory.mktemp("g")
    model = estimate(text, "abxyz", order, "witten-bell")
    write_arpa(prune(model, threshold) if threshold else model, folder / "lm")
    names = "<eps> a b #0 x y <s> </s>" if fewer_words else "<eps> a b #0 x y <s> </s> z"
    (folder / "words.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(names.split())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arpa_module, "_BLOCK", block)
        patch.setattr(model_module, "_BLOCK", block)
        ours = grammar(folder / "lm", folder / "words.txt")[0]
    assert rows(ours) == rows(of_kaldilm(folder / "lm", folder / "words.txt"))
    assert len(rows(ours)) == ours.num_states  # all are reached


def sentence_cost(fst: Fst, words: list[int]) -> float:
    """The cost of `words` with back-off only where the n-gram is missing (label 3 is #0)."""
    s, cost = fst.start, 0.0
    for w in [*words, None]:
        while True:
            arcs = {int(fst.ilabel[a]): a for a in range(fst.offset[s], fst.offset[s + 1])}
            if w is None and fst.final[s] < np.inf:
                return cost + float(fst.final[s])
            a = arcs[w if w in arcs else 3]
            cost += float(fst.weight[a])
            s = int(fst.nextstate[a])
            if fst.ilabel[a] == w:
                break
    raise AssertionError


def test_sentences_cost_what_the_model_says(lang: Path, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "lm.gz", "wt") as stream:
        stream.write(ARPA)
    fst, _ = format_lm(lang, tmp_path / "lm.gz", tmp_path / "lexicon.txt", tmp_path / "out")
    assert sentence_cost(fst, [1, 2]) == pytest.approx(np.log(10) * (0.3 + 0.2 + 0.4), abs=1e-4)
    assert sentence_cost(fst, [1]) == pytest.approx(np.log(10) * (0.3 + 0.1 + 0.5), abs=1e-4)
    assert sentence_cost(fst, [2, 2]) == pytest.approx(np.log(10) * (0.2 + 0.7 + 0.3 + 0.7 + 0.4), abs=1e-4)
    assert (tmp_path / "out/phones/silence.csl").is_file() and Fst.read(tmp_path / "out/G.fst").num_arcs == fst.num_arcs


@pytest.mark.parametrize(("old", "new", "message"), [
    ("\\data\\", "\\date\\", r"no \\data\\ section"),
    ("ngram 1=4", "ngram 1=four", r"line 3: expected `ngram 1=COUNT`"),
    ("ngram 2=3", "ngram 3=3", r"line 4: expected `ngram 2=COUNT`"),
    ("ngram 2=3", "ngram 2=4", r"line 17: \\data\\ promises 4 2-grams, and 3 are there"),
    ("ngram 1=4", "ngram 1=3", r"line 12: \\data\\ promises 3 1-grams, and 4 are there"),
    ("\\1-grams:", "", r"line 7: expected the section \\1-grams:"),
    ("\\2-grams:", "\\3-grams:", r"line 12: expected the section \\2-grams:"),
    ("\\end\\", "", r"line 17: expected \\end\\"),
    ("-0.6\ta", "x0.6\ta", r"line 9: expected a base-10 log-probability.*'x0.6'"),
    ("-0.6\ta", "0.6\ta", r"line 9: expected a base-10 log-probability.*'0.6'"),
    ("-0.6\ta", "nan\ta", r"line 9: expected a base-10 log-probability"),
    ("a\t-0.1", "a\t-0.1x", r"line 9: expected a back-off weight, found '-0.1x'"),
    ("-0.2\ta b", "-0.2\tb", r"line 14: expected a log-probability, 2 words"),
    ("-0.2\ta b", "-0.2\tc b", r"line 14: the history 'c' of this 2-gram is not among the 1-grams"),
    ("-0.2\ta b", "-0.2\t<s> a", r"line 14: the 2-gram '<s> a' is given twice"),
    ("-99\t<s>\t-0.2", "-99\tq", r"unigrams lack <s>"),
])
def test_errors_are_named_with_their_line(lang: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ARPA
    (tmp_path / "lm").write_text(ARPA.replace(old, new, 1))
    with pytest.raises(UserError, match=message) as error:
        format_lm(lang, tmp_path / "lm", tmp_path / "lexicon.txt", tmp_path / "out")
    assert str(tmp_path / "lm") in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_every_truncation_is_an_error(lang: Path, tmp_path: Path) -> None:
    for length in range(len(ARPA.rstrip()) - 1):
        (tmp_path / "lm").write_text(ARPA[:length])
        with pytest.raises(UserError):
            read_ngrams(tmp_path / "lm", SYMBOLS)
    (tmp_path / "lm.gz").write_bytes(gzip.compress(ARPA.encode())[:-9])
    with pytest.raises(UserError, match="truncated"):
        read_ngrams(tmp_path / "lm.gz", SYMBOLS)
    (tmp_path / "lm").write_bytes(b"\\data\\\n\xff")
    with pytest.raises(UserError, match="UTF-8"):
        read_ngrams(tmp_path / "lm", SYMBOLS)


def test_words_without_phones_must_not_make_a_cycle(lang: Path, tmp_path: Path) -> None:
    (tmp_path / "lm").write_text(ARPA)
    (tmp_path / "lexicon.txt").write_text("a AH\nb\n")
    with pytest.raises(UserError, match=r"cycle of words without phones \(b\)"):
        format_lm(lang, tmp_path / "lm", tmp_path / "lexicon.txt", tmp_path / "out")


@pytest.mark.usefixtures("all_plain_lines")
def test_the_verbs_say_how_far_they_are_and_what_they_took(lang: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_MB", 10)
    monkeypatch.setattr(texts, "_BLOCK", 20)
    (tmp_path / "lm").write_text(ARPA)
    (lang / "oov.int").write_text("1\n")
    assert main(["format-lm", str(lang), str(tmp_path / "lm"), str(tmp_path / "lexicon.txt"), str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert f"reading lm: 2/{len(ARPA) // 10} (" in said.err
    assert "states of G: 7/7 (100 %) n-gram" in said.err and "arcs of G: 7/7 (100 %) n-gram" in said.err
    assert "arcs; " in said.out and "MB written" in said.out
    assert main(["build-const-arpa", str(tmp_path / "lm"), str(lang), str(tmp_path / "const")]) == 0
    said = capsys.readouterr()
    assert "states of G.carpa: 3/3 (100 %) n-gram" in said.err
    assert "4 + 3 n-grams; " in said.out and "MB written" in said.out


def test_a_model_of_other_words_is_refused(lang: Path, tmp_path: Path) -> None:
    (tmp_path / "lm").write_text(ARPA)
    shutil.copy(lang / "words.txt", tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("<eps> 0\nx 1\n")
    with pytest.raises(UserError, match="no #0"):
        grammar(tmp_path / "lm", tmp_path / "words.txt")
    (tmp_path / "words.txt").write_text("<eps> 0\nA 1\nB 2\n#0 3\n<s> 4\n</s> 5\n")
    with pytest.raises(UserError, match=r"lm has no sentence of words that are in .*words\.txt; its words are such as a, b;"):
        grammar(tmp_path / "lm", tmp_path / "words.txt")
