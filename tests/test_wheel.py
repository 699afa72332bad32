"""`pip install`: the wheel has all that the library reads, and recipes run beside an installed library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pykaldist
from pykaldist.environment import needed

pytest.importorskip("setuptools", minversion="70.1", reason="the first that builds wheels by itself")


@pytest.fixture(scope="module")
def installed(root, tmp_path_factory) -> Path:
    """A folder of packages with an installed pykaldist; made by pyproject.toml's build backend, as pip calls it."""
    tmp = tmp_path_factory.mktemp("wheel")
    shutil.copytree(root / "pykaldist", tmp / "source" / "pykaldist", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp / "source")
    program = f"from setuptools import build_meta; print(build_meta.build_wheel({str(tmp)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp / "source", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wheel = tmp / done.stdout.splitlines()[-1]
    assert wheel.name == f"pykaldist-{pykaldist.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp / "site")
    return tmp / "site"


def run(installed: Path, folder: Path, *command: str, **more: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_every_file_of_the_library(root, installed):
    files = {path.relative_to(root) for path in (root / "pykaldist").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert any(path.suffix == ".json" for path in files) and not {path for path in files if not (installed / path).is_file()}


def test_the_command_finds_its_data(installed, tmp_path):
    (entry,) = installed.glob("pykaldist-*.dist-info/entry_points.txt")
    assert "pykaldist = pykaldist.__main__:entry" in entry.read_text()
    program = "import sys, pykaldist.cli; print(pykaldist.__file__); sys.exit(pykaldist.cli.main())"
    words = ("simulate", "--ngpus", "1", "--clusters", "k20-infiniband")
    out = run(installed, tmp_path, sys.executable, "-c", program, *words)
    assert out.startswith(str(installed)) and "| k20-infiniband | local " in out


def test_scripts_run_beside_it(root, installed, tmp_path):
    shutil.copytree(root / "utils", tmp_path / "house" / "utils")
    shutil.copy(root / "path.sh", tmp_path / "house")
    program = f". {tmp_path}/house/path.sh && pykaldist --version && $PYKALDIST_PYTHON -c 'import pykaldist; print(pykaldist.__file__)'" \
              " && run.pl job.log echo done"
    out = run(installed, tmp_path, "bash", "-c", program, PYKALDIST_PYTHON=sys.executable).splitlines()
    assert out == [pykaldist.__version__, str(installed / "pykaldist" / "__init__.py")]
    (log,) = [path.read_text() for path in tmp_path.rglob("job.log")]
    assert "\ndone\n# Accounting" in log
    (stamp,) = (tmp_path / "house" / ".python-checked").iterdir()
    assert str(installed) in stamp.read_text().splitlines()
    show = "from pykaldist.environment import needed; print(needed())"
    assert run(installed, tmp_path, sys.executable, "-c", show).strip() == str(needed())
