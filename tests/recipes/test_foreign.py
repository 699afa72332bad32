"""A recipe that was written for Kaldi, in a folder of egs/: its path.sh, its links, its runner of jobs and its scoring."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from killed import path_without

ROOT = Path(__file__).resolve().parents[2]
PATH_SH = """export KALDI_ROOT=`pwd`/../../..
[ -f $KALDI_ROOT/tools/env.sh ] && . $KALDI_ROOT/tools/env.sh
export PATH=$PWD/utils/:$KALDI_ROOT/tools/openfst/bin:$PWD:$PATH
[ ! -f $KALDI_ROOT/tools/config/common_path.sh ] && echo >&2 "not present" && exit 1
. $KALDI_ROOT/tools/config/common_path.sh
export LC_ALL=C
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def foreign(tmp_path: Path) -> tuple[Path, Run]:
    """A recipe's folder beside egs/wsj, and a function that runs a line of bash in it, where none of the project's settings is made."""
    recipe = tmp_path / "egs/foreign/s5"
    recipe.mkdir(parents=True)
    for name in ("tools", "path.sh", "steps", "utils", "pykaldist"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "egs/wsj").symlink_to(ROOT / "egs/wsj")
    (recipe / "steps").symlink_to("../../wsj/s5/steps/")
    (recipe / "utils").symlink_to("../../wsj/s5/utils")
    (recipe / "path.sh").write_text(PATH_SH)
    (recipe / "run.sh").write_text("#!/bin/sh\necho again >> again\n")
    (recipe / "run.sh").chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYKALDIST_") and name != "PYTHONPATH"}
    path = ":".join(folder for folder in own["PATH"].split(":") if not folder.startswith(str(ROOT)))
    own["PATH"] = path_without("qsub", path, tmp_path / "own_bin")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], cwd=recipe, env={**own, "PYKALDIST_PYTHON": sys.executable}, capture_output=True,
                              text=True, check=False, timeout=300)

    return recipe, run


def test_its_path_sh_gives_the_projects_environment(foreign):
    _, run = foreign
    done = run(". ./path.sh; echo $PYKALDIST_ROOT; type -P pykaldist run.pl queue.pl parse_options.sh; type -P sph2pipe")
    assert done.returncode == 0, done.stderr
    root, *programs = done.stdout.splitlines()
    assert Path(root) == ROOT and [Path(name).resolve().relative_to(ROOT).as_posix() for name in programs] == [
        "utils/pykaldist", "utils/run.pl", "utils/queue.pl", "utils/parse_options.sh", "tools/sph2pipe_v2.5/sph2pipe"]
    lost = run("unset KALDI_ROOT; . ../../../tools/config/common_path.sh; echo on")
    assert lost.returncode == 1 and lost.stdout == "" and "KALDI_ROOT has to be set" in lost.stderr


@pytest.mark.parametrize("runner", ["", "--cmd run.pl", "--cmd 'queue.pl --mem 2G'", "--cmd utils/run.pl"])
def test_a_recipe_with_its_own_folder_on_path_is_not_started_by_its_stages(foreign, runner):
    """`.` stands first on PATH, and there is a run.sh, and something else of a runner's name."""
    recipe, run = foreign
    data = recipe / "data/train"
    data.mkdir(parents=True)
    soundfile.write(recipe / "a.wav", np.random.default_rng(0).normal(0, 0.1, 4000), 8000)
    for name, text in (("wav.scp", "a a.wav\n"), ("utt2spk", "a a\n"), ("spk2utt", "a a\n")):
        (data / name).write_text(text)
    (recipe / "conf").mkdir()
    (recipe / "conf/mfcc.conf").write_text("--sample-frequency=8000\n")
    (recipe / "run.pl").write_text("#!/bin/sh\necho again >> again\nexit 1\n")
    (recipe / "run.pl").chmod(0o755)
    (recipe / "path.sh").write_text(PATH_SH + "export PATH=.:$PATH\n")
    done = run(f"steps/make_mfcc.sh --nj 1 {runner} data/train exp/make_mfcc mfcc")
    assert done.returncode == 0 and (data / "feats.scp").is_file(), done.stderr
    assert not (recipe / "again").exists()


def test_the_former_runner_is_named(foreign):
    recipe, run = foreign
    done = run("steps/make_mfcc.sh --cmd run.sh data/train")
    assert done.returncode == 1 and "the runner of jobs is utils/run.pl now, found --cmd 'run.sh'" in done.stderr
    assert not (recipe / "again").exists()


def test_its_own_score_sh_is_run_or_else_the_projects(foreign):
    recipe, run = foreign
    (recipe / "local").mkdir()
    (recipe / "local/score.sh").write_text("#!/usr/bin/env bash\n. ./path.sh\n. parse_options.sh\necho own $*\n")
    scored = ". ./path.sh; . score_decoded.sh; score_decoded data graph decode"
    assert "data/text does not exist" in run(scored).stderr  # it cannot be run
    (recipe / "local/score.sh").chmod(0o755)
    assert run(scored).stdout == "own data graph decode\n"
    (recipe / "local/score.sh").unlink()
    (recipe / "local/score.sh").symlink_to("../steps/score_kaldi.sh")
    done = run(scored)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == \
        "score.sh: ERROR: data/text does not exist; the recipe's stages print what makes it: ./run.sh --dry-run true"


def test_a_foreign_script_takes_options_and_says_nothing_of_its_copyright(foreign):
    recipe, run = foreign
    (recipe / "own.sh").write_text("#!/usr/bin/env bash\n# Copyright 2012 Somebody\nset -e\nstage=0\ncmd=queue.pl\n"
                                   ". utils/parse_options.sh\necho $stage $1 $cmd\n")
    done = run("bash own.sh --stage 3 x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 x queue.pl\n", "")


def test_kaldi_lms_program_is_run_though_a_script_here_has_its_name(foreign):
    recipe, run = foreign
    (recipe / "lm").mkdir()
    (recipe / "words").write_text("ja\nnein\n")
    (recipe / "text").write_text("ja nein\nnein ja ja\n" * 5)
    done = run(". ./path.sh; get_word_map.pl '<s>' '</s>' '<UNK>' < words > lm/word_map; "
               "awk 'NR == FNR { code[$1] = $2; next } { for (i = 1; i <= NF; i++) $i = code[$i]; print }' lm/word_map text |"
               "  gzip > lm/train.gz; "
               "train_lm.sh --arpa --lmtype 3gram-mincount lm && gunzip -c lm/3gram-mincount/lm_unpruned.gz")
    assert done.returncode == 0 and "\\3-grams:" in done.stdout and "ja nein ja" not in done.stdout, done.stderr
    assert run(". ./path.sh; train_lm.sh").stderr.startswith("Usage: utils/train_lm.sh")


@pytest.mark.parametrize(("script", "said"), [
    ("print 0.5/0.1", "5.0\n"), ("print (0.5/0.1)", "5.0\n"), ("print(0.5/0.1)", "5.0\n"),
    ("import sys\nif True:\n    print 'a', len(sys.argv)", "a 1\n"), ("import sys; sys.exit(3)", "")])
def test_a_line_of_python_2_is_python(foreign, script, said):
    """As in `learning_rate_factor=$(echo "print 0.5/$xent_regularize" | python)` of 29 scripts of Kaldi's; its status is the script's."""
    recipe, run = foreign
    (recipe / "script").write_text(script)
    done = run(". ./path.sh; . ./path.sh; python < script")
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0 if said else 3)


def test_python_is_the_machines_own(foreign):
    recipe, run = foreign
    (recipe / "own").mkdir()
    (recipe / "own/python").write_text('#!/bin/sh\necho "own $*"\n')
    (recipe / "own/python").chmod(0o755)
    assert run("PATH=$PWD/own:$PATH; . ./path.sh; python -c 'print 1' x").stdout == "own -c print 1 x\n"


def test_nists_scoring_is_run_where_it_is_installed(foreign):
    recipe, run = foreign
    line = ". ./path.sh; hubscr=$KALDI_ROOT/tools/sctk/bin/hubscr.pl; [ -f $hubscr ] && $hubscr -p `dirname $hubscr` -h hub5 a.ctm"
    if not Path("/usr/lib/sctk/bin/hubscr.pl").exists():
        done = run(line)
        assert done.returncode == 1 and "hubscr.pl: ERROR: NIST's scoring toolkit is not installed" in done.stderr
    (recipe / "nist").mkdir()
    for name, text in (("hubscr.pl", "sclite $*"), ("sclite", "echo scored $*")):
        (recipe / "nist" / name).write_text(f"#!/bin/sh\n{text}\n")
        (recipe / "nist" / name).chmod(0o755)
    done = run(f"PATH={recipe}/nist:$PATH; {line}")
    assert done.stdout.startswith("scored -p ") and done.stdout.endswith("/tools/sctk/bin -h hub5 a.ctm\n"), done.stderr
