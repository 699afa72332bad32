"""Experiments are listed, chosen and compared, by verbs whose JSON says what their tables say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.report.comparison import compare
from pykaldist.report.listing import Experiment, chosen, experiments
from pykaldist.report.text import as_json, markdown, without_empty_columns

WER = "%WER {wer:.2f} [ {errors} / 100, 0 ins, 0 del, {errors} sub ] exp/wer_9_0.0\n"


def write_scored(decode: Path, errors: list[int], words: int = 10) -> None:
    """A scored decode directory with so many errors in each utterance."""
    details = decode / "scoring_kaldi/wer_details"
    details.mkdir(parents=True)
    write_text(decode / "best_wer", WER.format(wer=100 * sum(errors) / (words * len(errors)), errors=sum(errors)))
    write_text(details / "per_utt", "".join(f"u{i} ref a\nu{i} hyp a\nu{i} #csid {words - e} {e} 0 0\n" for i, e in enumerate(errors)))


def write_training(folder: Path, ngpu: int, done: bool, **options: Any) -> None:
    """A training of two epochs."""
    folder.mkdir(parents=True)
    write_text(folder / "config.json", json.dumps({
        "format": 1, "options": options, "ngpu": ngpu, "inputs": {}, "device": "cpu", "versions": {}, "checkpoints": {}, "store": "store",
        "host": "here", "commit": None, "started": "2026-11-25T08:00:00+0000"}))
    line = {"updates": 9, "frames": 900, "learn_rate": 0.1, "train_loss": 1.0, "cv_loss": 1.0, "accepted": True, "cv_acc": 0.5,
            "seconds": {"total": 10.0}, "time": "measured", "disagreement": 0.0}
    write_text(folder / "history.jsonl", "".join(json.dumps({"epoch": epoch, **line}) + "\n" for epoch in (1, 2)))
    if done:
        (folder / "dbn.pt").touch()


@pytest.fixture
def exp(tmp_path: Path, golden: Path) -> Path:
    exp = tmp_path / "exp"
    for name in ("mono", "mono_ali"):
        (exp / name).mkdir(parents=True)
        shutil.copy(golden / "an4_kaldi/mono/final.mdl", exp / name)
    write_scored(exp / "mono/decode", [3, 2, 4, 1, 3, 2, 4, 1, 3, 2])
    write_training(exp / "rbms", 2, True, strategy="bmuf", rbm_lrate=0.4, hid_dim=100)
    write_training(exp / "net", 4, False, strategy="ma", objective="xent", learn_rate=0.02, decay_within=True, hid_dim=100)
    write_scored(exp / "net/decode", [1, 0, 2, 0, 1, 1, 2, 0, 1, 0])
    write_scored(exp / "net/decode_lm", [2, 0, 2, 0, 1, 1, 2, 0, 1, 0])
    return exp


def test_every_experiment_is_listed_once(exp: Path) -> None:
    mono, net, rbms = experiments([exp])
    assert (mono.name, mono.state, mono.wer, mono.decoded, mono.epochs) == ("mono", "done", 25.0, "decode", None)
    assert mono.model.startswith("GMM, ") and mono.model.endswith(" Gaussians")
    assert (net.name, net.state, net.model, net.workers, net.epochs) == ("net", "begun, 2 epochs", "", 4, 2)
    assert (net.wer, net.decoded, net.frame_accuracy, net.seconds) == (8.0, "decode", 50.0, 20.0)
    assert (rbms.name, rbms.state, rbms.model, rbms.objective) == ("rbms", "done", "RBMs", "RBM")


@pytest.mark.parametrize(("conditions", "names"), [
    (["wer<25"], ["net"]), (["wer<=25"], ["mono", "net"]), (["workers>=2", "workers!=4"], ["rbms"]), (["strategy=ma"], ["net"]),
    (["name~N"], ["mono", "net"]), (["learn-rate > 0.01"], ["net"]), (["decay_within=true"], ["net"]), (["wer>99"], []),
    ([], ["mono", "net", "rbms"]),
])
def test_conditions(exp: Path, conditions: list[str], names: list[str]) -> None:
    assert [one.name for one in chosen(experiments([exp]), conditions)] == names


def test_the_order(exp: Path) -> None:
    found = experiments([exp])
    assert [one.name for one in chosen(found, [], "wer")] == ["net", "mono", "rbms"]  # what has none stands last
    assert [one.name for one in chosen(found, [], "-wer")] == ["mono", "net", "rbms"]
    assert [one.name for one in chosen(found, [], "-workers")] == ["net", "rbms", "mono"]


@pytest.mark.parametrize(("condition", "said"), [
    ("wer", "expected a name, one of"), ("werr<1", "do you mean wer"), ("qqq=1", "the columns are name, state"),
    ("wer<low", "expected a number"),
])
def test_conditions_that_are_none_are_refused(exp: Path, condition: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        chosen(experiments([exp]), [condition])


def test_a_comparison_is_with_the_first(exp: Path) -> None:
    found = compare([exp / "net", exp / "mono", exp / "rbms"])
    assert [(one.name, one.against) for one in found.systems] == [("net/decode", None), ("net/decode_lm", "net/decode"),
                                                                  ("mono/decode", "net/decode")]
    worse = found.systems[2].test
    assert worse is not None and worse.difference == pytest.approx(17) and worse.p < 0.001
    options = dict(found.options)
    assert options["ngpu"] == [4, 2] and options["strategy"] == ["ma", "bmuf"] and "hid_dim" not in options
    assert options["learn_rate"] == [0.02, None] and "rbm_lrate" not in options  # one is no default, the other is
    with pytest.raises(UserError, match="holds no experiment"):
        compare([exp / "net", exp / "net/decode/scoring_kaldi"])


def test_the_verbs_print_tables_and_json(exp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(exp), "--where", "wer<25", "--sort", "wer"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert "WER %" in head and "| net " in row and "8.00" in row
    assert main(["ls", str(exp), "--where", "wer>99"]) == 0
    assert "No experiment meets" in capsys.readouterr().out
    assert main(["ls", str(exp), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == ["mono", "net", "rbms"] and listed[1]["options"]["learn_rate"] == 0.02
    assert main(["compare", str(exp / "mono"), str(exp / "net")]) == 0
    out = capsys.readouterr().out
    assert "-17.00" in out and "< 0.001" in out
    assert main(["compare", str(exp / "mono"), str(exp / "net"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["systems"][1]["test"]["difference"] == pytest.approx(-17)
    assert main(["compare", str(exp / "mono")]) == 1 and main(["ls", str(exp / "mono/decode/scoring_kaldi")]) == 1
    said = capsys.readouterr().err
    assert "name another one" in said and "no experiment below" in said


def test_tables_and_json_of_values() -> None:
    assert markdown([["a", "bb"], ["ccc", ""]]) == "| a   | bb |\n| --- | -- |\n| ccc |    |"
    assert without_empty_columns([["a", "b"], ["1", ""], ["2", ""]]) == [["a"], ["1"], ["2"]]
    one = Experiment("a", Path("exp/a"), "done", "GMM", "today", wer=float("nan"))
    assert json.loads(as_json([one, {1: (2.5, None)}]))[0]["wer"] is None and '"path": "exp/a"' in as_json(one)
