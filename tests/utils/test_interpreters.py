"""Pins for every Python, and the command that tries each."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from projects import ROOT, bare_path, environment, program

from pykaldist.environment import needed, release

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def interpreters() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interpreters", ROOT / "tests" / "interpreters.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["interpreters"] = module
    spec.loader.exec_module(module)
    return module


def test_every_python_has_one_pin_of_every_package():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = [Requirement(line) for line in lines]
    for version in VERSIONS:
        here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_version": version})]
        assert len({pin.name for pin in here}) == len(here) and {pin.name for pin in here} == {pin.name for pin in pins}
        exact = {pin.name: str(pin.specifier) for pin in here}
        assert all(specifier.startswith("==") for specifier in exact.values())
        assert all(release(exact[name][2:]) >= release(oldest) for name, oldest in needed().items())


def test_the_versions_are_the_same_everywhere(interpreters):
    assert interpreters.VERSIONS == VERSIONS
    project, setup, readme = ((ROOT / name).read_text() for name in ("pyproject.toml", "utils/setup_venv.sh", "README.md"))
    assert all(f'"Programming Language :: Python :: {version}"' in project for version in VERSIONS)
    assert f'requires-python = ">={VERSIONS[0]}"' in project
    assert "(3, 10) <= sys.version_info[:2] <= (3, 14)" in setup and "3.10 to 3.14" in readme


def stub(path: Path, version: str) -> Path:
    return program(path, f'case "$*" in *python_version*) echo {version} ;; *pykaldist.setup_venv*) echo no wheels >&2; exit 1 ;; esac')


def test_pythons_are_found_on_path_under_pyenv_and_by_uv(interpreters, tmp_path):
    tools = bare_path(tmp_path / "bin")
    stub(tools / "python3.12", "3.12.4")
    program(tools / "python3.11", "exit 127")  # a shim that leads nowhere
    stub(tools / "python3", "3.15.0")
    pyenv = stub(tmp_path / ".pyenv" / "versions" / "3.11.7" / "bin" / "python", "3.11.7")
    stub(tmp_path / ".pyenv" / "versions" / "3.12.1" / "bin" / "python", "3.12.1")
    known = stub(tmp_path / "uv-python", "3.14.2")
    program(tools / "uv", f'[ "$*" = "python list --only-installed" ] && echo "cpython-3.14.2-linux-x86_64-gnu    {known}"')
    found = interpreters.choose(interpreters.candidates(environment(tools, HOME=str(tmp_path))))
    assert found == {"3.12": ("3.12.4", str(tools / "python3.12")), "3.11": ("3.11.7", str(pyenv)), "3.14": ("3.14.2", str(known))}


def test_results_are_read_from_what_the_commands_left(interpreters, tmp_path):
    for system, rates in {"mono": {"best_wer": "10.50", "dev_chosen_wer": "10.99"}, "dnn": {"dev_chosen_wer": "9.89"}}.items():
        for name, rate in rates.items():
            path = tmp_path / "exp" / system / "decode" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"%WER {rate} [ 36 / 364, 5 ins, 7 del, 24 sub ] exp/{system}/decode/wer_9_0.0\n")
    assert interpreters.wers(tmp_path) == "dnn 9.89 %, mono 10.99 %"
    assert interpreters.summary("...\n=== 3 failed, 12 passed in 64.21s (0:01:04) ===\n") == "3 failed, 12 passed in 64.21s (0:01:04)"
    rows = [interpreters.Row("3.12.1", "recipe", 231.4, "dnn 9.89 %")]
    assert interpreters.table(rows, ["3.14"]).splitlines()[2:] == ["| 3.12.1 | recipe | 231 | dnn 9.89 % |",
                                                                   "Not on this machine: Python 3.14."]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a checkout without git cannot be cloned")
def test_a_set_up_that_fails_is_in_the_table_and_in_the_status(tmp_path):
    tools = bare_path(tmp_path / "bin")
    for tool in ("git", "sed"):
        (tools / tool).symlink_to(next(p for f in os.environ["PATH"].split(os.pathsep) if (p := Path(f) / tool).is_file()))
    python = stub(tmp_path / "python3.13", "3.13.7")
    command = [sys.executable, ROOT / "tests" / "interpreters.py", "--python", python, "--only", "3.13,3.14", "--out", tmp_path / "out"]
    done = subprocess.run(command, env=environment(tools, HOME=str(tmp_path)), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    log = tmp_path / "out" / "3.13.7.setup.log"
    seconds = done.stdout.splitlines()[2].split(" | ")[2]
    assert done.stdout.splitlines()[2:] == [f"| 3.13.7 | setup | {seconds} | FAILED (1): no wheels (log: {log}) |",
                                            "Not on this machine: Python 3.14."]
    assert "no wheels" in log.read_text() and (tmp_path / "out" / "table.md").read_text() == done.stdout
