"""The index of a table: a dictionary whose strings stay in the file."""

from __future__ import annotations

import os
import pickle
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io import line_index
from pykaldist.io.datadir import DataDir
from pykaldist.io.line_index import LineIndex
from pykaldist.io.tables import read_map

WORD = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Z", "Cc")), min_size=1, max_size=6)


@given(st.dictionaries(WORD, st.lists(WORD, max_size=4).map(" ".join), max_size=30), st.integers(1, 40), st.booleans())
def test_it_is_the_dictionary(tmp_path, monkeypatch, table, block, ends):
    """Whatever is read together, and with or without an end of the last line."""
    monkeypatch.setattr(line_index, "BLOCK", block)
    monkeypatch.setattr(line_index, "LINE", block)
    path = tmp_path / "table"
    path.write_text("\n".join(f"{key} {value}".rstrip() for key, value in table.items()) + "\n" * (ends and bool(table)), encoding="utf-8")
    index = LineIndex(path)
    assert dict(index.items()) == read_map(path) == table == dict(index) and len(index) == len(table)
    assert [*index] == [*table] and [*index.values()] == [*table.values()] and [*index.items()] == [*table.items()]
    for key in [*table, "not there", ""]:
        assert (key in index) == (key in table) and index.get(key) == table.get(key)
    assert dict(pickle.loads(pickle.dumps(index))) == table


@given(st.dictionaries(WORD, WORD, max_size=30), st.data())
def test_chosen_keys_are_a_list_of_them(tmp_path, table, draw):
    """Of any of a table's lines, and of any part of that list."""
    index = LineIndex.of(table.items(), tmp_path, tmp_path / "origin")
    assert dict(index) == table
    wanted = draw.draw(st.sets(st.sampled_from(sorted(table)))) if table else set()
    keys, expected = index.chosen(wanted.__contains__), [key for key in table if key in wanted]
    assert [*keys] == expected and len(keys) == len(expected) and [keys[-1 - n] for n in range(len(keys))] == expected[::-1]
    part = slice(draw.draw(st.integers(0, 5)), draw.draw(st.integers(0, 30)))
    assert [*keys[part]] == expected[part]
    for key in [*table, "not there"]:
        assert (key in keys) == (key in wanted) and (key in keys[part]) == (key in expected[part])


def test_entries_without_a_file_of_their_own(tmp_path):
    """What is wrong with them is said of where they are from, and nothing is left in the folder."""
    index = LineIndex.of([("a", "1"), ("b", "2 3")], tmp_path, tmp_path / "ali")
    assert index["b"] == "2 3" and not [*tmp_path.iterdir()]
    with pytest.raises(UserError, match="ali, line 3: a appears twice"):
        LineIndex.of([("a", "1"), ("b", "2"), ("a", "3")], tmp_path, tmp_path / "ali")


def test_keys_of_one_hash_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(line_index, "hash", len, raising=False)
    (tmp_path / "table").write_text("b 1\na 2\nlong 3\n")
    index = LineIndex(tmp_path / "table")
    assert dict(index) == {"b": "1", "a": "2", "long": "3"} and "c" not in index and "short" not in index
    keys = index.chosen(lambda key: key != "a")
    assert [key in keys for key in ("b", "a", "c", "long")] == [True, False, False, True]
    (tmp_path / "table").write_text("b 1\na 2\nc 3\nb 4\n")
    with pytest.raises(UserError, match="table, line 4: b appears twice; keep one"):
        LineIndex(tmp_path / "table")


@pytest.mark.parametrize(("text", "said"), [
    (b"a 1\nb 2\na 3\n", "table, line 3: a appears twice; keep one"), (b"a 1\n\nb 2\n", "table, line 2: empty line; remove it"),
    (b"a 1\nb \xff\n", r"table is not UTF-8 text \(byte 6\)")])
def test_what_is_wrong_is_said_as_of_other_tables(tmp_path, text, said):
    (tmp_path / "table").write_bytes(text)
    for read in (LineIndex, read_map):
        with pytest.raises(UserError, match=said):
            read(tmp_path / "table")


def test_it_goes_on_with_the_file_that_it_was_made_of(tmp_path):
    (tmp_path / "table").write_text("a 1\nb 2\n")
    index = LineIndex(tmp_path / "table")
    (tmp_path / "other").write_text("a 7\n")
    os.replace(tmp_path / "other", tmp_path / "table")
    assert dict(index) == {"a": "1", "b": "2"}


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("a 1\nb 2\n"))
    writer.start()
    index = LineIndex(tmp_path / "pipe")
    writer.join()
    assert index["b"] == "2" and [*index] == ["a", "b"]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.booleans())
def test_speakers_are_those_of_spk2utt(tmp_path, speakers, together):
    """Their utterances stand together, or do not."""
    chosen = sorted(speakers) if together else random.Random(1).sample(speakers, len(speakers))
    (tmp_path / "utt2spk").write_text("".join(f"utt{number} s{spk}\n" for number, spk in enumerate(chosen)))
    count, found = DataDir(tmp_path).speakers()
    assert dict(found) == DataDir(tmp_path).spk2utt and count == len(set(speakers))
