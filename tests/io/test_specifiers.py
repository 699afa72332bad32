"""Rspecifiers and wspecifiers name files, and nothing that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.specifiers import read_paths, write_path


def test_reading(tmp_path: Path) -> None:
    for name in ("ali.10.gz", "ali.9.gz", "b.txt"):
        (tmp_path / name).touch()
    assert read_paths(f"ark:{tmp_path}/ali.*.gz") == [f"{tmp_path}/ali.9.gz", f"{tmp_path}/ali.10.gz"]
    assert read_paths(f"ark,s,cs:{tmp_path}/b.txt") == read_paths(f"{tmp_path}/b.txt") == [f"{tmp_path}/b.txt"]
    assert read_paths("ark:-") == ["-"]


def test_writing() -> None:
    assert write_path("ark:x.gz") == ("x.gz", True)
    assert write_path("ark,t:-") == ("-", False)
    assert write_path("x") == ("x", True)


@pytest.mark.parametrize(("specifier", "message"), [
    ("ark:gunzip -c ali.1.gz|", "a pipe, which is not run"), ("scp:feats.scp", "expected an archive"), ("ark:", "expected ark:FILE"),
    ("ark,q:x", "expected ark:FILE"), ("nowhere", "nowhere does not exist")])
def test_refusals(specifier: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_paths(specifier)
