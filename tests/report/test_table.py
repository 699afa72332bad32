"""The report finds every scored system and says when there is none."""

from __future__ import annotations

import json

import pytest

from pykaldist.errors import UserError
from pykaldist.report.table import render, render_spread, systems


def test_table_of_systems(tmp_path):
    for name, line in (("mono/decode", "%WER 12.94 [ 100 / 773, 5 ins, 10 del, 85 sub ] exp/mono/decode/wer_10_0.5"),
                       ("dnn/decode_test", "%WER 6.08 [ 47 / 773, 5 ins, 2 del, 40 sub ] exp/dnn/decode_test/wer_7_1.0")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "best_wer").write_text(line + "\n")
    same = {"updates": 9, "frames": 900, "learn_rate": 0.1, "train_loss": 1.0, "cv_loss": 1.0, "time": "measured", "disagreement": 0.0}
    epochs = [{"epoch": 1, "accepted": True, "cv_acc": 0.6, "seconds": {"total": 10.0}, **same},
              {"epoch": 2, "accepted": False, "cv_acc": 0.5, "seconds": {"total": 12.4}, **same}]
    (tmp_path / "dnn" / "history.jsonl").write_text("".join(json.dumps(e) + "\n" for e in epochs))
    mono, dnn = systems(tmp_path)  # networks stand last
    assert (dnn.name, dnn.wer, dnn.lmwt, dnn.wip) == ("dnn/decode_test", 6.08, 7, 1.0)
    assert (dnn.epochs, dnn.cv_acc, dnn.train_seconds) == (2, 0.6, 22.4)
    assert (mono.errors, mono.words, mono.epochs) == (100, 773, None)
    lines = render([mono, dnn]).splitlines()
    assert len({len(line) for line in lines[:4]}) == 1 and "| 60.00 " in lines[3] and "interval" not in lines[0]
    assert lines[4:] == ["", "Without a development set's WER, LMWT and WIP (insertion penalty) are those that were best on the test set "
                         "itself."]
    dnn.time = "simulated"
    assert "| 22 simulated |" in render([mono, dnn]) and "simulated" not in lines[3]


def write_decode(folder, wer, counts, chosen=None):
    """A decode directory: `counts` of each utterance's correct, substituted, inserted and deleted words."""
    details = folder / "scoring_kaldi/wer_details"
    details.mkdir(parents=True)
    line = "%WER {:.2f} [ {} / {}, 0 ins, 0 del, 0 sub ] exp/wer_9_0.0\n"
    (folder / "best_wer").write_text(line.format(wer - 1, 1, 500))
    if chosen:
        (folder / "dev_chosen_wer").write_text(line.format(wer, sum(sum(c[1:]) for c in counts), 500))
    (details / "per_utt").write_text("".join(f"u{i} ref a\nu{i} #csid {c} {s} {i_} {d}\n" for i, (c, s, i_, d) in enumerate(counts)))


def test_intervals_and_points_chosen_on_a_development_set(tmp_path):
    good, bad = [(4, 1, 0, 0), (5, 0, 0, 0)] * 50, [(3, 1, 0, 1)] * 100
    write_decode(tmp_path / "mono/decode", 40.0, bad, chosen=True)
    write_decode(tmp_path / "mono/decode_dev", 41.0, bad)
    write_decode(tmp_path / "tri1/decode", 10.0, good, chosen=True)
    write_decode(tmp_path / "tri1/decode_dev", 12.0, good)
    found = systems(tmp_path)
    assert [(s.name, s.wer, s.dev_wer) for s in found] == [("mono/decode", 40.0, 40.0), ("tri1/decode", 10.0, 11.0)]
    head, _, mono, tri1, _, *notes = render(found).splitlines()
    assert "40.00 to 40.00" in mono and "| 100.0 % |" in tri1 and "| 100.0 %" not in mono and "dev WER %" in head
    lower, upper = map(float, tri1.split("|")[3].split(" to "))
    assert 7.5 < lower < 9 and 11 < upper < 12.5  # 10 % of 500 words, a coin for each of 100 utterances: 10 -+ 1.96 x 1
    assert len(notes) == 2 and notes[0].startswith("LMWT and WIP (insertion penalty) are those that were best on the development set")
    assert render(found) == render(systems(tmp_path))


def test_the_spread_of_runs(tmp_path):
    for seed, wer in enumerate((10.0, 11.0, 13.0)):
        write_decode(tmp_path / f"{seed}/mono/decode", wer, [(4, 1, 0, 0)], chosen=True)
    table = render_spread([systems(tmp_path / str(seed)) for seed in range(3)])
    assert "| mono/decode | 11.33      | 1.53 | 10.00 to 13.00 | 3    | 500   |" in table.splitlines()


def test_nothing_scored_or_unreadable_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no scored system"):
        systems(tmp_path)
    (tmp_path / "decode").mkdir()
    (tmp_path / "decode" / "best_wer").write_text("")
    with pytest.raises(UserError, match="no %WER line"):
        systems(tmp_path)
