"""Set-up: which Python it takes, how it installs, and its sentences where it cannot."""

from __future__ import annotations

import errno
import subprocess
import sys
import types
from pathlib import Path

import pytest
from projects import bare_path, copy_project, environment, program

from pykaldist import setup_venv
from pykaldist.setup_venv import SetupError, check_machine, machine, pip_settings, sentence

# A Python of some version: it fits or not, can make environments or not, and a set-up by it makes a .venv that knows its name.
PYTHON = """case "$*" in
  -V) echo "Python {version}" ;;
  *version_info*) exit {misfit} ;;
  *ensurepip*) exit {no_venv} ;;
  "-m pykaldist.setup_venv "*) mkdir -p "$PYTHONPATH/.venv/bin"; ln -s "$0" "$PYTHONPATH/.venv/bin/python"
    printf '%s\\n' "$3" "$4" > "$PYTHONPATH/.venv/made-from"; echo "set up by $0" ;;
esac"""


def python(path: Path, version: str = "3.12.1", misfit: int = 0, no_venv: int = 0) -> Path:
    return program(path, PYTHON.format(version=version, misfit=misfit, no_venv=no_venv))


@pytest.fixture
def project(tmp_path):
    return copy_project(tmp_path / "project")


@pytest.fixture
def tools(tmp_path):
    return bare_path(tmp_path / "bin")


def set_up(project: Path, tools: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([project / "utils" / "setup_venv.sh"], env=environment(tools, **more), capture_output=True, text=True,
                          check=False)


def test_the_first_python_that_fits_is_taken_and_then_it_is_quiet(project, tools):
    python(tools / "python3", "3.9.18", misfit=1)
    python(tools / "python3.12")
    python(tools / "python3.13")
    done = set_up(project, tools)
    assert done.returncode == 0 and done.stdout == f"set up by {tools}/python3.12\n"
    assert "with Python 3.12.1 (once" in done.stderr and ".venv is ready" in done.stderr
    for name in ("python3", "python3.12", "python3.13"):
        (tools / name).unlink()
    python(project / ".venv" / "python")  # what .venv/bin/python leads to
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to(project / ".venv" / "python")
    again = set_up(project, tools)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")  # which needs no Python


def test_a_python_that_cannot_make_environments_gives_way(project, tools):
    python(tools / "python3", no_venv=1)
    python(tools / "python3.13", "3.13.0")
    assert set_up(project, tools).stdout == f"set up by {tools}/python3.13\n"


def test_with_uv_it_need_not_give_way(project, tools):
    python(tools / "python3", no_venv=1)
    python(tools / "python3.13", "3.13.0")
    program(tools / "uv", "exit 1")
    assert set_up(project, tools).stdout == f"set up by {tools}/python3\n"


def test_uv_is_asked_for_a_python_where_path_has_none(project, tools, tmp_path):
    known = python(tmp_path / "uv" / "python3.12")
    program(tools / "uv", f'[ "$*" = "python find >=3.10,<3.15" ] && echo {known}')
    assert set_up(project, tools).stdout == f"set up by {known}\n"


def test_the_python_that_is_named_is_taken(project, tools, tmp_path):
    python(tools / "python3")
    mine = python(tmp_path / "mine" / "python", "3.14.0")
    done = set_up(project, tools, PYKALDIST_SETUP_PYTHON=str(mine))
    assert done.returncode == 0 and done.stdout == f"set up by {mine}\n"
    assert set_up(project, tools, PYKALDIST_SETUP_PYTHON=str(mine)).stdout == ""
    assert set_up(project, tools).stdout == ""  # what is there will do
    (project / ".venv" / "bin" / "python").unlink()
    assert set_up(project, tools, PYKALDIST_SETUP_PYTHON="python3").stdout == f"set up by {tools}/python3\n"


def test_a_venv_whose_python_has_gone_or_whose_list_has_changed_is_made_anew(project, tools):
    python(tools / "python3.12")
    assert set_up(project, tools).stdout and not set_up(project, tools).stdout
    (project / ".venv" / "bin" / "python").unlink()
    assert set_up(project, tools).stdout
    (project / ".venv" / "bin" / "python").unlink()
    (project / "requirements.txt").write_text("numpy\n")
    assert set_up(project, tools).stdout and not set_up(project, tools).stdout


def test_an_activated_venv_is_not_made_anew_by_its_own_python(project, tools):
    python(project / ".venv" / "bin" / "python3")
    python(tools / "python3")
    assert set_up(project, tools, PATH=f"{project}/.venv/bin:{tools}").stdout == f"set up by {tools}/python3\n"


@pytest.mark.parametrize(("pythons", "named", "words"), [
    ({}, "", "a Python from 3.10 to 3.14 is needed and there is none on PATH; install one (Debian, Ubuntu: apt-get install python3 "),
    ({"python3": "3.9.18"}, "", "there is none on PATH (python3 is Python 3.9.18); install one"),
    ({"python3": "3.15.0", "python3.10": "3.9.2"}, "", "(python3 is Python 3.15.0, python3.10 is Python 3.9.2); install one"),
    ({"python3": "3.15.0"}, "python3", "PYKALDIST_SETUP_PYTHON=python3 must be a Python from 3.10 to 3.14 (python3 is Python 3.15.0);"),
    ({}, "python3.12", "PYKALDIST_SETUP_PYTHON=python3.12 must be a Python from 3.10 to 3.14 (it does not run); name another"),
])
def test_no_python_that_fits_is_one_sentence(project, tools, pythons, named, words):
    for name, version in pythons.items():
        python(tools / name, version, misfit=1)
    done = set_up(project, tools, **({"PYKALDIST_SETUP_PYTHON": named} if named else {}))
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("setup_venv.sh: ERROR: ") and words in done.stderr
    assert not (project / ".venv").exists()


GOOD = {"system": "Linux", "machine": "x86_64", "bits": "64", "libc": "glibc 2.36", "python": "CPython"}


def test_this_machine_will_do():
    assert machine() == {**GOOD, "libc": machine()["libc"]}
    check_machine(machine())


@pytest.mark.parametrize(("change", "words"), [
    ({"machine": "aarch64"}, "for Linux on x86_64, and this is Linux on aarch64 (64 bits); make an environment of your own, and name its"),
    ({"system": "Darwin", "machine": "arm64"}, "this is Darwin on arm64"),
    ({"bits": "32"}, "(32 bits)"),
    ({"python": "PyPy"}, "is PyPy, and the packages of requirements.txt are for CPython; name another Python in PYKALDIST_SETUP_PYTHON."),
    ({"python": "CPython without the GIL"}, "is CPython without the GIL"),
    ({"libc": "glibc 2.17"}, "need glibc 2.28 or later, and this system has glibc 2.17; use a newer system"),
    ({"libc": "another C library (musl)"}, "this system has another C library (musl)"),
])
def test_machines_without_wheels_are_named(change, words):
    with pytest.raises(SetupError, match=r"\.$") as refused:
        check_machine({**GOOD, **change})
    assert words in str(refused.value)


PIP_UNREACHABLE = """WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by
'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused')': /numpy/
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.6
"""  # noqa: E501  # as pip has it


@pytest.mark.parametrize(("log", "words"), [
    (PIP_UNREACHABLE, "no package index can be reached; check the network"),
    ("error: Failed to fetch: `https://x/torch/`\n  Caused by: error sending request\n  Caused by: dns error", "no package index can"),
    ("ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: 2.2.5, 2.2.6)\n"
     "ERROR: No matching distribution found for numpy==2.4.6", f"has no numpy==2.4.6 for Python 3.{sys.version_info[1]}, or could not be"),
    ("  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of numpy==2.4.6 and", "has no numpy==2.4.6"),
    ("error: No solution found\n  cause: Because numpy==2.4.6 has no usable wheels and you require", "has no numpy==2.4.6"),
    ("error: No solution found\n  cause: Because kaldilm==1.15.5 has no wheels with a matching Python ABI tag", "has no kaldilm==1.15.5"),
    ("error: No solution found\n  cause: Because kaldilm was not found in the package registry and you", "has no kaldilm for"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "no space is left on the disk; set-up"),
    ("error: Failed to install: torch\n  Caused by: No space left on device (os error 28)", "no space is left on the disk; set-up needs"),
    ("ERROR: Could not install packages due to an OSError: [Errno 122] Disk quota exceeded", "the disk quota is reached"),
    ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate", "in PIP_CERT"),
    ("PermissionError: [Errno 13] Permission denied: '/opt/x/.venv'", "no permission to write /opt/x/.venv; clone"),
    ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='x', port=443): Read timed out.", "the download broke off"),
    ("ERROR: ResolutionImpossible: for help visit", "exclude each other"),
    ("something\nERROR: a thing that nobody has seen.\n", "could not be installed (ERROR: a thing that nobody has seen)"),
    ("", "could not be installed (no output)"),
])
def test_what_an_installer_says_becomes_a_sentence(log, words, tmp_path):
    found = sentence(log, tmp_path)
    assert words in found and len(found.splitlines()) == 1 and "{" not in found


def test_full_disks_are_told_where_and_what(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/scratch")
    assert all(word in sentence(f"[Errno {errno.ENOSPC}] x", tmp_path) for word in (str(tmp_path), "/scratch", "GB"))


def test_uv_is_told_the_indices_that_pip_is(monkeypatch):
    listing = (":env:.find-links='/wheels'\n:env:.disable-pip-version-check='1'\nglobal.extra-index-url='file:///a/simple https://b/simple'\n"
               "global.find-links='/wheels'\nglobal.index-url='https://c/simple'\nglobal.timeout=x\n")
    monkeypatch.delenv("UV_INDEX", raising=False)
    wanted = {"UV_FIND_LINKS": "/wheels", "UV_INDEX": "file:///a/simple https://b/simple", "UV_DEFAULT_INDEX": "https://c/simple",
              "UV_INDEX_STRATEGY": "unsafe-best-match"}
    for name in wanted:
        monkeypatch.delenv(name, raising=False)
    assert pip_settings(listing) == wanted
    monkeypatch.setenv("UV_INDEX", "https://mine")
    assert "UV_INDEX" not in pip_settings(listing)
    assert pip_settings("") == {}


# An interpreter whose venv and pip are recorded; pip fails where $root/fail-pip has words to say.
MAKER = """root={}
echo "$*" >> "$root/calls"
case "$*" in
  "-m pip config list") echo "global.find-links='/wheels'" ;;
  "-m venv "*) mkdir -p "${{@: -1}}/bin"; ln -s "$0" "${{@: -1}}/bin/python" ;;
  *"pip "*"install"*) [ ! -e "$root/fail-pip" ] || {{ cat "$root/fail-pip" >&2; exit 1; }} ;;
esac"""
UV = """root=$(dirname "$0"); echo "uv $* $UV_FIND_LINKS" >> "$root/calls"
case "$1" in venv) mkdir -p "${@: -1}" ;; pip) [ ! -e "$root/fail-uv" ] || { cat "$root/fail-uv" >&2; exit 2; } ;; esac"""


@pytest.fixture
def maker(tmp_path, tools, monkeypatch):
    """A project's root, where set-up is run by an interpreter that is a script."""
    monkeypatch.setattr(sys, "executable", str(program(tools / "maker", MAKER.format(tools))))
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    return tmp_path


def test_pip_makes_it_where_there_is_no_uv(maker, tools):
    setup_venv.make("root 1 2", "python3.12", maker)
    assert (maker / ".venv" / "made-from").read_text() == "root 1 2\npython3.12\n" and not (maker / ".venv.log").exists()
    assert [line.split()[1] for line in (tools / "calls").read_text().splitlines()] == ["venv", "pip"]


def test_uv_makes_it_where_it_is_installed(maker, tools):
    program(tools / "uv", UV)
    setup_venv.make("root 1 2", "", maker)
    assert (maker / ".venv" / "made-from").read_text() == "root 1 2\n\n"
    calls = (tools / "calls").read_text().splitlines()
    assert calls[0] == "-m pip config list" and calls[1].startswith("uv venv ")
    assert calls[2].startswith("uv pip install --python ") and calls[2].endswith("requirements.txt /wheels") and len(calls) == 3


def test_pip_makes_it_where_uv_cannot(maker, tools, capfd):
    program(tools / "uv", UV)
    (tools / "fail-uv").write_text("error: dns error\n")
    setup_venv.make("root 1 2", "", maker)
    assert (tools / "calls").read_text().splitlines()[-1].split()[:3] == ["-m", "pip", "install"]
    assert "uv could not: no package index can be reached" in capfd.readouterr().err and (maker / ".venv" / "made-from").exists()


def test_without_ensurepip_it_is_this_pythons_pip(maker, tools, monkeypatch):
    find_spec = setup_venv.importlib.util.find_spec
    monkeypatch.setattr(setup_venv.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find_spec(name))
    setup_venv.make("root 1 2", "", maker)
    calls = (tools / "calls").read_text().splitlines()
    assert calls[0] == f"-m venv --without-pip {maker}/.venv"
    assert calls[1].startswith(f"-m pip --python {maker}/.venv/bin/python install ")


def test_without_pip_or_uv_it_is_one_sentence(maker, monkeypatch):
    monkeypatch.setattr(setup_venv.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"has no pip, or cannot make virtual environments; install them \(Debian, Ubuntu: apt-get"):
        setup_venv.make("root 1 2", "", maker)


def test_too_little_space_is_said_before_anything_is_fetched(maker, tools, monkeypatch):
    monkeypatch.setattr(setup_venv.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=0.4e9))
    with pytest.raises(SetupError, match=r"^0.4 GB are free on the disk of .*, and set-up needs 6 GB with"):
        setup_venv.make("root 1 2", "", maker)
    assert not (tools / "calls").exists()


def test_its_own_python_cannot_make_it(maker, tools, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(maker / ".venv"))
    with pytest.raises(SetupError, match=r"is the Python of the .venv that is made anew"):
        setup_venv.make("made", "", maker)


def test_what_fails_leaves_a_sentence_and_a_log_and_no_venv(maker, tools):
    (tools / "fail-pip").write_text("ERROR: No matching distribution found for kaldilm==1.15.5\n")
    with pytest.raises(SetupError, match=r"has no kaldilm==1.15.5 for Python .*\(The installer's own words: .*/\.venv\.log\)"):
        setup_venv.make("root 1 2", "", maker)
    assert not (maker / ".venv").exists() and "kaldilm" in (maker / ".venv.log").read_text()
