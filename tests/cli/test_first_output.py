"""The first output of a script or a verb comes before anything that takes time is imported or run (tests/bench/run.sh first_output)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pykaldist.cli import verbs

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "numba", "lhotse", "scipy", "matplotlib", "onnx", "mpi4py")
#: Verbs whose options are those of networks and strategies, which are declared beside code that needs torch.
NETWORKS = {"plan", "predict", "pretrain-dbn", "simulate", "train"}
RECIPE = "egs/yesno/s5"
# What users call; the others are sourced, or read what another command writes, or run one.
OTHERS = ("best_wer.sh", "parse_options.sh", "setup_venv.sh")
FOLDERS = ("steps", "steps/nnet", "utils", f"{RECIPE}/local")
SCRIPTS = [ROOT / RECIPE / "run.sh", ROOT / "egs/an4/s5/local/run_lstm.sh",
           *(path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.sh"))
             if os.access(path, os.X_OK) and path.name not in OTHERS and not path.is_symlink())]  # links are to tools that take no time

BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {(*HEAVY, "numpy", "soundfile", "kaldifst")}:
            raise SystemExit(name + " is imported before the first output")
sys.meta_path.insert(0, Block())
"""


def test_a_verb_says_what_it_does_before_it_imports_anything() -> None:
    """In its own words, on stderr; for --help on stdout, where the rest follows."""
    code = BLOCK + """
import os
from pykaldist.cli import TOLD, say_what, verbs
for verb in verbs():
    for more in ([], ["--help"]):
        os.environ.pop(TOLD, None)
        assert say_what([verb, *more]), verb
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [f"pykaldist {verb}: {line}" for verb, line in verbs().items()]
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == lines and done.stdout.splitlines() == lines


def test_main_imports_nothing_that_takes_time() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYKALDIST_TOLD"}
    code = BLOCK + "import runpy; sys.argv = ['pykaldist', 'train', 'store', 'exp']; runpy.run_module('pykaldist', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    first, then = done.stderr.splitlines()
    assert first == f"pykaldist train: {verbs()['train']}" and then.endswith("is imported before the first output")


def test_help_and_wrong_arguments_wait_for_no_large_package() -> None:
    code = f"""
import argparse, importlib, sys
for verb in sys.argv[1:]:
    module = importlib.import_module("pykaldist.cli." + verb.replace("-", "_"))
    module.add_arguments(argparse.ArgumentParser())
    loaded = [name for name in {HEAVY} if name in sys.modules]
    assert not loaded, f"{{verb}} imports {{loaded}} for its options"
"""
    light = sorted(set(verbs()) - NETWORKS)
    done = subprocess.run([sys.executable, "-c", code, *light], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def arguments(script: Path) -> list[str]:
    """As many as the script's usage names."""
    usage = subprocess.run([script, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return ["x"] * len(re.findall("<", re.sub(r"\[[^]]*\]", "", usage)))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_says_what_it_does_before_python_starts(script: Path, tmp_path: Path) -> None:
    """An interpreter that refuses to run pykaldist must not be heard before the script's first line."""
    python = tmp_path / "python"
    refuse = '[ "$1 $2" != "-m pykaldist" ] || { echo "python starts" >&2; exit 1; }'
    python.write_text(f'#!/usr/bin/env bash\n{refuse}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = {**os.environ, "PYKALDIST_PYTHON": str(python)}
    del env["PYKALDIST_TOLD"]
    recipe = next((folder for folder in script.parents if folder.name == "s5"), ROOT / RECIPE)
    folder = tmp_path / "s5"  # a copy of the recipe, which stays as it is
    made = shutil.ignore_patterns("data", "exp", "mfcc", "corpus", "steps", "utils", "path.sh")
    shutil.copytree(recipe, folder, ignore=made)
    for link in ("steps", "utils", "path.sh"):
        (folder / link).symlink_to(ROOT / link)
    words = []
    if "egs" in script.parts:
        script = folder / script.relative_to(recipe)
    else:
        words = arguments(script)
    done = subprocess.run([script, *words], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)
    what = script.read_text().splitlines()[1].removeprefix("# ")
    assert done.stderr.splitlines()[0] == f"{script.name}: {what}", done.stderr


def test_a_recipe_that_is_called_from_elsewhere_says_what_it_does(tmp_path: Path) -> None:
    env = {**{name: value for name, value in os.environ.items() if name != "PYKALDIST_TOLD"}, "PYKALDIST_PYTHON": sys.executable}
    path = os.path.relpath(ROOT / "egs/yesno/s5/run.sh", tmp_path)
    done = subprocess.run([path, "--stage", "9"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("run.sh: yesno (") and "No such file" not in done.stderr
