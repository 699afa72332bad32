"""Provenance: a file that has changed since a folder was made of it is named; a copy, or a folder that was moved, is as good."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io import provenance

MeasureReads = Callable[[], list[Path]]


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder exp/graph, made of data/lang/words.txt; data/lang was made of data/dict/lexicon.txt."""
    monkeypatch.chdir(tmp_path)
    for name in ("data/dict/lexicon.txt", "data/lang/words.txt", "exp/graph/HCLG.fst"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text(f"content of {name}")
    provenance.record("data/lang", "utils/prepare_lang.sh", ["data/dict/lexicon.txt", "data/dict/lexiconp.txt"])
    provenance.record("exp/graph", "utils/mkgraph.sh", ["data/lang/words.txt"], ["HCLG.fst"], {"words": "w"}, ["data/lang"])
    return Path("exp/graph")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read for their checksums."""
    found: list[Path] = []
    real = provenance.checksum
    monkeypatch.setattr(provenance, "checksum", lambda path: (found.append(Path(path)), real(path))[1])
    return found


def older(*paths: str) -> None:
    """Make files older than those that a clock could not tell apart."""
    for path in paths:
        before = os.stat(path).st_mtime_ns - 10 * provenance.SLACK
        os.utime(path, ns=(before, before))


FILES = ("data/dict/lexicon.txt", "data/lang/words.txt", "exp/graph/HCLG.fst")


def test_what_is_as_it_was_is_not_read_again(graph: Path, reads: list[Path]) -> None:
    provenance.check(graph)
    assert len(reads) == 3  # too young for their times to say much
    older(*FILES)
    provenance.check(graph)
    assert len(reads) == 6  # other times
    reads.clear()
    provenance.check(graph)
    assert reads == []
    assert {Path(name).name for name in (provenance.read(graph) or pytest.fail()).inputs} == {"lexicon.txt", "words.txt"}


@pytest.mark.parametrize(("changed", "words"), [
    ("data/dict/lexicon.txt", r"lexicon\.txt has changed since utils/mkgraph\.sh made exp/graph of it; run utils/mkgraph\.sh again, "
                              r"or remove exp/graph/inputs\.json if it is meant\.$"),
    ("data/lang/words.txt", "data/lang/words.txt has changed since utils/mkgraph.sh made exp/graph of it"),
    ("exp/graph/HCLG.fst", "exp/graph/HCLG.fst has changed since utils/mkgraph.sh made exp/graph; run"),
])
@pytest.mark.parametrize("aged", [False, True])
def test_the_file_that_has_changed_is_named(graph: Path, changed: str, words: str, aged: bool) -> None:
    if aged:
        older(*FILES)
        provenance.check(graph)
    content = Path(changed).read_bytes()
    Path(changed).write_bytes(content[:-1] + b"!")  # of the same size
    with pytest.raises(UserError, match=words):
        provenance.check(graph)
    if not changed.startswith("exp"):
        provenance.check(graph, inputs=False)
    Path(changed).write_bytes(content)
    provenance.check(graph)
    Path(changed).write_bytes(content + b"more")
    (graph / provenance.FILE).unlink()  # if it is meant
    provenance.check(graph)


def test_a_lexicon_edited_before_the_language_directory_is_used(graph: Path) -> None:
    Path("data/dict/lexicon.txt").write_text("another")
    with pytest.raises(UserError, match=r"lexicon\.txt has changed since utils/prepare_lang\.sh made data/lang of it"):
        provenance.check("data/lang")


def test_what_is_gone_is_not_missed(graph: Path) -> None:
    shutil.rmtree("data/dict")
    provenance.check(graph)
    Path("data/lang/words.txt").write_text("other")
    with pytest.raises(UserError, match=r"words\.txt has changed"):
        provenance.check(graph)


def test_a_copy_of_the_whole_is_as_good_as_the_original(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tmp_path, tmp_path.parent / "copy", dirs_exist_ok=True)
    Path("data/lang/words.txt").write_text("of the original, which goes on")
    monkeypatch.chdir(tmp_path.parent / "copy")
    provenance.check(graph)
    Path("data/lang/words.txt").write_text("other")
    with pytest.raises(UserError, match=r"words\.txt has changed"):
        provenance.check(graph)
    assert capsys.readouterr().err == ""


def test_a_folder_that_was_moved_among_other_files_is_warned_of(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path.parent / "other"
    (other / "data/lang").mkdir(parents=True)
    (other / "data/lang/words.txt").write_text("of another recipe")
    shutil.copytree(graph, other / graph)
    monkeypatch.chdir(other)
    for _ in range(2):
        provenance.check(graph)
        said = capsys.readouterr().err
        assert said.startswith("WARNING: data/lang/words.txt has changed since") and str(tmp_path) in said and said.count("\n") == 1
    (graph / "HCLG.fst").write_text("other")
    with pytest.raises(UserError, match=r"HCLG\.fst has changed"):
        provenance.check(graph)


def test_a_folder_behind_a_link(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "disk/deep").mkdir(parents=True)
    shutil.move("exp", tmp_path / "disk/deep/exp")
    Path("exp").symlink_to(tmp_path / "disk/deep/exp")
    provenance.check(graph)
    Path("data/lang/words.txt").write_text("other")
    with pytest.raises(UserError, match=r"words\.txt has changed"):
        provenance.check(graph)


def test_facts_that_differ(graph: Path) -> None:
    provenance.compare(graph, {"words": "w", "tree": "t"}, "lang/words.txt", "use another")
    with pytest.raises(UserError, match=r"^lang/words\.txt and exp/graph do not belong together: their words differ; use another\.$"):
        provenance.compare(graph, {"words": "x"}, "lang/words.txt", "use another")
    provenance.forget(graph)
    provenance.compare(graph, {"words": "x"}, "lang/words.txt", "use another")


def test_a_record_that_cannot_be_written_or_read(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older(*FILES)

    def refuse(*args: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(provenance, "write_text", refuse)
        provenance.check(graph)
    (graph / provenance.FILE).write_text("{")
    with pytest.raises(UserError, match=r"inputs\.json is damaged: it is not JSON .*; make exp/graph again, or remove the file"):
        provenance.check(graph)
