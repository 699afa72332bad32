"""Results are kept as they were, whatever their order; a damaged line is refused."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from study_claims import a_result

from pykaldist.errors import UserError
from pykaldist.study.results import TUNING_SEED, Results, Trial

SOME = [a_result(Trial("toy", "--x 2", 0), 1.25, (3, 0, 1)), a_result(Trial("toy", "--x 1", 1)), a_result(Trial("toy", "--x 1", 0)),
        a_result(Trial("other", "--x 1", TUNING_SEED)), a_result(Trial("toy", "--x 3", 0), math.inf)]


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    written = Results(tmp_path)
    for result in SOME:
        written.add(result)
    read = Results(tmp_path)
    assert len(read) == 5 and {one.trial: one for one in read} == {one.trial: one for one in SOME}
    assert read[SOME[0].trial].wer == 4.0 and read[SOME[3].trial].wer is None and read[SOME[4].trial].loss == math.inf
    assert Trial("toy", "--x 9", 0) not in read and read.get(Trial("toy", "--x 9", 0)) is None


def test_the_order_in_which_results_come_leaves_no_trace(tmp_path: Path) -> None:
    for folder, some in (("a", SOME), ("b", SOME[::-1])):
        results = Results(tmp_path / folder)
        for result in some:
            results.add(result)
    for name in ("toy.jsonl", "other.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_numbers_are_kept_with_six_digits(tmp_path: Path) -> None:
    Results(tmp_path).add(dataclasses.replace(SOME[0], cv_loss=1.23456789, history=[{"seconds": {"total": 12345678.9}, "epoch": 1234567}]))
    result = Results(tmp_path)[SOME[0].trial]
    assert result.cv_loss == 1.23457 and result.history == [{"seconds": {"total": 12345700.0}, "epoch": 1234567}]


def test_a_damaged_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy.jsonl").write_text('{"corpus": "toy"}\n')
    with pytest.raises(UserError, match=r"toy.jsonl, line 1.*options"):
        Results(tmp_path)
