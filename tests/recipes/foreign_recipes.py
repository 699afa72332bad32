"""Recipes that were written for Kaldi, run as their user runs them: in a folder of egs/, with the project around it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from killed import path_without

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("tools", "path.sh", "steps", "utils", "src", "pykaldist")
STOPPED = "the recipe has come to"
ROWS: list[tuple[str, str, str, str]] = []  # of the table that stands at the end of the tests: recipe, lines accepted, what was run, WER

WGET = """target=.
while [ $# -gt 0 ]; do
  case $1 in -P | -O) target=$2; shift ;; -*) ;; *) url=$1 ;; esac
  shift
done
case $target in *.*z | *.txt) ;; *) mkdir -p "$target" ;; esac
cp "$files/${url##*/}" "$target"
"""
SVN = """[ "$1" = co ] || exit 1
while [ $# -gt 2 ]; do shift; done
mkdir -p "${2%/*}"
cp -r "$files/${1##*/}" "$2"
"""


def around(root: Path) -> None:
    """The project's folders, and egs/wsj/s5 with links to `steps` and `utils`, in `root`."""
    for part in PARTS:
        (root / part).symlink_to(ROOT / part)
    (root / "egs/wsj/s5").mkdir(parents=True)
    for part in ("steps", "utils"):
        (root / "egs/wsj/s5" / part).symlink_to(f"../../../{part}")


def copied(egs: Path, name: str, root: Path, beside: tuple[str, ...] = ()) -> Path:
    """The recipe `name` (an4/s5) of Kaldi with the project around it, and those `beside` it to which it has links."""
    around(root)
    for recipe in (name, *beside):
        shutil.copytree(egs / recipe, root / "egs" / recipe, symlinks=True, dirs_exist_ok=True, ignore=lambda folder, names: [
            name for name in names if Path(folder) == egs / "wsj/s5" and name in ("steps", "utils")])
    return root / "egs" / name


def edited(script: Path, old: str, new: str) -> None:
    """The path of the data at a recipe's head, as its user sets it."""
    text = script.read_text()
    assert text.count(old) == 1, f"{script}: {text.count(old)} times {old}"
    script.write_text(text.replace(old, new))


def ends_at(*scripts: Path) -> None:
    """Scripts that begin what the project does not do (chain networks, i-vectors): the recipe ends there, and says so."""
    for script in scripts:
        assert script.is_file()
        script.write_text(f"#!/bin/sh\necho '{STOPPED} {script.name}'\nexit 77\n")


def fetching(files: Path, programs: Path) -> Path:
    """A folder of the programs with which recipes fetch (wget, svn); what they are asked for, they take from `files`, by its last name."""
    programs.mkdir()
    for name, text in (("wget", WGET), ("svn", SVN)):
        (programs / name).write_text(f"#!/usr/bin/env bash\nfiles={files}\n{text}")
        (programs / name).chmod(0o755)
    return programs


def run(recipe: Path, *arguments: str, script: str = "./run.sh", ends: bool = True, programs: Path | None = None,
        environment: dict[str, str] | None = None) -> str:
    """Run the recipe; returns what it has said.

    `ends`: to its last line; else to a script that `ends_at` has made. `programs`: a folder of programs for its PATH. `environment`: what
    its user sets.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYKALDIST_") and name != "PYTHONPATH"}
    own["PYKALDIST_PYTHON"] = sys.executable
    own["PATH"] = ":".join([str(programs)] * bool(programs) + [path_without("qsub", own["PATH"], recipe / "own_bin")])
    with open(recipe / "said", "w") as said:
        process = subprocess.Popen([script, *arguments], cwd=recipe, env={**own, **(environment or {})}, stdout=said,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        status = process.wait()
    while _goes_on(process.pid):
        time.sleep(1)
    told = (recipe / "said").read_text()
    assert (status == 0 if ends else STOPPED in told), f"status {status}:\n{told[-5000:]}"
    ours = re.sub(r"^rm: cannot remove .*$", "", told, flags=re.M)  # recipes remove what an earlier run may have left, without -f
    for wrong in ("ERROR", "No such file", "command not found", "Traceback"):
        assert wrong not in ours, ours[max(0, ours.index(wrong) - 2000) :][:5000]
    return told


def _goes_on(group: int) -> bool:
    """Whether the recipe has left decodings running in the background."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wer(decode_dir: Path) -> float:
    """The best word error rate of a scored decoding, in percent."""
    rates = [float(found[1]) for path in decode_dir.glob("wer_[0-9]*") for found in re.finditer(r"^%WER (\S+)", path.read_text(), re.M)]
    assert rates, f"{decode_dir} has no word error rate"
    return min(rates)
