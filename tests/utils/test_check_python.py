"""PYKALDIST_PYTHON: a Python of the user's own is looked at once, and what it lacks is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from projects import bare_path, copy_project, environment, program

from pykaldist.environment import needed, release


def package(site: Path, name: str, version: str) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def site(tmp_path):
    """A folder of packages, with all that is needed."""
    for name, oldest in needed().items():
        package(tmp_path / "site", name, f"{oldest or '1.0'}+local")
    return tmp_path / "site"


@pytest.fixture
def source(tmp_path, site):
    """`source(**environment)`: path.sh in a shell, where PYKALDIST_PYTHON has the standard library and `site`, and notes its calls."""
    project, tools = copy_project(tmp_path / "project"), bare_path(tmp_path / "bin")
    own = program(tmp_path / "own" / "python",
                  f'echo "$*" >> {tmp_path}/calls; PYTHONPATH=$PYTHONPATH:{site} exec {sys.executable} -S "$@"')

    def run(script: str = "true", **more: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "calls").write_text("")
        env = environment(tools, **{"PYKALDIST_PYTHON": str(own), **more})
        return subprocess.run(["bash", "-c", f". {project}/path.sh; {script}"], env=env, cwd=tmp_path, capture_output=True, text=True,
                              check=False)

    return run


def test_it_is_asked_once(source, tmp_path):
    assert source().stderr == "" and (tmp_path / "calls").read_text()
    done = source()
    assert (done.returncode, done.stderr, (tmp_path / "calls").read_text()) == (0, "", "")  # no process of it was started


def test_it_is_asked_again_when_its_packages_change(source, site, tmp_path):
    source()
    (site / "scipy-1.0+local.dist-info" / "METADATA").unlink()
    (site / "scipy-1.0+local.dist-info").rmdir()
    os.utime(site, (time.time() + 1,) * 2)  # a clock of files has ticks of some milliseconds
    done = source()
    assert done.returncode == 1 and " has no scipy; install with: " in done.stderr
    package(site, "scipy", "1.1")
    assert source().returncode == 0
    assert source().returncode == 0 and (tmp_path / "calls").read_text() == ""


def test_what_is_missing_or_too_old_is_one_sentence_each_time(source, site, tmp_path):
    for folder in site.iterdir():
        if folder.name.startswith(("torch-", "kaldilm-", "lhotse-")):
            folder.rename(tmp_path / folder.name)
    package(site, "torch", "2.3.1+cu118")
    for _ in range(2):
        done = source()
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr == (f"path.sh: ERROR: PYKALDIST_PYTHON={tmp_path}/own/python has no lhotse, kaldilm and has too old "
                               f"torch 2.3.1+cu118 (needs 2.4 or later); install with: "
                               f"uv pip install --python {sys.executable} 'torch>=2.4' lhotse kaldilm\n")


def test_a_module_without_metadata_will_do(source, site, tmp_path):
    (site / "kaldilm-1.0+local.dist-info").rename(tmp_path / "gone")
    (site / "kaldilm.py").write_text("raise RuntimeError('imported')\n")
    assert source().returncode == 0


def test_packages_on_pythonpath_count_and_reach_the_verbs(source, site, tmp_path):
    (site / "kaldilm-1.0+local.dist-info").rename(tmp_path / "gone")
    assert source().returncode == 1
    package(tmp_path / "module", "kaldilm", "1.15")
    done = source(f". {tmp_path}/project/path.sh; echo $PYTHONPATH", PYTHONPATH=f"{tmp_path}/module")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/project:{tmp_path}/module\n")
    (tmp_path / "project" / "pykaldist" / "__main__.py").write_text("import sys; print(sys.path)")
    assert f"'{tmp_path}/module'" in source("pykaldist report", PYTHONPATH=f"{tmp_path}/module").stdout


@pytest.mark.parametrize(("named", "words"), [
    ("{}/own", "is a folder; name the interpreter in it, as {}/own/bin/python."),
    ("own/python", "depends on the folder one is in; give its whole path."),
    ("{}/none", "is no program that can be run; correct the path, or unset it and .venv is made."),
    ("{}/old", "is Python 3.9.18, and 3.10 or later is needed; name another, or unset it and .venv is made."),
    ("bash", "does not run as a Python; correct the path, or unset it and .venv is made."),
])
def test_what_is_no_python_is_one_sentence(source, tmp_path, named, words):
    program(tmp_path / "old", 'if [ "$1" = -V ]; then echo Python 3.9.18; else exit 9; fi')
    done = source(PYKALDIST_PYTHON=named.format(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"path.sh: ERROR: PYKALDIST_PYTHON={named} {words}\n".replace("{}", str(tmp_path))


@pytest.mark.parametrize(("version", "numbers"),
                         [("2.13.0+cu128", (2, 13, 0)), ("2.4.0a0+git1", (2, 4, 0)), ("1.26", (1, 26)), ("git", ())])
def test_releases(version, numbers):
    assert release(version) == numbers
