"""The shell tools: option parsing, usage texts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NO_USAGE = {"setup_venv.sh", "parse_options.sh"}  # run by path.sh; sourced, and where Kaldi has it
SHARED = sorted((ROOT / "utils" / "shared").iterdir())
RUNNERS = [ROOT / "utils" / f"{name}.pl" for name in ("run", "queue", "slurm", "ssh", "retry")]
SCRIPTS = sorted([*RUNNERS, *(p for folder in ("steps", "utils") for p in (ROOT / folder).rglob("*.sh")
                              if p.name not in NO_USAGE and p not in SHARED and p.resolve().name != "later")])
RECIPES = sorted(ROOT.glob("egs/*/s5*/run.sh"))


def bash(script: str, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f". '{ROOT}/path.sh'; {script}"], cwd=cwd, capture_output=True, text=True, check=False, **kwargs)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_script_prints_its_usage(script, tmp_path):
    result = bash(f"'{script}' {'extra' if script.name == 'best_wer.sh' else ''}", tmp_path)  # which reads its standard input
    assert result.returncode == 1 and result.stdout == ""
    for word in ("Usage: ", "e.g.", script.name):
        assert word in result.stderr
    helped = bash(f"'{script}' --help", tmp_path)
    assert helped.returncode == 0 and "e.g." in helped.stdout


def test_a_script_that_is_not_here_yet_says_so(tmp_path):
    """Where a recipe calls it, by whatever way its `steps` leads here."""
    (tmp_path / "steps").symlink_to(ROOT / "egs/wsj/s5/steps")
    for name in ("steps/decode_sgmm2_fromlats.sh", "steps/nnet2/decode.sh", "steps/online/decode.sh"):
        done = subprocess.run([f"./{name}", "--nj", "4", "x"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith(f"{name}: ERROR: this toolkit does not have this script of Kaldi's yet; ")


@pytest.mark.parametrize("script", SHARED, ids=lambda p: p.name)
def test_what_scripts_share_says_who_sources_it(script):
    assert script.read_text().startswith("# Sourced by ") and not os.access(script, os.X_OK)


def test_what_scripts_share_is_found_where_utils_is_on_path_already(tmp_path):
    path = [folder for folder in os.environ["PATH"].split(":") if folder != f"{ROOT}/utils/shared"]
    own = {**os.environ, "PATH": ":".join([f"{ROOT}/utils", *path])}
    done = subprocess.run(["bash", "-c", f". '{ROOT}/path.sh'; type -P run.pl; . say_what.sh"], cwd=tmp_path, env=own, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{ROOT}/utils/run.pl\n"), done.stderr


def repeats(scripts: list[Path]) -> list[tuple[Path, Path, str]]:
    """Two scripts and the first of six lines that both have one after the other; blank lines do not count."""
    seen: dict[tuple[str, ...], Path] = {}
    found = []
    for script in scripts:
        text = script.read_text()
        if script in RECIPES:  # its stages are commands that stand in each recipe, to read and to copy
            text = re.sub(r"^if want .*?^fi$", "", text, flags=re.MULTILINE | re.DOTALL)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for i in range(len(lines) - 5):
            block = tuple(lines[i:i + 6])
            if seen.setdefault(block, script) != script:
                found.append((seen[block], script, block[0]))
    return found


def test_no_script_repeats_six_lines_of_another(tmp_path):
    ours = subprocess.run(["git", "ls-files", "*.sh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    scripts = sorted({(ROOT / name).resolve() for name in ours})
    assert len(scripts) > len(SCRIPTS) and repeats(scripts) == []
    copy = tmp_path / "copy.sh"
    copy.write_text("\n\n".join((ROOT / "utils" / "best_wer.sh").read_text().splitlines()[2:8]))
    assert repeats([*scripts, copy]) == [(ROOT / "utils" / "best_wer.sh", copy, copy.read_text().splitlines()[0].strip())]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.parent.parent.name)
def test_recipes_print_help_from_anywhere_and_refuse_unknown_options(recipe, tmp_path):
    helped = subprocess.run([recipe, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    for word in ("--stage", "--stop-stage", "--nj", "--ngpu", "--cmd", "--corpus"):
        assert word in helped.stdout
    wrong = subprocess.run([recipe, "--sage", "3"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "there is no option --sage" in wrong.stderr


@pytest.mark.parametrize(("given", "nearest"), [("--bost-silence", "--boost-silence"), ("--njj", "--nj"), ("--totgaus", "--totgauss"),
                                                ("--frobnicate", ""), ("--x", "")])
def test_an_unknown_option_and_the_nearest_one(given, nearest, tmp_path):
    done = bash(f"'{ROOT}/steps/train_mono.sh' {given} 1 a b c", tmp_path)
    words = f"there is no option {given}" + f", the nearest is {nearest}" * bool(nearest) + ";"
    assert done.returncode == 1 and words in done.stderr


@pytest.mark.parametrize(("command", "cure"), [
    ("steps/decode.sh exp/tri1/graph data/test exp/tri1/decode", "utils/mkgraph.sh data/lang_test exp/tri1 exp/tri1/graph"),
    ("steps/train_deltas.sh 9 9 data/train data/lang exp/mono_ali exp/tri1", "steps/make_mfcc.sh data/train"),
    ("utils/mkgraph.sh data/lang_test exp/tri1 exp/tri1/graph",
     "utils/prepare_lang.sh data/local/dict '<UNK>' data/local/lang data/lang_test"),
    ("steps/compute_cmvn_stats.sh data/test", "steps/make_mfcc.sh data/test"),
    (". missing.sh align_si.sh exp/tri1/final.mdl", "./run.sh --dry-run true"),
])
def test_what_is_missing_is_made_by_a_command_that_is_named(command, cure, tmp_path):
    """It can be pasted as it stands at the end of the line."""
    done = bash(f"{command if command.startswith('. ') else f'{ROOT}/{command}'} || exit 1; exit 1", tmp_path)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and " does not exist; " in line and line.endswith(f": {cure}"), line


DRY_COMMANDS = re.compile(r"(?m)^  (steps|utils|local)/\S+|^  pykaldist ")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: f"{p.parent.parent.name}")
def test_a_dry_run_shows_every_stage_and_runs_nothing(recipe, tmp_path):
    """In a copy of the recipe, where nothing is made; what is there already is marked."""
    if "shared/recipe.sh" not in recipe.read_text():
        pytest.skip(f"{recipe} has stages of its own")
    copy = tmp_path / "egs" / recipe.parent.parent.name / recipe.parent.name
    shutil.copytree(recipe.parent, copy, ignore=shutil.ignore_patterns("steps", "utils", "exp", "data*", "corpus", "mfcc", "fmllr"))
    for name in ("steps", "utils"):
        (copy / name).symlink_to(ROOT / name)
    (copy / "path.sh").write_text(f". '{ROOT}/path.sh'\n")
    (copy / "data/lang").mkdir(parents=True)
    before = sorted(copy.rglob("*"))
    more = ["--language", "tr"] * ("commonvoice" in str(recipe))
    done = subprocess.run([copy / "run.sh", "--dry-run", "true", "--corpus", "/corpus", *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "ERROR" not in done.stderr and "No such file" not in done.stderr, done.stderr
    assert [line[:11] for line in done.stdout.splitlines() if line.startswith("== ")] == [f"== stage {n}:" for n in range(9)]
    assert len(DRY_COMMANDS.findall(done.stdout)) >= 15 and done.stdout.endswith("where it was.\n")
    assert re.search(r"utils/prepare_lang\.sh .* data/lang   # data/lang is there\n", done.stdout) and sorted(copy.rglob("*")) == before


def test_a_recipe_works_in_another_folder(tmp_path):
    """With a space in its name: links to the recipe's files, its stages from there; a folder of another recipe is refused."""
    target, run = tmp_path / "my work", ROOT / "egs/yesno/s5/run.sh"
    for program in (run, target / "run.sh"):
        more = ["--work-dir", "my work"] * (program == run)
        done = subprocess.run([program, "--dry-run", "true", *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and ("# data/lang is there" in done.stdout) is (target / "data").is_dir(), done.stdout + done.stderr
        (target / "data/lang").mkdir(parents=True, exist_ok=True)
    assert sorted(path.name for path in target.iterdir()) == ["cmd.sh", "conf", "data", "local", "path.sh", "run.sh", "steps",
                                                                "utils"]
    assert all(path.is_symlink() for path in target.iterdir() if path.name != "data") and (target / "steps").resolve() == ROOT / "steps"
    for options, words in ((["--work-dir"], "--work-dir expects a folder"), (["--work-dir", ""], "--work-dir expects a folder"),
                           (["--work-dir", str(tmp_path / "my work/path.sh")], "cannot be made"),
                           (["--work-dir=my work"], "is that of another recipe")):
        other = ROOT / ("egs/an4/s5/run.sh" if "another" in words else "egs/yesno/s5/run.sh")
        refused = subprocess.run([other, "--dry-run", "true", *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and words in refused.stderr, refused.stderr


OPTIONS = "nj=4 stage=0 flag=false name=''; . parse_options.sh || exit 1; echo \"$nj $flag <$name> $*\""


@pytest.mark.parametrize(("arguments", "mode"), [("--nj 2", ""), ("--deterministic true", "true"), ("--deterministic=false", "")])
def test_every_script_takes_the_deterministic_mode(tmp_path, arguments, mode):
    (tmp_path / "s.sh").write_text(f". '{ROOT}/path.sh'; {OPTIONS}; bash -c 'echo \"mode=$PYKALDIST_DETERMINISTIC\"'")
    own = {name: value for name, value in os.environ.items() if name != "PYKALDIST_DETERMINISTIC"}
    result = subprocess.run(f"bash s.sh {arguments}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, env=own)
    assert result.stdout.endswith(f"mode={mode}\n"), result.stderr
    wrong = subprocess.run("bash s.sh --deterministic maybe", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "--deterministic takes true or false, found 'maybe'" in wrong.stderr


@pytest.mark.parametrize(("arguments", "out"), [
    ("", "4 false <> "),
    ("--nj 8 a b", "8 false <> a b"),
    ("--nj=8 --flag true --name 'x y' a", "8 true <x y> a"),
    ("--name -- a", "4 false <--> a"),
    ("-- --nj 3", "4 false <> --nj 3"),
    ("--stage -1 --name 0 a", "4 false <0> a"),
])
def test_options_are_parsed(tmp_path, arguments, out):
    (tmp_path / "s.sh").write_text(f". '{ROOT}/path.sh'; {OPTIONS}")
    result = subprocess.run(f"bash s.sh {arguments}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout == out + "\n"


@pytest.mark.parametrize(("arguments", "words"), [
    ("--jobs 3", "no option --jobs"), ("--flag 1", "takes true or false"), ("--nj", "needs a value"),
    ("--config none.conf", "no config file none.conf"), ("--a[0]=b", "no option"),
    ("--nj 0", "from 1 up, found '0'"), ("--nj abc", "from 1 up, found 'abc'"), ("--stage x", "whole number, found 'x'")])
def test_wrong_options_are_refused(tmp_path, arguments, words):
    (tmp_path / "s.sh").write_text(f". '{ROOT}/path.sh'; {OPTIONS}")
    result = subprocess.run(f"bash s.sh {arguments}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and words in result.stderr and result.stdout == ""
