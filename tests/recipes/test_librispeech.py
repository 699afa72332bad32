"""The recipes of LibriSpeech and Mini LibriSpeech, every stage, on AN4 in their corpora's layouts."""

from __future__ import annotations

import re
import shutil

import pytest
from layouts import librispeech

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
