"""The command line of Kaldi's steps/nnet3/chain/train.py: its options in our words, what is refused, all calls in Kaldi's recipes."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.train.chain_forms import FLAT_START, TRAIN, read_chain_form
from pykaldist.train.nnet3_forms import CHUNKS, FRAMES, read_frame_form

FOLDERS = ["--feat-dir", "data/train", "--tree-dir", "exp/tree", "--lat-dir", "exp/lats", "--dir", "exp/tdnn"]
AN4 = """--cmd run.pl --feat.online-ivector-dir exp/ivectors --feat.cmvn-opts "--norm-means=false --norm-vars=false"
  --chain.xent-regularize 0.1 --chain.leaky-hmm-coefficient 0.1 --chain.l2-regularize 0.0005 --chain.apply-deriv-weights false
  --chain.lm-opts="--num-extra-lm-states=2000" --egs.dir "" --egs.stage -10 --egs.opts "--frames-overlap-per-eg 0 --constrained false"
  --egs.chunk-width 140,100,160 --trainer.num-chunk-per-minibatch 128,64 --trainer.frames-per-iter 1500000 --trainer.num-epochs 4
  --trainer.dropout-schedule 0,0@0.20,0.3@0.50,0 --trainer.add-option="--optimization.memory-compression-level=2"
  --trainer.optimization.num-jobs-initial 2 --trainer.optimization.num-jobs-final 4 --trainer.max-param-change 2.0
  --trainer.optimization.initial-effective-lrate 0.001 --trainer.optimization.final-effective-lrate 0.0001 --cleanup.remove-egs true
  --trainer.srand 3 --use-gpu wait --reporting.email me"""


HOURS = 360_000  # frames


def form(text: str = "", *more: str, frames: int = 300 * HOURS):
    return read_chain_form([*FOLDERS, *shlex.split(text), *more], frames=lambda data: frames)


def test_a_recipes_call_in_our_words():
    found = form(AN4)
    assert found.data == Path("data/train") and found.exp == Path("exp/tdnn") and found.ali_dir == found.tree_dir and not found.lattices
    own = found.preparation
    assert (own.widths(), own.online_ivector_dir, own.srand, own.cmvn_opts) == ([141, 102, 162], "exp/ivectors", 3,
                                                                                "--norm-means=false --norm-vars=false")
    assert (own.left_tolerance, own.right_tolerance, own.frame_subsampling_factor) == (5, 5, 3)
    assert found.phone_lm.num_extra_lm_states == 2000
    wanted = {"ngpu": "4", "strategy": "ma", "average-frames": "1500000", "l2-regularize-factor": "0.25", "initial-workers": "2",
              "num-epochs": "12", "num-chunk-per-minibatch": "128,64",
              "learn-rate": "0.001", "final-learn-rate": "0.0001", "decay-within": "true",
              "leaky-hmm-coefficient": "0.1", "xent-regularize": "0.1", "l2-regularize": "0.0005", "apply-deriv-weights": "false",
              "dropout-schedule": "0,0@0.20,0.3@0.50,0", "initial-model": "exp/tdnn/0.raw", "device": "auto", "combine-models": "3",
              "randomizer-seed": "3", "max-param-change": "2.0", "objective": "chain", "optimizer": "nnet3"}
    assert {name: found.job[name] for name in wanted} == wanted
    assert any("constrained" in note for note in found.notes) and any("exp/lats" in note for note in found.notes)


def test_cmvn_of_what_was_heard_so_far():
    found = form("--egs.opts '--frames-overlap-per-eg 0 --online-cmvn true' --feat.cmvn-opts=--config=conf/online_cmvn.conf").preparation
    assert found.online_cmvn and found.cmvn_opts == "--config=conf/online_cmvn.conf"
    assert not form("--egs.opts '--online-cmvn false'").preparation.online_cmvn


def test_parameters_shrink_in_each_of_kaldis_iterations():
    """Its archives have as many frames as each other, and are no more than full."""
    asked = "--trainer.frames-per-iter 1500000 --trainer.optimization.num-jobs-final 1 --trainer.optimization.proportional-shrink"
    for frames, archive in ((900_000, 900_000), (1_600_000, 800_000), (6_100_000, 1_220_000)):
        found = form(f"{asked} 10", frames=frames).job
        assert float(found["proportional-shrink"]) == 10 and found["shrink-frames"] == str(archive)
    assert "proportional-shrink" not in form(f"{asked} 0.0").job


def test_parameters_that_shrink_to_half_are_found_before_data_is_prepared():
    """At the highest rate of the run, which growing workers have in its middle, and strategies with their own scale of the rate."""
    jobs = "--trainer.optimization.num-jobs-initial 1 --trainer.optimization.num-jobs-final 16"
    rates = "--trainer.optimization.initial-effective-lrate 0.001 --trainer.optimization.final-effective-lrate 0.0001"
    text = f"{jobs} {rates} --trainer.optimization.proportional-shrink"
    with pytest.raises(UserError, match=r"too large at a learning rate of 0\.0048"):
        form(f"{text} 200")
    assert form(f"{text} 100").job["ngpu"] == "16"
    assert form(f"{text} 400", "--strategy", "ssgd").job["strategy"] == "ssgd"
    for more in (["--lr-scale", "linear"], ["--learn-rate", "0.01"]):
        with pytest.raises(UserError, match="proportional-shrink 400 is too large"):
            form(f"{text} 400", "--strategy", "ssgd", *more)


def test_options_of_the_trainer_go_before_kaldis():
    found = form(AN4, "--ngpu", "16", "--strategy", "bmuf", "--block-momentum", "0.9")
    assert found.job["ngpu"] == "16" and found.job["strategy"] == "bmuf" and found.job["block-momentum"] == "0.9"
    assert any("num-jobs-initial 2: all 16 workers" in note for note in found.notes) and "initial-workers" not in found.job
    assert "average-frames" not in found.job and "l2-regularize-factor" not in found.job
    same = form(AN4, "--trainer.optimization.num-jobs-initial", "4")
    assert "initial-workers" not in same.job and not any("num-jobs" in note for note in same.notes)
    recurrent = form("--egs.chunk-left-context 40 --egs.chunk-left-context-initial=0 --egs.chunk-right-context-final=0 "
                     "--trainer.deriv-truncate-margin 8 --trainer.optimization.shrink-value 0.99")
    assert (recurrent.job["chunk-left-context"], recurrent.job["deriv-truncate-margin"]) == ("40", "8")
    assert "chunk-right-context" not in recurrent.job and recurrent.job["chunk-left-context-initial"] == "0"
    assert [note.split()[0] for note in recurrent.notes if note not in form().notes] == ["--trainer.optimization.shrink-value"]
    averaging = form(AN4, "--average-period", "10").job  # in place of --trainer.frames-per-iter
    assert averaging["average-period"] == "10" and "average-frames" not in averaging
    assert form("--trainer.optimization.num-jobs-final 1").job["strategy"] == "local"


SIXTEEN = "--trainer.frames-per-iter 1500000 --trainer.optimization.num-jobs-initial 4 --trainer.optimization.num-jobs-final 16"


@pytest.mark.parametrize(("frames", "first", "last"), [
    (0, None, 3), (1_499_999, None, 3), (1_500_000, 4, 6), (7_499_999, 4, 15), (7_500_000, 4, 16), (300 * HOURS, 4, 16)])
def test_no_more_jobs_than_archives_times_frame_shifts(frames, first, last):
    """Where Kaldi ends with an error: num_jobs_final > num_archives * frame_subsampling_factor in its chain/train.py."""
    found = form(SIXTEEN, frames=frames)
    assert found.job["ngpu"] == str(last) and found.job.get("initial-workers") == (first and str(first))
    assert found.job["l2-regularize-factor"] == repr(1 / last)
    said = [note for note in found.notes if "num-jobs-final 16" in note]
    assert [f": {last} workers train" in note for note in said] == ([True] if last < 16 else [])
    for own, workers in ((["--ngpu", "12"], "12"), (["--strategy", "ma"], "16")):
        asked = form(SIXTEEN, *own, frames=frames)
        assert asked.job["ngpu"] == workers and not any("num-jobs-final 16" in note for note in asked.notes)


def test_frames_are_those_of_the_data_directory(tmp_path):
    (tmp_path / "utt2spk").write_text("a s\nb s\n")
    (tmp_path / "utt2num_frames").write_text("a 700000\nb 900000\n")
    words = ["--feat-dir", str(tmp_path), *FOLDERS[2:], *shlex.split(SIXTEEN)]
    assert read_chain_form(words).job["ngpu"] == "6"


def test_options_of_examples(tmp_path):
    """Those that Kaldi's recipes give change nothing, but for the share of lattices' costs, which are in lattices alone."""
    found = form("--egs.opts '--frames-overlap-per-eg 0 --num-egs-diagnostic 100 --normalize-egs true --nj 4 --num-utts-subset 80'")
    assert found.preparation.cv_utts == 80 and found.preparation.lm_scale == 0
    (tmp_path / "lat.1.gz").touch()
    lattices = [*FOLDERS[:4], "--lat-dir", str(tmp_path), "--dir", "exp/tdnn", "--egs.opts"]
    assert read_chain_form([*lattices, "--lattice-lm-scale 0.5"], frames=lambda data: 1).preparation.lm_scale == 0.5
    with pytest.raises(UserError, match=r"lm-scale 1\.0: expected a share"):
        read_chain_form([*lattices, "--lattice-lm-scale 1"], frames=lambda data: 1)


@pytest.fixture(autouse=True)
def lats(tmp_path, monkeypatch):
    """The folder of FOLDERS that has to be there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp/lats").mkdir(parents=True)


@pytest.mark.parametrize("kind", ["lat", "ali"])
def test_numerators_come_from_lat_dir_where_it_has_some(tmp_path, kind):
    (tmp_path / f"{kind}.1.gz").touch()
    found = read_chain_form([*FOLDERS[:4], "--lat-dir", str(tmp_path), "--dir", "exp/tdnn"], frames=lambda data: 300 * HOURS)
    assert found.ali_dir == tmp_path and found.lattices == (kind == "lat") and not any("lat-dir" in note for note in found.notes)


@pytest.mark.parametrize(("text", "sentence"), [
    ("--trainer.num-chunk-per-minibatch a", "num-chunk-per-minibatch a"),
    ("--egs.dir exp/egs", "no examples on disk"), ("--lat-dir exp/last", "--lat-dir exp/last does not exist"),
    ("--egs.opts '--normalize-egs false'", "leave it at true"), ("--egs.opts '--lattice-lm-scale 0.5'", "there are none in exp/lats"),
    ("--egs.opts '--lattice-prune-beam 4'", "lattice-prune"), ("--trainer.dropout-schedule 'lstm.*=0,0.3,0'", "dropout-schedule lstm"),
    ("--egs.opts '--frames-overlap-per-eg 30'", "frames-overlap-per-eg 30"), ("--egs.opts '--online-cmvn maybe'", "maybe"),
    ("--egs.opts '--foo 1'", "egs.opts: --foo 1"), ("--trainer.optimization.proportional-shrink much", "expected a number"),
    ("--trainer.optimization.proportional-shrink 5000", "too large at a learning rate of 0.000528"),
    ("--trainer.optimization.initial-effective-lrate x", "effective-lrate x: expected a number"),
    ("--trainer.optimization.proportional-shrink 10 --learn-rate x", "--learn-rate x: expected a number"),
    ("--ngpu many", "--ngpu many: expected a whole number"),
    ("--trainer.optimization.backstitch-training-scale 0.3", "backstitch"), ("--use-gpu maybe", "use-gpu maybe"),
    ("--chain.lm-opts=--num-states=3", "num-states"), ("--trainer.num-epochs many", "expected a number"),
    ("--trainer.add-option=--foo", "no meaning"), ("--chain-opts=--x", "chain-opts"), ("data/train", "options alone"),
    ("--chain.frame-subsampling-factor x", "whole number"), ("--trainer.frames-per-iter 0", "at least one frame"),
    ("--egs.chunk-width 0", "chunk widths")])
def test_what_has_no_meaning_is_refused_by_name(text, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        form(text)
    with pytest.raises(UserError, match="--tree-dir is needed"):
        read_chain_form(FOLDERS[:2])


SCRIPTS = {"chain/train.py": TRAIN, "chain/e2e/train_e2e.py": FLAT_START, "train_dnn.py": FRAMES, "train_rnn.py": CHUNKS}
PLACES = {"dir": "exp/tdnn", "feat_dir": "data/train", "lat_dir": "exp/lats", "tree_dir": "exp/tree", "ali_dir": "exp/ali",
          "lang": "data/lang"}
NOT_HERE = "backstitch is not here|--chain-opts|chunk widths '-1'"  # of images, all of each at once


@pytest.mark.slow
def test_calls_of_kaldis_recipes_are_read() -> None:
    """All but a few; examples in a folder of their own, which are an option of the scripts there, are left out of them here."""
    egs = os.environ.get("KALDI_EGS")
    if not egs:
        pytest.skip("KALDI_EGS says where Kaldi's recipes are")
    read, refused = 0, list[str]()
    for script in sorted(path for path in Path(egs).glob("*/*/local/**/*.sh") if path.is_file()):
        text = script.read_text(errors="replace").replace("\\\n", " ")
        values = dict(re.findall(r"^\s*(\w+)=([^\s#$]*)(?=\s|#|;|$)", text, re.MULTILINE))
        for name, call in re.findall(r"steps/nnet3/(chain/train\.py|chain/e2e/train_e2e\.py|train_dnn\.py|train_rnn\.py) (.*)", text):
            words = dict(_options(call, values))
            words |= {option: place for option, place in PLACES.items() if option in words} | {"egs.dir": ""}
            given = [word for option, value in words.items() for word in (f"--{option}", value)]
            try:
                if SCRIPTS[name] in (TRAIN, FLAT_START):
                    read_chain_form(given, SCRIPTS[name], frames=lambda data: 300 * HOURS)
                else:
                    read_frame_form(given, SCRIPTS[name])
                read += 1
            except UserError as error:
                refused.append(f"{script.relative_to(egs)}: {error}")
    print("\n".join(refused), read)
    assert read > 500 and all(re.search(NOT_HERE, line) for line in refused)


def _options(call: str, values: dict[str, str]) -> list[tuple[str, str]]:
    """The options of a call, whose variables are those of the script; those of which nothing is known are 1."""
    words = shlex.split(call.split("||")[0], comments=True)
    words = [re.sub(r"\$\{?(\w+)[^}\s]*\}?", lambda match: values.get(match[1], "1").strip("'\""), word) for word in words]
    found, at = list[tuple[str, str]](), 0
    while at < len(words):
        name, equal, value = words[at].partition("=")
        if name.startswith("--"):
            at += not equal
            found.append((name[2:].replace("-", "_"), value if equal else words[at] if at < len(words) else ""))
        at += 1
    return found
