"""Kaldi's own recipes, unedited but for the path of the data at the head, on the corpora as they are shipped.

    KALDI_EGS=.../kaldi/egs tests/run.sh --all tests/recipes/test_kaldi_recipes.py

The corpora of ../shared/data are laid out anew: yesno as wav, AN4 as NIST sphere files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

ROOT = Path(__file__).resolve().parents[2]
EGS = os.environ.get("KALDI_EGS", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not EGS, reason="KALDI_EGS does not name the egs folder of Kaldi")]


def copied(name: str, root: Path) -> Path:
    """A recipe of Kaldi in a folder of its own under `egs`, with the project around it."""
    for part in ("tools", "path.sh", "steps", "utils", "src", "pykaldist"):
        (root / part).symlink_to(ROOT / part)
    (root / "egs").mkdir()
    (root / "egs/wsj").symlink_to(ROOT / "egs/wsj")
    shutil.copytree(Path(EGS) / name / "s5", root / "egs" / name / "s5", symlinks=True)
    return root / "egs" / name / "s5"


def converted(source: Path, target: Path, kind: str) -> None:
    """The audio files of a corpus in another format, with its other files."""
    for path in (path for path in source.rglob("*") if path.is_file()):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".flac", ".wav"):
            samples, rate = soundfile.read(path, dtype="int16")
            soundfile.write(place.with_suffix(".wav" if kind == "WAV" else ".sph"), samples, rate, "PCM_16", format=kind)
        else:
            shutil.copy(path, place)


def run(recipe: Path) -> str:
    """Run the recipe; returns what it has said."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYKALDIST_") and name != "PYTHONPATH"}
    done = subprocess.run(["./run.sh"], cwd=recipe, env={**own, "PYKALDIST_PYTHON": sys.executable}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "ERROR" not in done.stdout and "No such file" not in done.stdout and "command not found" not in done.stdout, done.stdout
    return done.stdout


def wer(decode_dir: Path) -> float:
    return float((decode_dir / "scoring_kaldi/best_wer").read_text().split()[1])


def test_yesno(shared: Path, tmp_path: Path) -> None:
    """From the first line to the last, to Kaldi's word error rate of 0.00, or one word of 240 more."""
    recipe = copied("yesno", tmp_path)
    converted(shared / "data/yesno/waves_yesno", recipe / "waves_yesno", "WAV")
    said = run(recipe)
    assert said.splitlines()[-1].startswith("%WER 0.") and wer(recipe / "exp/mono0a/decode_test_yesno") < 0.5
    assert (recipe / "exp/mono0a/decode_test_yesno/scoring_kaldi/wer_details/per_spk").is_file()


def test_an4(shared: Path, tmp_path: Path) -> None:
    """Kaldi's: mono 12.94, tri1 10.61 and, with speaker-adaptive training, 5.82 %, of 773 words."""
    recipe = copied("an4", tmp_path)
    converted(shared / "data/an4", tmp_path / "corpora/an4", "NIST")
    (tmp_path / "corpora/an4/README").touch()
    shutil.copy(tmp_path / "corpora/an4/etc/an4.lm", tmp_path / "corpora/an4/etc/an4.ug.lm")
    script = (recipe / "run.sh").read_text()
    (recipe / "run.sh").write_text(script.replace("data=/home/allen/data", f"data={tmp_path}/corpora"))
    said = run(recipe)
    assert said.count("queue.pl: no Grid Engine") <= 1
    for system, kaldi in (("mono", 12.94), ("tri1", 10.61), ("tri3", 5.82)):
        assert wer(recipe / f"exp/{system}/decode") < kaldi + 1.5, system
