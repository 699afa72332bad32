"""Recordings with transcripts beside them, their words in the lexicon, and TextGrid files, which are read back as they were written."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.sources.base import Interval
from pykaldist.hmm.import_ali.sources.textgrid import parse
from pykaldist.serve.spoken_files import SpokenFile, in_lexicon, read_corpus, spelled
from pykaldist.serve.textgrid import text_grid, without_gaps

LEXICON = {"HELLO", "don't", "Paris", "ok", "<unk>"}


def lay(corpus: Path, *names: str, text: str = "hello") -> None:
    for name in names:
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_text(text)


def test_a_corpus(tmp_path: Path) -> None:
    lay(tmp_path, "anna b/1.wav", "anna b/1.lab", "carl/x1.flac", "carl/x1.txt", "carl/x1.lab", "carl/x2.opus", "dora/y.txt", "z.wav",
        "z.txt")
    found = read_corpus(tmp_path)
    assert [(file.name, file.speaker) for file in found.files] == [("anna b/1", "anna_b"), ("carl/x1", "carl"), ("z", "speaker")]
    assert (found.without_text, found.without_audio) == (["carl/x2"], ["dora/y"])
    assert [file.speaker for file in read_corpus(tmp_path, 1).files] == ["1", "x", "z"]


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        read_corpus(tmp_path / "nothing")
    lay(tmp_path, "a/1.wav", "a/2.txt")
    with pytest.raises(UserError, match=r"1 recordings .* and 1 transcripts .* no two of one name"):
        read_corpus(tmp_path)
    lay(tmp_path, "a/1.txt", text=" \n")
    with pytest.raises(UserError, match="is empty"):
        read_corpus(tmp_path)
    (tmp_path / "a/1.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="no UTF-8"):
        read_corpus(tmp_path)


def test_words_in_the_lexicon() -> None:
    assert [in_lexicon(word, LEXICON) for word in ("hello,", "Don't", "don't", "PARIS!", "“OK”", "--", "xyz.")] == [
        "HELLO", "don't", "don't", "Paris", "ok", "", None]
    unknown: Counter[str] = Counter()
    file = SpokenFile("a", Path("a.wav"), "s", ["Hello", "-", "xyz."])
    assert spelled(file, LEXICON, "<unk>", unknown) == [("HELLO", "Hello"), ("<unk>", "xyz")] and unknown == {"xyz": 1}


LABELS = st.text('aé語"!\\', max_size=5)
INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), LABELS), max_size=8)


@given(INTERVALS, st.integers(0, 30))
def test_a_text_grid_is_read_as_it_was_written(parts: list[tuple[int, int, str]], rest: int) -> None:
    time, said = 0, []
    for gap, length, label in parts:
        said.append(Interval((time + gap) / 100, (time + gap + length) / 100, label))
        time += gap + length
    end = (time + rest + 1) / 100
    with tempfile.NamedTemporaryFile("w", suffix=".TextGrid", encoding="utf-8") as file:
        file.write(text_grid({"words": said, "phones": []}, end))
        file.flush()
        tiers, found_end = parse(Path(file.name))
    assert found_end == pytest.approx(end) and list(tiers) == ["words", "phones"]
    whole = without_gaps(said, end)
    assert [i.label for i in tiers["words"]] == [i.label for i in whole]
    assert [(i.start, i.end) for i in tiers["words"]] == [(pytest.approx(i.start), pytest.approx(i.end)) for i in whole]
    bounds = [i.start for i in whole] + [end]
    assert bounds[0] == 0 and all(a.end == pytest.approx(b) for a, b in zip(whole, bounds[1:], strict=True))  # without gaps
    assert [i for i in whole if i in said] == said
