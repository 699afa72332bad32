"""The report finds every scored system and says when there is none."""

from __future__ import annotations

import json

import pytest

from pykaldist.errors import UserError
from pykaldist.report.table import render, systems


def test_table_of_systems(tmp_path):
    for name, line in (("mono/decode", "%WER 12.94 [ 100 / 773, 5 ins, 10 del, 85 sub ] exp/mono/decode/wer_10_0.5"),
                       ("dnn/decode_test", "%WER 6.08 [ 47 / 773, 5 ins, 2 del, 40 sub ] exp/dnn/decode_test/wer_7_1.0")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "best_wer").write_text(line + "\n")
    epochs = [{"accepted": True, "cv_acc": 0.6, "seconds": {"total": 10.0}, "time": "measured"},
              {"accepted": False, "cv_acc": 0.5, "seconds": {"total": 12.4}, "time": "measured"}]
    (tmp_path / "dnn" / "history.jsonl").write_text("".join(json.dumps(e) + "\n" for e in epochs))
    dnn, mono = systems(tmp_path)
    assert (dnn.name, dnn.wer, dnn.lmwt, dnn.wip) == ("dnn/decode_test", 6.08, 7, 1.0)
    assert (dnn.epochs, dnn.cv_acc, dnn.train_seconds) == (2, 0.6, 22.4)
    assert (mono.errors, mono.words, mono.epochs) == (100, 773, None)
    lines = render([dnn, mono]).splitlines()
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1 and "| 60.00 " in lines[2]
    dnn.time = "simulated"
    assert "| 22 simulated |" in render([dnn, mono]) and "simulated" not in lines[2]


def test_nothing_scored_or_unreadable_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no scored system"):
        systems(tmp_path)
    (tmp_path / "decode").mkdir()
    (tmp_path / "decode" / "best_wer").write_text("")
    with pytest.raises(UserError, match="no %WER line"):
        systems(tmp_path)
