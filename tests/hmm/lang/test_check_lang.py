"""A language directory that prepare_lang and format_lm have made is valid; each thing that is broken in it is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import kaldifst
import pytest

from pykaldist.cli import main
from pykaldist.decode.arpa import format_lm
from pykaldist.decode.hclg import without_word
from pykaldist.hmm.lang.check_lang import problems_of
from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir

ARPA = ("\\data\\\nngram 1=5\nngram 2=2\n\n\\1-grams:\n-1\t<s>\t-0.3\n-0.6\tyes\t-0.2\n-0.6\tno\t-0.2\n-0.9\t<UNK>\n-0.7\t</s>\n\n"
        "\\2-grams:\n-0.3\t<s> yes\n-0.5\tyes no\n\n\\end\\\n")


@pytest.fixture(scope="module", params=[True, False], ids=["positions", "no positions"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lang")
    (folder / "dict").mkdir()
    for name, text in (("silence_phones.txt", "SIL\nSPN\n"), ("nonsilence_phones.txt", "Y\nE\nS\nN\nO\n"),
                       ("optional_silence.txt", "SIL\n"), ("lexicon.txt", "<UNK> SPN\nyes Y E S\nno N O\nn N\n"),
                       ("extra_questions.txt", "SIL SPN\n")):
        (folder / "dict" / name).write_text(text)
    prepare_lang(folder / "dict", "<UNK>", folder / "tmp", folder / "lang", LangOptions(position_dependent_phones=request.param))
    (folder / "lm.arpa").write_text(ARPA)
    format_lm(folder / "lang", folder / "lm.arpa", folder / "dict" / "lexicon.txt", folder / "lang_test")
    return folder


def test_what_is_made_here_is_valid(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("lang", "lang_test"):
        assert problems_of(LangDir(sound / name)) == []
        assert main(["validate-lang", str(sound / name)], told=True) == 0
        assert "is a valid language directory" in capsys.readouterr().out
    assert main(["validate-dict-dir", str(sound / "dict")], told=True) == 0
    assert "4 words, 4 pronunciations" in capsys.readouterr().out


def test_kaldis_is_valid(golden: Path) -> None:
    assert problems_of(LangDir(golden / "an4_kaldi" / "lang")) == []


@pytest.mark.parametrize(("file", "old", "new", "message"), [
    ("phones.txt", "<eps> 0", "<eps> 99", "<eps> must have the number 0"),
    ("words.txt", "#0 ", "#9 ", "has no #0"),
    ("phones/silence.csl", "2", "2:", "with colons between them"),
    ("phones/nonsilence.int", "\n", "9\n", "does not stand for"),
    ("phones/silence.txt", "SPN\n", "other\n", "other is not in phones.txt"),
    ("phones/optional_silence.txt", "SIL", "#1", "expected one phone of silence.txt, found #1"),
    ("phones/disambig.txt", "#1\n", "", "lacks #0 or #1"),
    ("phones/sets.txt", "SPN", "SIL", "does not have each phone"),
    ("topo", "<ForPhones>\n", "<ForPhones>\n1 ", "topo has a phone twice"),
    ("oov.int", "\n", "7\n", "oov.int is not the number of <UNK>"),
    ("phones/wdisambig_words.int", "\n", "7\n", "does not stand for wdisambig.txt"),
])
def test_what_is_broken_is_found(sound: Path, tmp_path: Path, file: str, old: str, new: str, message: str,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(sound / "lang", tmp_path / "lang")
    path = tmp_path / "lang" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert any(message in problem for problem in problems_of(LangDir(tmp_path / "lang"))), problems_of(LangDir(tmp_path / "lang"))
    assert main(["validate-lang", str(tmp_path / "lang")], told=True) == 1 and message in capsys.readouterr().err


def grammar(sound: Path, tmp_path: Path, *labels: tuple[str, str]) -> LangDir:
    """A language directory whose G has an arc for each pair of labels, and then ends."""
    shutil.copytree(sound / "lang_test", tmp_path / "lang")
    lang = LangDir(tmp_path / "lang")
    fst = kaldifst.StdVectorFst()
    for _ in range(2):
        fst.add_state()
    fst.start = 0
    fst.set_final(1, kaldifst.TropicalWeight.one)
    for ilabel, olabel in labels:
        fst.add_arc(0, kaldifst.StdArc(ilabel=lang.words[ilabel], olabel=lang.words[olabel], weight=0.0, nextstate=1))
    fst.write(str(lang.path / "G.fst"))
    return lang


@pytest.mark.parametrize(("ilabel", "olabel", "message"), [
    ("<s>", "<s>", "has <s> or </s> as input"), ("<eps>", "<eps>", "arcs without a word"), ("yes", "#0", "has #0 as output")])
def test_a_grammar_that_is_none(sound: Path, tmp_path: Path, ilabel: str, olabel: str, message: str) -> None:
    assert any(message in problem for problem in problems_of(grammar(sound, tmp_path, (ilabel, olabel))))


def test_a_grammar_that_is_not_sorted(sound: Path, tmp_path: Path) -> None:
    assert any("not sorted by input labels" in problem for problem in problems_of(grammar(sound, tmp_path, ("yes", "yes"), ("no", "no"))))


def test_the_word_for_unknown_words_can_be_left_out(sound: Path) -> None:
    lang = LangDir(sound / "lang_test")
    fst = Fst.read(lang.path / "G.fst")
    oov = lang.words[lang.oov]
    left = without_word(fst, oov)
    assert (fst.ilabel == oov).any() and not (left.ilabel == oov).any()
    assert left.num_arcs == fst.num_arcs - (fst.ilabel == oov).sum()
