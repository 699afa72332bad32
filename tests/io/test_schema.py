"""Schemas: a file that is not as it has to be is one sentence, which says where it differs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pykaldist.errors import UserError
from pykaldist.io.schema import Misfit, read_json, read_json_lines, read_json_map, require, same_form


@dataclass
class Part:
    total: float


@dataclass
class Sample:
    name: str
    count: int
    parts: dict[str, Part]
    anything: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    commit: str | None = None
    format: int = 3

    def __post_init__(self) -> None:
        require(self.count > 0, "count", self.count, "a positive number")


SOUND = {"name": "a", "count": 2, "parts": {"one": {"total": 1}}, "anything": {"x": [1, None]}, "rates": [1, 0.5], "format": 3}


def test_what_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(json.dumps(SOUND))
    found = read_json(tmp_path / "f", Sample, "make it again", 3)
    assert (found.name, found.count, found.parts["one"].total, found.rates, found.commit) == ("a", 2, 1.0, [1.0, 0.5], None)
    assert found.anything == {"x": [1, None]}


@pytest.mark.parametrize(("changed", "words"), [
    ({"count": "2"}, r"f is not as expected: count is '2', expected a whole number; make it again\.$"),
    ({"count": True}, "count is True"),
    ({"count": 0}, "count is 0, expected a positive number"),
    ({"parts": []}, r"parts is \[\], expected an object"),
    ({"parts": {"one": {}}}, "parts.one.total is missing, expected a value"),
    ({"parts": {"one": {"total": 1, "more": 2}}}, "parts.one.more is unknown, expected one of total"),
    ({"rates": [1, "x"]}, "rates.1 is 'x', expected a number"),
    ({"rates": [10**400]}, "rates.0 is out of range"),
    ({"format": 2}, r"f has the format 2, this version reads 3; make it again\.$"),
])
def test_what_does_not_fit_is_a_sentence(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    (tmp_path / "f").write_text(json.dumps({**SOUND, **changed}))
    with pytest.raises(UserError, match=words):
        read_json(tmp_path / "f", Sample, "make it again", 3)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100000, json.dumps(SOUND).encode()[:-9], b"7"])
def test_no_json_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(UserError, match=r"f is (damaged: it is not JSON|not as expected: the file is int).*; make it again\.$") as error:
        read_json(tmp_path / "f", Sample, "make it again", 3)
    assert len(str(error.value)) < 400 + len(str(tmp_path)) and "\n" not in str(error.value)


def test_a_map_of_names(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text('{"a": {"total": 1}, "b": {"total": 2.5}}')
    assert read_json_map(path, Part, "mend it") == {"a": Part(1.0), "b": Part(2.5)}
    for content, words in (("[]", r"the file is list, expected an object; mend it\."),
                           ('{"a": {}}', r"a\.total is missing, expected a value"), ("{", r"is damaged: it is not JSON .*; mend it\.")):
        path.write_text(content)
        with pytest.raises(UserError, match=words):
            read_json_map(path, Part, "mend it")


def test_lines_of_which_the_last_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lines = tmp_path / "f.jsonl", [json.dumps({"total": n, "note": "é"}, ensure_ascii=False) for n in range(3)]
    whole = ("\n".join(lines) + "\n").encode()
    path.write_bytes(whole)
    assert [line["total"] for line in read_json_lines(path, Part, "restore it")] == [0, 1, 2]
    path.write_bytes(whole[:-1])  # only the newline is missing
    assert len(read_json_lines(path, Part, "restore it")) == 3 and capsys.readouterr().err == ""
    for cut in (2, 4, 20):  # within a character of two bytes, too
        path.write_bytes(whole[:-cut])
        assert [line["total"] for line in read_json_lines(path, Part, "restore it")] == [0, 1]
        assert capsys.readouterr().err == f"WARNING: {path}, line 3: the last line is cut, and left out\n"
    path.write_bytes(whole.replace(b'"total": 1', b'"total": x'))
    with pytest.raises(UserError, match=r"f\.jsonl, line 2, is damaged: it is not JSON .*; restore it\.$"):
        read_json_lines(path, Part, "restore it")
    path.write_bytes(whole.replace(b'"total": 2', b'"totil": 2'))
    with pytest.raises(UserError, match=r"line 3, is not as expected: total is missing, expected a value; restore it\.$"):
        read_json_lines(path, Part, "restore it")
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(UserError, match=r"line 4, is not as expected: total is missing"):
        read_json_lines(path, Part, "restore it")


def test_a_state_of_another_form() -> None:
    like = {"rate": 0.1, "halving": False, "best": math.inf, "inner": {}}
    same_form({"rate": 1, "halving": True, "best": None, "inner": {"x": 1}}, like, "the schedule")
    for state, words in (([], "the schedule is list, expected a dictionary with rate"), ({"rate": 0.1}, "expected one with rate, halving"),
                         ({**like, "halving": 0.5}, "the schedule.halving is of type float, expected bool"),
                         ({**like, "inner": 3}, "the schedule.inner is of type int, expected dict")):
        with pytest.raises(Misfit, match=words):
            same_form(state, like, "the schedule")
