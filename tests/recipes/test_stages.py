"""What recipes call, with what: their stages' scripts write down their arguments in place of working."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykaldist.cli import train

EGS = Path(__file__).parents[2] / "egs"
RECIPES = ("yesno", "prompts", "an4", "speechocean762")
NETWORKS = [(recipe, network) for recipe in ("an4", "speechocean762") for network in ("cnn", "lstm", "blstm")]
STUB = """#!/usr/bin/env bash
{ printf '%s' "$0"; printf '\\t%s' "$@"; echo; } >> calls
"""


@dataclass
class Call:
    script: str
    options: dict[str, str]
    arguments: list[str]


Dry = Callable[..., list[Call]]


@pytest.fixture
def make_dry(make_recipe, root: Path) -> Callable[..., tuple[Path, Dry]]:
    """`make_dry("an4")`, or `make_dry("swbd", "s5c")`: the recipe's folder, and a function that runs a script of it and gives the calls."""

    def make(name: str, version: str = "s5") -> tuple[Path, Dry]:
        folder, _ = make_recipe(name, version)
        for part in ("steps", "utils"):
            (folder / part).unlink()
            for script in (root / part).rglob("*.sh"):
                if script.parent.name != "shared":  # which is sourced
                    path = folder / script.relative_to(root)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(STUB)
                    path.chmod(script.stat().st_mode)  # one that cannot be run here cannot be run there
        (folder / "utils" / "shared").symlink_to(root / "utils" / "shared")
        (folder / "local/prepare_data.sh").write_text(STUB)

        def dry(script: str, *arguments: str) -> list[Call]:
            (folder / "calls").write_text("")
            done = subprocess.run([folder / script, *arguments], cwd=folder.parent, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return [_call(line.split("\t")) for line in (folder / "calls").read_text().splitlines()]

        return folder, dry

    return make


def _call(words: list[str]) -> Call:
    """Every option of these scripts takes a value."""
    script, *rest = words
    options = {}
    while rest and rest[0].startswith("--"):
        options[rest[0]] = rest[1]
        rest = rest[2:]
    return Call(script, options, rest)


def parsed_training(call: Call) -> argparse.Namespace:
    """The options of a call of steps/nnet/train.sh, as `pykaldist train` takes them; an error where it does not."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    train.add_arguments(parser)
    words = [word for name, value in call.options.items() if name != "--cmd" for word in (name, value)]
    return parser.parse_args([*words, *call.arguments])


def write_manifest(store: Path, data: str, ali: str) -> None:
    """What local/run_*.sh read of the DNN's frame store, among what resembles it."""
    store.mkdir(parents=True, exist_ok=True)
    provenance = {"data": data, "ali": ali, "cmvn_opts": "", "alignment": {"data": "other", "ali": "other"}}
    (store / "manifest.json").write_text(json.dumps({"provenance": provenance}, indent=1) + "\n")


def test_kernels_are_compiled_at_the_priority_of_the_stages_that_wait_for_them(make_dry, tmp_path, monkeypatch):
    """At a lower one, on a machine that others keep busy, stages wait for minutes for what takes seconds."""
    folder, dry = make_dry("yesno")
    python, found = tmp_path / "python", tmp_path / "niceness"
    python.write_text(f"""#!/usr/bin/env bash
case "$*" in *" compile "*) nice > "{found}" ;; *) exec "{os.environ.get("PYKALDIST_PYTHON", sys.executable)}" "$@" ;; esac
""")
    python.chmod(0o755)
    (folder / "steps/make_mfcc.sh").write_text(f"""#!/usr/bin/env bash
for ((i = 0; i < 500; i++)); do [ -s "{found}" ] && break; sleep 0.02; done
""")
    monkeypatch.setenv("PYKALDIST_PYTHON", str(python))
    dry("run.sh", "--stage", "1", "--stop-stage", "1")
    assert int(found.read_text()) == os.nice(0)


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_stages_take_what_those_before_them_made(make_dry, recipe, imported):
    folder, dry = make_dry(recipe)
    calls = dry("run.sh", "--stop-stage", "7", *(("--ali-dir", "elsewhere") if imported else ()))
    text = (folder / "run.sh").read_text()
    assert all(f" {call.script} " in text for call in calls) and text.count("\n") <= 120  # commands for a user to read and to copy
    made = {"data/train", "data/train/text", "data/test", "data/local/dict", "data/local/dict/lexicon.txt"}  # by prepare_data.sh
    made |= {"data/local/lm.arpa"} if recipe in ("yesno", "an4") else {"data/dev"} if recipe == "prompts" else set()
    for call in calls:
        if call.script == "steps/nnet/make_fmllr_feats.sh":
            outputs, inputs = call.arguments[:1], call.arguments[1:3]
        elif call.script in ("steps/make_mfcc.sh", "steps/compute_cmvn_stats.sh", "utils/fix_data_dir.sh"):
            outputs, inputs = [], call.arguments[:1]
        elif call.script == "steps/score_kaldi.sh":
            outputs, inputs = [], call.arguments
            dev = call.arguments[-1].replace("decode", "decode_dev")  # scored before, where there is a development set
            assert call.options.get("--dev-dir") == (dev if recipe == "prompts" and call.arguments[0] == "data/test" else None)
        else:
            outputs, inputs = call.arguments[-1:], call.arguments[:-1]
            inputs = [name for name in inputs if name != "data/local/lang"]  # prepare_lang.sh's own
        inputs += [value for option, value in call.options.items() if option in ("--dbn", "--transform-dir")]
        for name in inputs:
            assert name in made or not name.startswith(("data", "exp")), (name, call)
        made.update(outputs)
        if call.script == "utils/prepare_lang.sh":
            made.add("data/lang/words.txt")
    scored = [call.arguments[-1] for call in calls if call.script == "steps/score_kaldi.sh"]
    decoded = [call.arguments[-1] for call in calls if call.script.startswith("steps/decode")]
    assert scored == decoded and scored[-1] == "exp/dnn/decode"
    assert ({name.split("/")[1] for name in scored} == {"dnn"}) == imported
    adapted = not imported and recipe in ("an4", "speechocean762")
    pack, = (call for call in calls if call.script == "steps/nnet/pack.sh")
    assert pack.arguments[0] == ("data-fmllr/train" if adapted else "data/train")
    assert pack.options.get("--cmvn-opts") == ("--norm-means=false" if adapted else None)
    assert pack.options.get("--delta-opts") == (None if adapted else "--delta-order=2")


@pytest.mark.parametrize("recipe", RECIPES)
def test_options_reach_pretraining_and_training(make_dry, recipe):
    _, dry = make_dry(recipe)
    options = ("--stage", "4", "--stop-stage", "5", "--ngpu", "32", "--rbm-ngpu", "2", "--strategy", "bmuf", "--device", "cpu",
               "--train-opts", "--num-epochs 3 --average-period 20", "--cmd", "queue.sh")
    rbm, dnn = dry("run.sh", *options)
    assert (rbm.options["--ngpu"], dnn.options["--ngpu"]) == ("2", "32")
    for call in (rbm, dnn):
        assert [call.options[name] for name in ("--strategy", "--device", "--cmd")] == ["bmuf", "cpu", "queue.sh"]
    assert {name: dnn.options[name] for name in rbm.options if name.startswith("--hid")} == \
        {name: value for name, value in rbm.options.items() if name.startswith("--hid")} != {}
    parsed = parsed_training(dnn)
    assert (parsed.num_epochs, parsed.average_period, parsed.serial_warmup, str(parsed.dbn)) == (3, 20, 1.0, "exp/dbn")
    plain, = dry("run.sh", "--stage", "4", "--stop-stage", "5", "--rbm", "false", "--ngpu", "1")
    assert plain.script == "steps/nnet/train.sh" and "--dbn" not in plain.options and "--serial-warmup" not in plain.options


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_seed_reaches_whatever_is_trained(make_dry, recipe):
    _, dry = make_dry(recipe)
    calls = dry("run.sh", "--stage", "2", "--stop-stage", "5", "--seed", "7")
    calls = [call for call in calls if "/train" in call.script or "dbn" in call.script]
    assert len(calls) >= 3 and all(call.options["--seed"] == "7" for call in calls)
    assert calls[-1].options["--randomizer-seed"] == "7"
    assert not any("--seed" in call.options for call in dry("run.sh", "--stage", "2", "--stop-stage", "5"))


@pytest.mark.parametrize(("ali", "data", "graph"), [("exp/tri3_ali", "data-fmllr", "exp/tri3/graph"), ("exp/ali", "data", "exp/ali/graph")])
@pytest.mark.parametrize(("recipe", "network"), NETWORKS)
def test_networks_take_what_the_dnn_has(make_dry, recipe, network, ali, data, graph):
    folder, dry = make_dry(recipe)
    write_manifest(folder / "exp/dnn/store/train", f"{data}/train", ali)
    (folder / graph).mkdir(parents=True)
    (folder / graph / "HCLG.fst").touch()
    calls = dry(f"local/run_{network}.sh", "--seed", "3", "--ngpu", "4", "--train-opts", "--num-epochs 2",
                "--forward-opts", "--forward whole")
    text = "".join((folder / name).read_text() for name in (f"local/run_{network}.sh", "utils/shared/network.sh"))
    assert all(f" {call.script} " in text for call in calls)
    trained, = (call for call in calls if call.script == "steps/nnet/train.sh")
    parsed = parsed_training(trained)
    assert (parsed.seed, parsed.randomizer_seed, parsed.ngpu, parsed.num_epochs) == (3, 3, 4, 2)
    packed = [call.arguments for call in calls if call.script == "steps/nnet/pack.sh"]
    if network == "cnn":
        data = "data-fbank"
        assert packed == [["data-fbank/train", ali, "exp/cnn/store"]]
        copied = [call.arguments for call in calls if call.script == "utils/copy_data_dir.sh"]
        assert copied == [["data/train", "data-fbank/train"], ["data/test", "data-fbank/test"]]
        assert (folder / "conf/fbank.conf").is_file()
    else:
        assert packed == []
    assert trained.arguments == ["exp/cnn/store" if network == "cnn" else "exp/dnn/store", f"exp/{network}"]
    decoded, scored = calls[-2:]
    assert (decoded.script, decoded.arguments) == ("steps/decode.sh", [graph, f"{data}/test", f"exp/{network}/decode"])
    assert decoded.options["--forward-opts"] == "--forward whole"
    assert (scored.script, scored.arguments) == ("steps/score_kaldi.sh", [f"{data}/test", graph, f"exp/{network}/decode"])


@pytest.mark.parametrize("network", ["cnn", "lstm", "blstm"])
def test_a_network_before_its_alignments_is_refused(make_recipe, network):
    folder, _ = make_recipe("an4")
    for missing in ("exp/dnn/store/train/manifest.json", "exp/tri3/graph/HCLG.fst"):
        done = subprocess.run([folder / "local" / f"run_{network}.sh"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and f"no file {missing}; make it first: ./run.sh --stop-stage " in done.stderr
        write_manifest(folder / "exp/dnn/store/train", "data-fmllr/train", "exp/tri3_ali")


@pytest.mark.parametrize("recipe", sorted(path.parent.relative_to(EGS).as_posix() for path in EGS.glob("*/*/run.sh")))
def test_what_a_recipe_has_of_its_own_is_short(recipe):
    """Scripts that prepare, score and make tables: under 100 lines; those that train a network beside the DNN (run_*.sh) 100 at most."""
    lines = {path: len(path.read_text().splitlines()) for path in (EGS / recipe / "local").rglob("*")
             if path.is_file() and (path.suffix == ".sh" or os.access(path, os.X_OK))}
    assert sum(count for path, count in lines.items() if not path.name.startswith("run_")) < 100
    assert max(lines.values()) <= 100


def test_seeds_are_run_once_each_and_summed_up(make_recipe):
    folder, _ = make_recipe("prompts")
    (folder / "run.sh").write_text("""#!/usr/bin/env bash
echo "$*" >> calls
[[ $* =~ --seed\\ ([0-9]+) ]]
for system in mono tri1 dnn; do
  for set in decode decode_dev; do
    details=exp/$system/$set/scoring_kaldi/wer_details
    mkdir -p $details
    echo "u #csid 8 ${BASH_REMATCH[1]} 0 0" > $details/per_utt
    line="%WER ${BASH_REMATCH[1]}0.00 [ 1 / 10, 0 ins, 0 del, 1 sub ] exp/wer_9_0.0"
    for file in wer_9_0.0 best_wer dev_chosen_wer; do echo "$line" > exp/$system/$set/$file; done
    touch exp/$system/$set/lat.1.gz
  done
done
echo '{"epoch": 1, "updates": 1, "frames": 1, "learn_rate": 1, "train_loss": 1, "cv_loss": 1, "accepted": true,' \
  '"seconds": {"total": 1.0}, "time": "measured", "disagreement": 0}' > exp/dnn/history.jsonl
""")
    command = [folder / "local/seeds.sh", "--seeds", "1 3", "--ngpus", "2 1", "--run-opts", "--nj 1", "seeds"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "| mono/decode | 20.00      | 14.14 | 10.00 to 30.00 | 2    | 10    |" in done.stdout.splitlines()
    options = "--stage {} --stop-stage 7 --seed {} --ngpu {} --train-opts {} --nj 1"
    several, alone = (2, 2, ""), (5, 1, "--num-epochs 3")  # as many epochs in all: several have a serial warm-up
    expected = [options.format(stage, seed, ngpu, train) for seed in (1, 3) for stage, ngpu, train in (several, alone)]
    assert (folder / "calls").read_text().splitlines() == expected  # the alignments of a seed are those of all its networks
    assert not list((folder / "seeds").rglob("lat.*")) and (folder / "seeds/ngpu1/3/dnn/decode/dev_chosen_wer").is_file()
