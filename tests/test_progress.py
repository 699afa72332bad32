"""Progress without a terminal: lines with rate and time left."""

from __future__ import annotations

import io
import sys

import pytest

from pykaldist import progress


def test_plain_lines_have_rate_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 4.0, 31.0, 32.0, 45.0])
    monkeypatch.delenv("PYKALDIST_PROGRESS_FD", raising=False)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Progress("decoding", 483, "utt") as bar:
        bar.update(20)
        bar.update(104)
        bar.update(1)
        bar.update(100, "loss 0.5")
    assert capsys.readouterr().err == ("decoding: 124/483 (26 %) utt, 31 s, 4.0 utt/s, 90 s left\n"
                                       "decoding: 225/483 (47 %) utt, 45 s, 5.0 utt/s, 52 s left loss 0.5\n")


def test_without_a_total_there_is_a_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 20.0])
    monkeypatch.delenv("PYKALDIST_PROGRESS_FD", raising=False)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Progress("growing the tree", None, "split") as bar:
        bar.update(5000)
    assert capsys.readouterr().err == "growing the tree: 5000 split, 20 s, 250 split/s\n"


def test_a_bar_that_is_left_closes_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be closed when sys.stderr is another one already, as is that of a reader which has found an error."""
    monkeypatch.delenv("PYKALDIST_PROGRESS_FD", raising=False)
    first = io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    bar = progress.Progress("reading")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar.close()
    assert not first.closed
