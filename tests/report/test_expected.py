"""What a dry run says that commands take: by the logs of stages that have run, and by the planner for the training of a network."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pykaldist.report import expected
from pykaldist.report.expected import BETWEEN, annotated, options_of
from pykaldist.usage import MARK


def line(command: str) -> str:
    return "".join(word + BETWEEN for word in command.split()) + "\n"


def log(path: str, *took: tuple[str, float]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(f"{MARK}{verb}: 0.1 h of speech in {seconds} s, 1.0 s of CPU, 9 MB of memory, 1 MB read, 1 MB written\n"
                                  for verb, seconds in took))


def test_stages_that_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest of a stage's jobs; stages of other scripts in the same folder, and of folders in it, are none of its own."""
    monkeypatch.chdir(tmp_path)
    log("exp/tri1/log/train.log", ("train-deltas", 61.0))
    log("exp/tri1/decode/log/decode.1.log", ("decode", 25.0))
    log("exp/tri1/decode/log/decode.2.log", ("decode", 31.0))
    log("exp/make_mfcc/train/make_mfcc.1.log", ("make-feats", 3.7))
    log("exp/tri3/decode/log/decode.1.log", ("est-fmllr", 10.0), ("rescore-lattices", 5.0))
    log("exp/tri3/decode.si/log/decode.1.log", ("decode", 150.0))
    commands = ["steps/train_deltas.sh 1800 9000 data/train data/lang exp/mono_ali exp/tri1",
                "steps/decode.sh exp/tri1/graph data/test exp/tri1/decode", "steps/make_mfcc.sh data/train exp/make_mfcc/train mfcc",
                "steps/decode_fmllr.sh exp/tri3/graph data/test exp/tri3/decode", "steps/align_si.sh data/train data/lang exp/tri1 exp/x"]
    said = list(annotated(["== stage 2: GMMs\n", *map(line, commands)]))
    assert said == ["== stage 2: GMMs", f"  {commands[0]}   # exp/tri1 is there, took 61 s",
                    f"  {commands[1]}   # exp/tri1/decode is there, took 31 s",
                    f"  {commands[2]}   # took 3.7 s", f"  {commands[3]}   # exp/tri3/decode is there, took 2 min 45 s", f"  {commands[4]}",
                    "About 4 min 21 s in all, and what 1 commands take that have not run here."]


def test_a_training_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its store is there: epochs of one worker first, then those of all, with the options that it is given."""
    monkeypatch.chdir(tmp_path)
    train = ("steps/nnet/train.sh --ngpu 4 --strategy bmuf --hid-layers 2 --serial-warmup 1 --num-epochs 8 --hid-layers 3 exp/dnn/store "
             "exp/dnn")
    assert list(annotated([line(train)])) == [f"  {train}   # predicted when exp/dnn/store is there"]
    Path("exp/dnn/store").mkdir(parents=True)
    asked = []

    def make_plan(options: object) -> object:
        asked.append(vars(options))
        return SimpleNamespace(predictions=[SimpleNamespace(ngpu=1, total=40.0), SimpleNamespace(ngpu=4, total=12.0)])

    monkeypatch.setattr("pykaldist.train.plan.make_plan", make_plan)
    (said, whole) = annotated([line(train)])
    assert said.endswith("exp/dnn is there, 2 min 4 s predicted for 8 epochs, 12 s each") and whole == "About 2 min 4 s in all."
    assert [asked[0][name] for name in ("ngpu", "strategy", "hid_layers", "store")] == ["1,4", "bmuf", 3, "exp/dnn/store"]
    assert "predict says" in next(iter(annotated([line("steps/nnet/train.sh --nnet blstm exp/dnn/store exp/dnn")])))
    assert len(asked) == 1


def test_what_words_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they can be pasted."""
    monkeypatch.chdir(tmp_path)
    words = ["utils/prepare_lang.sh", "my dict", "<UNK>", "data/lang"]
    assert list(annotated(["".join(word + BETWEEN for word in words) + "\n"])) == ["  utils/prepare_lang.sh 'my dict' '<UNK>' data/lang"]
    assert options_of(["x", "--a-b", "1", "--c=2", "--a-b", "3", "y"]) == {"a_b": "3", "c": "2"}
    assert expected.took_before(["steps/decode.sh", "nothing/there"]) is None
