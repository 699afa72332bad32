"""Numbers in arguments and tables of programs: what is none ends in one sentence that says what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.programs.number_lists import integers, real_numbers


def test_numbers_are_read() -> None:
    assert integers("dimensions", "13:14:15") == [13, 14, 15] and integers("dimensions", "") == []
    assert real_numbers("--weights", "0.7:0.3") == [0.7, 0.3]


@pytest.mark.parametrize("text", ["a", "1.5", "1,2"])
def test_an_argument_that_is_no_integer_is_named(text: str) -> None:
    with pytest.raises(UserError, match="dimensions: expected integers with colons between them, such as 13:14:15, found"):
        integers("dimensions", text)


@pytest.mark.parametrize(("words", "said"), [
    (["paste-post", "ark:lengths", "ark:post", "ark:post", "ark:out"], "dimensions: expected integers"),
    (["paste-post", "ark:post", "2", "ark:post", "ark:out"], "post is no readable archive: entry 1 (u)"),
    (["apply-cmvn", "--skip-dims=a", "ark:stats", "ark:feats", "ark:out"], "--skip-dims: expected integers"),
    (["modify-cmvn-stats", "a", "ark:stats", "ark:out"], "dimensions: expected integers"),
    (["lattice-combine", "--lat-weights=a", "ark:post", "ark:post", "ark:out"], "--lat-weights: expected numbers"),
    (["nnet3-average", "--weights=a", "one", "out"], "--weights: expected numbers"),
    (["analyze-counts", "--utt-weights=ark:post", "ark:ali", "out"], "post is no readable archive: entry 1 (u)"),
])
def test_programs_say_what_is_no_number(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {"lengths": "u 1\n", "post": "u [ 0 1 ] \n", "stats": "u  [\n 1 1\n 1 0 ]\n", "feats": "u  [\n 1 ]\n", "ali": "u 0\n"}
    for name, text in tables.items():
        (tmp_path / name).write_text(text)
    assert main(words) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("ERROR") == 1 and not (tmp_path / "out").exists()
