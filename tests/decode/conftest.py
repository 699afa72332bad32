"""A recipe's directory with a model of Kaldi's on AN4, in which the scripts are run as a user runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pykaldist.cli import main
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import LatticePath, best_path
from pykaldist.io.datadir import DataDir, write_datadir


def run(recipe: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYKALDIST_PYTHON": sys.executable}
    return subprocess.run(command, cwd=recipe, env=env, capture_output=True, text=True)


def succeed(recipe: Path, *command: str) -> str:
    """Run a command that has to succeed; what it says."""
    result = run(recipe, *command)
    assert result.returncode == 0, result.stderr
    return result.stdout


def link_scripts(folder: Path, root: Path) -> None:
    """Make a folder a recipe's, without data or models."""
    for name in ("steps", "utils"):
        (folder / name).symlink_to(root / name)
    (folder / "path.sh").write_text(f". {root}/path.sh\n")


def make_recipe(folder: Path, root: Path, shared: Path, kaldis: Path, system: str, files: Sequence[str],
                utts_of_speaker: int | None) -> Path:
    """Some utterances of the first two test speakers with features, the model `files` of `kaldis` as exp/<system>, and its graph."""
    link_scripts(folder, root)
    (folder / "exp" / system).mkdir(parents=True)
    for name in files:
        shutil.copyfile(kaldis / name, folder / "exp" / system / name)
    test = DataDir(kaldis.parent / "data/test")
    utts = [utt for utts in list(test.spk2utt.values())[:2] for utt in utts[:utts_of_speaker]]
    write_datadir(folder / "data/test", {u: f"{shared}/{test.wav_scp[u]}" for u in utts}, {u: " ".join(test.text[u]) for u in utts},
                  {u: test.utt2spk[u] for u in utts})
    (folder / "mfcc.conf").write_text("--use-energy=false\n")
    shutil.copytree(kaldis.parent / "lang", folder / "data/lang")
    for command in (["steps/make_mfcc.sh", "--nj", "1", "--mfcc-config", "mfcc.conf", "data/test"],
                    ["steps/compute_cmvn_stats.sh", "data/test"],
                    ["utils/mkgraph.sh", "data/lang", f"exp/{system}", f"exp/{system}/graph"]):
        succeed(folder, *command)
    return folder


def decoded_on_both(cuda: Any, command: str, job: int = 1, acwt: float = 0.1) -> tuple[dict[str, LatticePath], dict[str, LatticePath]]:
    """The best paths of utterances decoded by `pykaldist decode <command> decode_<device>` on the CPU, and on the device `cuda`."""
    found = []
    for device in ("cpu", "cuda"):
        launches = cuda.launches if cuda else 0
        assert main(["decode", "--device", device, *command.split(), f"decode_{device}"]) == 0
        assert cuda is None or (cuda.launches > launches) == (device == "cuda")
        found.append({utt: best_path(lattice, acwt) for utt, lattice in read_lattices(f"decode_{device}/lat.{job}.gz")})
    assert list(found[0]) == list(found[1])
    return found[0], found[1]
