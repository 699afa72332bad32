"""The programs that divide phones, and frames, among words: as babel's align_to_words and mini_librispeech's keyword search call them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.io.entries import read_entries
from pykaldist.programs.prons import read_prons, write_prons

ROOT = Path(__file__).resolve().parents[2]
# silence 1, phones 2 and 3, words begin with 4 and end with 5; word 1 is `2 3`, or `2`, word 2 is `3 3`; silence may stand at every end
LEXICON = """0 1 0 0
0 1 1 0
1 2 4 1
2 3 2 0
3 4 3 0
4 0 5 0
2 5 2 0
5 0 5 0
1 6 4 2
6 7 3 0
7 8 3 0
8 0 5 0
1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("L").write_text(LEXICON)
    assert main(["fstcompile", "L", "L.fst"]) == 0
    return tmp_path


def test_phones_and_frames_of_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`2 3 3 3` are word 1 of two phones and word 2; words alone say where `2 3 3` is divided."""
    Path("lengths").write_text("a 1 7 ; 2 3 ; 3 4 ; 1 9 ; 3 2 ; 3 5 ; 1 6\nb 2 1 ; 3 2 ; 3 3\nc 2 1 ; 2 8\n")
    Path("phones").write_text("a 1 2 3 1 3 3 1\nb 2 3 3\nc 2 2\nd 3 2\ne 1\n")
    Path("words").write_text("a 1 2\nb 1 2\nc 1 1\nd 2 1\n")
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}"}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    line = ("phones-to-prons L.fst 4 5 ark:phones ark:words ark,t:prons; "
            "phones-to-prons L.fst 4 5 ark:phones ark:words ark:- | prons-to-wordali ark:- ark:lengths ark,t:ali")
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=True)
    assert Path("prons").read_text() == "a 0 1 ; 1 2 3 ; 0 1 ; 2 3 3 ; 0 1 ; \nb 1 2 ; 2 3 3 ; \nc 1 2 ; 1 2 ; \n"
    assert Path("ali").read_text() == "a 0 7 ; 1 7 ; 0 9 ; 2 7 ; 0 6 \nb 1 1 ; 2 5 \nc 1 1 ; 1 8 \n"
    assert "d: the lexicon does not give its 2 phones to its 2 words" in done.stderr and "e has no transcript" in done.stderr
    assert main(["prons-to-wordali", "--per-frame=true", "ark:prons", "ark:lengths", "ark,t:frames"]) == 0
    assert Path("frames").read_text().splitlines()[1:] == ["b 1 2 2 2 2 2 ", "c 1 1 1 1 1 1 1 1 1 "]
    Path("lengths").write_text("a 1 7\n")
    capsys.readouterr()
    assert main(["prons-to-wordali", "ark:prons", "ark:lengths", "ark,t:none"]) == 1
    assert "a has other phones than those with lengths" in capsys.readouterr().err
    assert main(["phones-to-prons", "L.fst", "#1", "5", "ark:phones", "ark:words", "ark:none"]) == 1
    assert "<word-start> #1: expected the symbol's number" in capsys.readouterr().err


@given(value=st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), max_size=5), binary=st.booleans())
def test_lists_are_read_as_they_were_written(value: list[list[int]], binary: bool, tmp_path: Path) -> None:
    with open(tmp_path / "ark", "wb") as stream:
        for key in ("a", "b"):
            stream.write(f"{key} ".encode())
            write_prons(stream, value, binary)
    assert list(read_entries(tmp_path / "ark", read_prons)) == [("a", value), ("b", value)]
    content = (tmp_path / "ark").read_bytes()
    if binary:
        assert content[2:5] == b"\0B\4" and np.frombuffer(content[5:9], "<i4")[0] == len(value)
