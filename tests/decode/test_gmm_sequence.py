"""Discriminative training of GMMs by the scripts, on Kaldi's speaker-adapted system and a few utterances of AN4."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pykaldist.hmm.gmm.model_files import read_model

from .conftest import make_recipe, run, succeed

DIRS = ("data/test", "data/lang", "exp/tri3_ali", "exp/tri3_denlats")


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three utterances each of two speakers, which are the training data here; their alignments and lattices."""
    files = ("final.mdl", "final.alimdl", "tree", "cmvn_opts", "splice_opts", "final.mat")
    folder = make_recipe(tmp_path_factory.mktemp("s5"), root, shared, shared / "golden/an4_kaldi/tri3_ali", "tri3", files, 3)
    succeed(folder, "steps/align_fmllr.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3", "exp/tri3_ali")
    refused = run(folder, "steps/make_denlats.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3", "exp/tri3_denlats")
    assert refused.returncode == 1 and "exp/tri3 is a speaker-adapted system; give --transform-dir" in refused.stderr
    (folder / "decode.config").write_text("beam=12.0\nfirst_beam=8.0\n")
    said = succeed(folder, "steps/make_denlats.sh", "--config", "decode.config", "--nj", "2", "--transform-dir", "exp/tri3_ali",
                   "data/test", "data/lang", "exp/tri3", "exp/tri3_denlats")
    assert said.splitlines()[-1] == "make_denlats.sh: lattices in exp/tri3_denlats"
    return folder


def of_log(recipe: Path, exp: str, what: str) -> list[float]:
    return [float(value) for value in re.findall(rf"iteration \d.*{what} ([-+0-9.]+)", (recipe / exp / "log/train.log").read_text())]


def test_mmi_and_what_decodes_with_it(recipe: Path) -> None:
    """A training that goes on at --stage 2 comes to the same model."""
    said = succeed(recipe, "steps/train_mmi.sh", "--boost", "0.1", "--num-iters", "3", *DIRS, "exp/tri3_mmi")
    assert re.search(r"train_mmi\.sh: 712 pdfs, .* last iteration: MMI objective .*; model in exp/tri3_mmi$", said.splitlines()[-1])
    values, gains = of_log(recipe, "exp/tri3_mmi", "objective"), of_log(recipe, "exp/tri3_mmi", "auxiliary function")
    assert values == sorted(values) and len(values) == 3 and all(gain > 0 for gain in gains)
    last = (recipe / "exp/tri3_mmi/final.mdl").read_bytes()
    assert last == (recipe / "exp/tri3_mmi/3.mdl").read_bytes() != (recipe / "exp/tri3_mmi/2.mdl").read_bytes()
    (recipe / "exp/tri3_mmi/3.mdl").unlink()
    succeed(recipe, "steps/train_mmi.sh", "--boost", "0.1", "--num-iters", "3", "--stage", "2", *DIRS, "exp/tri3_mmi")
    assert (recipe / "exp/tri3_mmi/final.mdl").read_bytes() == last
    gone = run(recipe, "steps/train_mmi.sh", "--stage", "7", *DIRS, "exp/tri3_mmi")
    assert gone.returncode == 1 and "--stage 7: exp/tri3_mmi/7.mdl does not exist" in gone.stderr
    succeed(recipe, "steps/train_mmi.sh", "--boost", "0.1", "--num-iters", "3", "--stage", "2", *DIRS, "exp/tri3_mmi")
    for folder, options in (("decode_it2", ["--iter", "2"]), ("decode", [])):
        succeed(recipe, "steps/decode.sh", "--nj", "2", *options, "--transform-dir", "exp/tri3_ali", "exp/tri3/graph", "data/test",
                f"exp/tri3_mmi/{folder}")
        assert float((recipe / f"exp/tri3_mmi/{folder}/best_wer").read_text().split()[1]) < 25
    succeed(recipe, "steps/decode_fmllr.sh", "--nj", "2", "--alignment-model", "exp/tri3/final.alimdl", "--adapt-model",
            "exp/tri3/final.mdl", "exp/tri3/graph", "data/test", "exp/tri3_mmi/decode_fmllr")


@pytest.mark.parametrize(("script", "options", "name"), [
    ("train_mpe.sh", [], "MPE"), ("train_smbr.sh", ["--one-silence-class", "true", "--smooth-to-model", "false"], "sMBR")])
def test_mpe_and_smbr(recipe: Path, script: str, options: list[str], name: str) -> None:
    said = succeed(recipe, f"steps/{script}", "--num-iters", "2", *options, *DIRS, "exp/tri3_accuracy")
    values, gains = (of_log(recipe, "exp/tri3_accuracy", what) for what in ("objective", "auxiliary function"))
    assert f"last iteration: {name} objective" in said and 0 < values[0] <= values[1] <= 1 and min(gains) > 0
    before, after = (read_model(recipe / f"exp/tri3_accuracy/{number}.mdl")[1] for number in (0, 2))
    assert np.abs(after.means_invvars - before.means_invvars).max() > 0


@pytest.fixture(scope="module")
def ubm(recipe: Path) -> Path:
    said = succeed(recipe, "steps/train_diag_ubm.sh", "--silence-weight", "0.5", "--nj", "2", "--intermediate", "800", "40", "data/test",
                   "data/lang", "exp/tri3_ali", "exp/dubm")
    assert said.splitlines()[-1].endswith(" Gaussians; UBM in exp/dubm/final.dubm")
    return recipe / "exp/dubm"


@pytest.mark.usefixtures("ubm")
@pytest.mark.parametrize("form", ["", "_indirect"])
def test_fmmi_and_what_decodes_with_it(recipe: Path, form: str) -> None:
    dirs = (*DIRS[:3], "exp/dubm", DIRS[3])
    exp = f"exp/tri3_fmmi{form}"
    options = ["--learning-rate", "0.005", "--boost", "0.1", "--schedule", "fmmi fmmi mmi"]
    succeed(recipe, f"steps/train_mmi_fmmi{form}.sh", *options, *dirs, exp)
    log = (recipe / exp / "log/train.log").read_text()
    assert log.count("(fmmi): MMI objective") == 2 and log.count("(mmi): MMI objective") == 1
    values = of_log(recipe, exp, "objective")
    assert values == sorted(values)
    assert ((recipe / exp / "0.mdl").read_bytes() == (recipe / exp / "2.mdl").read_bytes()) == (not form)
    last = (recipe / exp / "final.fmpe").read_bytes(), (recipe / exp / "final.mdl").read_bytes()
    if not form:
        succeed(recipe, "steps/train_mmi_fmmi.sh", *options, "--stage", "1", *dirs, exp)
        assert last == ((recipe / exp / "final.fmpe").read_bytes(), (recipe / exp / "final.mdl").read_bytes())
    said = succeed(recipe, "steps/decode_fmmi.sh", "--nj", "2", "--iter", "3", "--config", "decode.config", "--transform-dir",
                   "exp/tri3_ali", "exp/tri3/graph", "data/test", f"{exp}/decode_it3")
    assert "lattices of 6 utterances" in said
    assert float((recipe / exp / "decode_it3/best_wer").read_text().split()[1]) < 25
    missing = run(recipe, "steps/decode_fmmi.sh", "--iter", "9", "exp/tri3/graph", "data/test", f"{exp}/decode_it9")
    assert missing.returncode == 1 and f"{exp}/9.mdl does not exist" in missing.stderr


@pytest.mark.usefixtures("ubm")
@pytest.mark.parametrize(("script", "options"), [
    ("train_mmi.sh", ["--num-iters", "1"]),
    pytest.param("train_mpe.sh", ["--num-iters", "2", "--smooth-to-model", "false"], marks=pytest.mark.slow),
    pytest.param("train_mmi_fmmi_indirect.sh", ["--schedule", "fmmi mmi"], marks=pytest.mark.slow)])
def test_jobs_train_the_same_model(recipe: Path, script: str, options: list[str]) -> None:
    """An array of jobs, each a process, and one process on the same blocks: bit for bit."""
    dirs = (*DIRS[:3], "exp/dubm", DIRS[3]) if "fmmi" in script else DIRS
    threads, array = (recipe / f"exp/{script}/{jobs}" for jobs in ("threads", "array"))
    for exp in (threads, array):
        succeed(recipe, f"steps/{script}", "--nj", "2", "--jobs", exp.name, "--block-frames", "700", *options, *dirs, str(exp))
    for path in threads.glob("final.*"):
        assert path.read_bytes() == (array / path.name).read_bytes(), path.name
    assert list((array / "log").glob("statistics.*.2.log")) and not list((threads / "log").glob("statistics.*"))
    assert not (array / "jobs").exists()


def test_what_does_not_fit_is_refused(recipe: Path) -> None:
    for options, said in ((["--boost", "-1"], "--boost -1 is negative"), (["--acwt", "0"], "expected a number from 1, and a scale above 0"),
                          (["--tau", "-3"], "--tau must not be negative")):
        refused = run(recipe, "steps/train_mmi.sh", *options, *DIRS, "exp/none")
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
    missing = run(recipe, "steps/train_mmi.sh", *DIRS[:3], "exp/nowhere", "exp/none")
    assert missing.returncode == 1 and "exp/nowhere/lat.1.gz does not exist" in missing.stderr
