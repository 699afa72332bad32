"""A copy of what set-up and path.sh need, and interpreters that are scripts, for tests of both."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ("path.sh", "pyproject.toml", "requirements.txt", "utils/setup_venv.sh", "utils/shared/check_python.sh", "utils/shared/guard.sh",
         "utils/shared/jobs_command.sh", "utils/pykaldist", "pykaldist/__init__.py", "pykaldist/setup_venv.py", "pykaldist/environment.py",
         *(f"pykaldist/jobs/{name}.py" for name in ("__init__", "__main__", "guard", "local", "wrapper")))
TOOLS = ("bash", "cksum", "dirname", "env", "flock", "readlink", "cat", "mkdir", "rm", "ln", "touch", "sleep")


def copy_project(folder: Path) -> Path:
    """The files that set-up and path.sh are made of, in a folder of their own."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def program(path: Path, body: str) -> Path:
    """A program that is a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)
    return path


def bare_path(folder: Path) -> Path:
    """A folder for PATH with the shell's tools and nothing else, no Python above all."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        found = shutil.which(tool)
        if found and not (folder / tool).exists():
            (folder / tool).symlink_to(found)
    return folder


def environment(path: Path, **more: str) -> dict[str, str]:
    """A shell's environment without this session's Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYKALDIST_", "PYTHON", "PIP_", "UV_"))}
    return {**kept, "PATH": str(path), "LC_ALL": "C.UTF-8", **more}
