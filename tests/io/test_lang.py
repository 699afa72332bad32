"""Language directories as they are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.lang import LangDir, SymbolTable


def test_symbol_table(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<eps> 0\nyes 1\nno 2\n")
    table = SymbolTable.read(tmp_path / "words.txt")
    assert table["no"] == 2 and table.symbol(1) == "yes" and list(table) == ["<eps>", "yes", "no"]
    assert table.ids(["no", "yes"], "here") == [2, 1]
    with pytest.raises(UserError, match="here: maybe is not in"):
        table.ids(["maybe"], "here")
    with pytest.raises(UserError, match="no symbol 3"):
        table.symbol(3)


@pytest.mark.parametrize(("text", "message"), [("a 1\nb 1\n", "same number"), ("a 1\na 2\n", "appears twice"),
                                               ("a one\n", "expected a number"), ("a\n", "expected a number")])
def test_symbol_table_with_errors(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "words.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        SymbolTable.read(tmp_path / "words.txt")


def test_golden_lang(golden: Path) -> None:
    lang = LangDir(golden / "an4_kaldi/lang")
    assert (lang.words["A"], lang.phones["SIL_S"], lang.oov, lang.optional_silence) == (3, 5, "<UNK>", 1)
    assert lang.silence_phones == list(range(1, 11)) and lang.nonsilence_phones == list(range(11, 143))
    assert lang.disambig_phones == [143, 144, 145, 146] and lang.word_disambig == (143, 104)
    assert len(lang.phone_sets) == 35 and lang.phone_sets[0] == [1, 2, 3, 4, 5]
    assert lang.word_boundary is not None and lang.word_boundary[11] == "begin"
    assert (3, [lang.phones["AH_S"]]) in lang.align_lexicon and (0, [1]) in lang.align_lexicon
    assert lang.word_ids(["A", "XYZZY"]) == ([3, lang.words["<UNK>"]], ["XYZZY"])


def test_missing_and_damaged_files(golden: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no language directory"):
        LangDir(tmp_path / "none")
    shutil.copytree(golden / "an4_kaldi/lang", tmp_path / "lang")
    for path in (tmp_path / "lang", tmp_path / "lang/phones", *(tmp_path / "lang").rglob("*")):
        path.chmod(0o755)
    (tmp_path / "lang/oov.txt").write_text("nowhere\n")
    (tmp_path / "lang/phones/sets.int").write_text("1 x\n")
    (tmp_path / "lang/words.txt").rename(tmp_path / "lang/gone")
    with pytest.raises(UserError, match=r"words\.txt does not exist"):
        LangDir(tmp_path / "lang").words  # noqa: B018
    (tmp_path / "lang/gone").rename(tmp_path / "lang/words.txt")
    with pytest.raises(UserError, match=r"expected one word of words\.txt, found 'nowhere'"):
        LangDir(tmp_path / "lang").oov  # noqa: B018
    with pytest.raises(UserError, match="expected integers, found 'x'"):
        LangDir(tmp_path / "lang").phone_sets  # noqa: B018
