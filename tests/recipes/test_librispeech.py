"""The recipes of LibriSpeech and Mini LibriSpeech, every stage, on stand-ins in their corpora's layouts."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from layouts import librispeech
from test_stages import make_dry, parsed_training, write_manifest

__all__ = ["make_dry"]  # a fixture
PARTS = {  # of a minute, of an hour: speakers, utterances of each
    "mini_librispeech": ({"train-clean-5": (8, 6), "dev-clean-2": (2, 6)}, {"train-clean-5": (92, 13), "dev-clean-2": (6, 13)}),
    "librispeech": ({"train-clean-100": (6, 6), "train-clean-360": (2, 6), "dev-clean": (2, 3), "test-other": (2, 3)},
                    {"train-clean-100": (60, 13), "train-clean-360": (30, 13), "dev-clean": (4, 13), "test-other": (4, 13)})}
SMALL = ["--nj", "1", "--rbm", "false", "--ngpu", "1", "--device", "cpu", "--train-opts",
         "--hid-layers 2 --hid-dim 128 --minibatch-size 256 --schedule exponential --final-learn-rate 0.0008 --num-epochs 6 "
         "--num-threads 1"]


@pytest.mark.slow  # TIMIT goes through the same stages of training, and dry runs through the others
@pytest.mark.parametrize(("name", "options", "decoded"), [
    ("mini_librispeech", ["--speed-perturb", "false", "--lms", "tgmed tglarge"], {"tri3b", "dnn"}),
    ("librispeech", ["--hours", "460", "--tests", "dev_clean test_other", "--lms", "fglarge"], {"tri5b", "dnn"})])
def test_every_stage(make_recipe, speech, tmp_path, name, options, decoded):
    said = librispeech.lay_out(speech, tmp_path / "corpus", PARTS[name][speech.name != "tones"])
    librispeech.lay_out_models(speech, tmp_path / "corpus/lm", said, large=True)
    folder, run = make_recipe(name)
    done = run("--corpus", tmp_path / "corpus", *SMALL, *options)
    assert done.returncode == 0, done.stderr
    for stage in range(9):
        assert f"== stage {stage}: " in done.stdout
    rates = {row[0]: float(row[1]) for row in re.findall(r"\| (\w+/decode_\w+) +\| +([\d.]+) +\|", done.stdout)}
    assert {row.split("/")[0] for row in rates} == decoded and max(rates.values()) < 50, rates
    for lm in options[-1].split():
        assert sum(f"_{lm}_" in row for row in rates) == sum("_tgsmall_" in row for row in rates) > 0
    if name == "librispeech" and speech.name == "tones":
        return
    small = {"lstm": "--nnet lstm --hid-layers 1 --hid-dim 32", "blstm": "--nnet blstm --hid-layers 1 --hid-dim 32 --dropout 0"}
    if speech.name == "tones":
        del small["blstm"]  # of the same stages, as test_networks_take_what_the_dnn_has says
    for network, shape in small.items():
        done = subprocess.run([folder / f"local/run_{network}.sh", "--nj", "1", "--train-opts", f"{shape} --num-epochs 1 --num-threads 1"],
                              cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for row in rates:
            assert (folder / "exp" / row.replace("dnn/", f"{network}/") / "best_wer").is_file() or not row.startswith("dnn/")
    shutil.rmtree(folder / "exp")  # tens of megabytes


@pytest.mark.parametrize(("ali", "data"), [("exp/tri3b_ali", "data-fmllr"), ("exp/ali", "data")])
@pytest.mark.parametrize("network", ["lstm", "blstm"])
@pytest.mark.parametrize("recipe", ["mini_librispeech", "librispeech"])
def test_networks_take_what_the_dnn_has(make_dry, recipe, network, ali, data):
    folder, dry = make_dry(recipe)
    imported, graph = ali == "exp/ali", f"{ali.removesuffix('_ali')}/graph_tgsmall"
    write_manifest(folder / "exp/dnn/store/train", f"{data}/train", ali)
    langs = [f"data/{'lang_nosp' if imported else 'lang'}_{lm}" for lm in ("tgsmall", "tgmed", "tglarge")]
    for name in (graph, f"{data}/train", f"{data}/dev_clean", f"{data}/test_other", *langs):
        (folder / name).mkdir(parents=True)
    (folder / graph / "HCLG.fst").touch()
    trained, *calls = dry(f"local/run_{network}.sh", "--seed", "3", "--strategy", "bmuf", "--ngpu", "4")
    parsed = parsed_training(trained)
    assert (parsed.seed, parsed.ngpu, parsed.strategy, trained.arguments) == (3, 4, "bmuf", ["exp/dnn/store", f"exp/{network}"])
    assert parsed.nnet.startswith("chan2015-rnn" if network == "lstm" else "chen2016-dblstm")
    assert parsed.nnet.endswith("-small") == (recipe == "mini_librispeech")
    expected = []
    for test in ("dev_clean", "test_other"):
        lattices = {lm: f"exp/{network}/decode_{lm}_{test}" for lm in ("tgsmall", "tgmed", "tglarge")}
        expected.append(("steps/decode.sh", [graph, f"{data}/{test}", lattices["tgsmall"]]))
        for lm, how in (("tgmed", "lmrescore"), ("tglarge", "lmrescore_const_arpa")):
            large = langs[0].replace("tgsmall", lm)
            expected.append((f"steps/{how}.sh", [langs[0], large, f"data/{test}", lattices["tgsmall"], lattices[lm]]))
        expected += [("steps/score_kaldi.sh", [f"data/{test}", graph, lattices[lm]]) for lm in lattices]
    assert [(call.script, call.arguments) for call in calls] == expected


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
