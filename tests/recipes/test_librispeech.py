"""The recipes of LibriSpeech and Mini LibriSpeech, every stage, on AN4 in their corpora's layouts."""

from __future__ import annotations

import re
import shutil

import pytest
from layouts import librispeech
from test_stages import make_dry

__all__ = ["make_dry"]  # a fixture
FULL = {"train-clean-100": (30, 12), "train-clean-360": (20, 12), "dev-clean": (2, 3), "test-other": (2, 3)}
SMALL = ["--nj", "2", "--rbm", "false", "--ngpu", "1", "--train-opts",
         "--hid-layers 2 --hid-dim 128 --minibatch-size 256 --schedule exponential --final-learn-rate 0.0008 --num-epochs 6"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parts", "options", "decoded"), [
    ("mini_librispeech", librispeech.MINI, ["--lms", "tgmed tglarge"], {"tri3b", "dnn"}),
    ("librispeech", FULL, ["--hours", "460", "--tests", "dev_clean test_other", "--lms", "fglarge"], {"tri5b", "dnn"})])
def test_every_stage(make_recipe, shared, tmp_path, name, parts, options, decoded):
    said = librispeech.lay_out(shared, tmp_path / "corpus", parts)
    librispeech.lay_out_models(shared, tmp_path / "corpus/lm", said, large=True)
    folder, run = make_recipe(name)
    done = run("--corpus", tmp_path / "corpus", *SMALL, *options)
    assert done.returncode == 0, done.stderr
    for stage in range(9):
        assert f"== stage {stage}: " in done.stdout
    rates = {row[0]: float(row[1]) for row in re.findall(r"\| (\w+/decode_\w+) +\| +([\d.]+) +\|", done.stdout)}
    assert {row.split("/")[0] for row in rates} == decoded and max(rates.values()) < 50, rates
    for lm in options[-1].split():
        assert sum(f"_{lm}_" in row for row in rates) == sum("_tgsmall_" in row for row in rates) > 0
    shutil.rmtree(folder / "exp")  # tens of megabytes


def test_hours_that_there_are(make_recipe):
    _, run = make_recipe("librispeech")
    done = run("--hours", "500")
    assert done.returncode == 1 and "run.sh: ERROR: --hours is 100, 460 or 960, found 500." in done.stderr


@pytest.mark.parametrize(("recipe", "train"), [("mini_librispeech", "train_clean_5"), ("librispeech", "train_960")])
def test_the_network_learns_from_what_augmentation_makes(make_dry, recipe, train):
    _, dry = make_dry(recipe)
    calls = dry("run.sh", "--stage", "2", "--stop-stage", "3", "--speed-perturb", "true", "--volume-perturb", "true", "--rirs", "/rooms")
    called = [(call.script.removeprefix("utils/").removeprefix("steps/"), call.arguments) for call in calls]
    begin = called.index(("data/perturb_data_dir_speed_3way.sh", [f"data/{train}", f"data/{train}_sp"]))
    assert called[begin + 1] == ("data/augment_data_dir.sh", [f"data/{train}", f"data/{train}_aug", "augmented"])
    assert calls[begin + 1].options["--rirs"] == "/rooms" and calls[begin + 1].options["--noises"] == ""
    perturbed = [arguments[0] for script, arguments in called if script == "data/perturb_data_dir_volume.sh"]
    features = [arguments[0] for script, arguments in called[begin:] if script == "make_mfcc.sh"]
    assert perturbed == features == [f"data/{train}_sp", f"data/{train}_aug"]
    assert ("combine_data.sh", [f"data/{train}_sp_all", f"data/{train}_sp", f"data/{train}_aug"]) in called
    aligned = [arguments[0] for script, arguments in called if script == "align_fmllr.sh"]
    assert aligned[-1] == f"data/{train}_sp_all"
    plain = dry("run.sh", "--stage", "2", "--stop-stage", "3", "--speed-perturb", "false")
    assert [call.arguments[0] for call in plain if call.script == "steps/align_fmllr.sh"][-1] == f"data/{train}"
    assert not any("perturb" in call.script or "augment" in call.script for call in plain)
