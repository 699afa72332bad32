"""Kaldi's option files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.io.conf import format_conf, parse_conf, read_conf


@dataclass
class Example:
    use_energy: bool = True
    num_ceps: int = 13
    low_freq: float = 20.0
    window_type: str = "povey"


def test_comments_and_several_on_a_line(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("# a comment\n--use-energy=false  # only non-default option.\n\n--num-ceps=20 --low-freq=64\n")
    assert read_conf(Example, tmp_path / "x.conf") == Example(False, 20, 64.0)


def test_what_is_written_comes_back() -> None:
    options = Example(use_energy=False, window_type="hamming")
    assert format_conf(options) == "--use-energy=false --window-type=hamming"
    assert parse_conf(Example, format_conf(options)) == options
    assert format_conf(Example()) == ""


@pytest.mark.parametrize(("text", "message"), [
    ("--num-cep=3", "x: there is no option --num-cep; known are --use-energy, --num-ceps"),
    ("num-ceps=3", "there is no option num-ceps"),
    ("--num-ceps=many", "--num-ceps needs a value of type int, found 'many'"),
    ("--use-energy=yes", "--use-energy needs a value of type bool, found 'yes'"),
])
def test_errors(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_conf(Example, text, "x")


def test_missing_file() -> None:
    with pytest.raises(UserError, match=r"conf/none\.conf does not exist"):
        read_conf(Example, "conf/none.conf")
