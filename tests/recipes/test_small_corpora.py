"""The recipes of TIMIT, TED-LIUM and Common Voice, every stage, on stand-ins in their corpora's layouts; what these and Fisher's call."""

from __future__ import annotations

import re

import pytest
from layouts import commonvoice, tedlium, timit
from layouts.speech import lines
from test_stages import STUB, make_dry

__all__ = ["make_dry"]  # a fixture

TINY = ["--config", "conf/stand_in.conf", "--ngpu", "1", "--device", "cpu", "--rbm", "false", "--train-opts", "--num-threads 1"]


SMALL = {"train": (6, 6), "dev": (2, 3), "test": (2, 3)}  # speakers, utterances of each
HOUR = {"train": (90, 13), "dev": (4, 13), "test": (4, 13)}
SIZES = {"timit": "leaves=400 gauss=2500", "commonvoice": "leaves=300 gauss=2000",
         "tedlium": "leaves=(200 300 400) gauss=(1000 1500 2000)"}  # for an hour


def rates(output: str) -> dict[str, float]:
    """System/decoding -> error rate, of the report."""
    return {row[0]: float(row[1]) for row in re.findall(r"\| (\w+/decode\w*) +\| +([\d.]+) +\|", output)}


def tiny(speech):
    return speech.name == "tones"


def sized(folder, speech):
    """Set the recipe's sizes for a stand-in, those of its conf/stand_in.conf for a minute, others for an hour; returns options."""
    if not tiny(speech):
        with open(folder / "conf/stand_in.conf", "a", encoding="utf-8") as stream:
            stream.write(f"mono_opts='' totgauss=400 gmm_opts='' hid_dim=256 {SIZES[folder.parent.name]}\n")
    return [*TINY, "--nj", "1" if tiny(speech) else "2"]  # each job of so little speech takes its start and no more


def test_timit_from_the_corpus_to_a_phone_error_rate(make_recipe, speech, tmp_path):
    timit.lay_out(speech, tmp_path / "LDC93S1/timit", *((6, 6) if tiny(speech) else (92, 13)))
    folder, run = make_recipe("timit")
    done = run("--corpus", tmp_path, *sized(folder, speech))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    assert found.keys() == {f"{system}/decode" for system in ("mono", "tri1", "tri2", "tri3", "dnn")}  # dev chose weight and penalty
    assert max(found.values()) < 50, found
    scored = (folder / "exp/dnn/decode/scoring_kaldi/test_filt.txt").read_text().split()
    assert "sil" in scored and not {"h#", "q", "cl", "vcl", "ao", "ax"} & set(scored)


@pytest.mark.slow  # TIMIT goes through most of its stages, and it through its dry run
def test_tedlium_from_the_corpus_to_word_error_rates(make_recipe, speech, tmp_path):
    tedlium.lay_out(speech, tmp_path / "corpus", tmp_path / "corpus/lm", SMALL if tiny(speech) else HOUR, 3)
    folder, run = make_recipe("tedlium", "s5_r3")
    done = run("--corpus", tmp_path / "corpus", *sized(folder, speech))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    assert found.keys() == {f"{system}/decode{lm}" for system in ("tri3", "dnn") for lm in ("", "_rescore")}
    assert max(found.values()) < 50, found


@pytest.mark.slow  # likewise
def test_common_voice_from_a_release_to_a_word_error_rate(make_recipe, speech, tmp_path):
    commonvoice.lay_out(speech, tmp_path / "cv-corpus-1", SMALL if tiny(speech) else HOUR)
    folder, run = make_recipe("commonvoice")
    done = run("--corpus", tmp_path / "cv-corpus-1", "--language", "en", *sized(folder, speech))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = rates(done.stdout)
    assert found.keys() == {"tri3/decode", "dnn/decode"}
    assert max(found.values()) < (10 if tiny(speech) else 60), found  # in tones, one word in 24 is 4 %
    sizes = (folder / "data/local/sizes").read_text().split()
    assert ("hid_dim=256" if tiny(speech) else "hid_dim=384") in sizes  # those for so much speech; the option's are smaller


PREPARED = {"timit": {"data/train", "data/dev", "data/test"},
            "tedlium": {"data/train", "data/dev", "data/test", "data/local/lm_small.arpa.gz", "data/local/lm_big.arpa.gz"},
            "commonvoice": {"data/train", "data/dev", "data/test"},
            "fisher_swbd": {"data/train_swbd", "data/train_fisher", "data/eval2000", "data/rt03", "data/local/lm_text",
                            "data/local/lm_heldout"}}
SCORED = ("steps/score_kaldi.sh", "local/score.sh")
IN_PLACE = ("steps/make_mfcc.sh", "steps/make_plp_pitch.sh", "steps/compute_cmvn_stats.sh", "utils/fix_data_dir.sh")


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(("recipe", "version", "options"), [
    ("timit", "s5", ()), ("tedlium", "s5_r3", ()), ("commonvoice", "s5", ("--language", "tr")), ("fisher_swbd", "s5", ())])
def test_stages_take_what_those_before_them_made(make_dry, recipe, version, options, imported):
    folder, dry = make_dry(recipe, version)
    (folder / "local/score.sh").unlink(missing_ok=True)
    (folder / "local/score.sh").write_text(STUB)
    (folder / "local/score.sh").chmod(0o755)
    lines(folder / "data/train/text", ["utt word"])  # of combine_data.sh, which is a stub
    lines(folder / "data/local/sizes", ["totgauss=9", "leaves=9", "gauss=9", "hid_layers=1", "hid_dim=9", "num_epochs=1"])
    calls = dry("run.sh", "--corpus", "elsewhere", "--stop-stage", "7", *options, *(("--ali-dir", "elsewhere") if imported else ()))
    made = PREPARED[recipe] | {"data/local/dict", "data/local/dict/lexicon.txt", "data/local/lang", "data/local/lang_nosp"}
    for call in calls[1:]:
        sources = [value for option, value in call.options.items() if option.startswith("--s") and value.startswith("data")]
        arguments = [*sources, *call.arguments]  # --shortest, --speakers and --spk-list of subset_data_dir.sh
        if call.script in IN_PLACE or call.script in SCORED:
            inputs, outputs = arguments[: 3 if call.script in SCORED else 1], []
        elif call.script == "utils/combine_data.sh":
            inputs, outputs = arguments[1:], arguments[:1]
        elif call.script == "steps/nnet/make_fmllr_feats.sh":
            inputs, outputs = arguments[1:3], arguments[:1]
        else:
            inputs, outputs = arguments[:-1], arguments[-1:]
        inputs += [value for option, value in call.options.items() if option in ("--dbn", "--transform-dir", "--heldout-text", "--dev-dir")]
        for name in inputs:
            known = name in made or any(name == f"{one}/{part}" for one in made for part in ("text", "words.txt", "spk2utt"))
            assert known or not name.startswith(("data", "exp")) or "pron_counts" in name or "sil_counts" in name or "bigram" in name, call
        made.update(outputs)
    trained, = (call for call in calls if call.script == "steps/nnet/train.sh")
    assert trained.arguments[1] == "exp/dnn" and ("--dbn" in trained.options) == (recipe != "fisher_swbd")
    assert ("steps/train_sat.sh" in {call.script for call in calls}) != imported
    assert any(call.script in SCORED and call.arguments[-1].startswith("exp/dnn/decode") for call in calls)
