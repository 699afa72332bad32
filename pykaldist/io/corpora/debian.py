"""Finds the address of a Debian package on the machine's mirror: it asks apt-get, needs no root, and installs nothing.

A machine whose own package lists are missing or old gets lists of its own below a folder, by `apt-get update`, the first time that a
package is not found.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

SCHEME = "apt:"  # apt:NAME is the address of package NAME, wherever the machine's mirror has it


class NoPackageError(Exception):
    """apt-get is missing, or does not know the package; says why."""


def package_url(package: str, folder: Path) -> str:
    """The address of a package on the machine's mirror; lists, if they have to be fetched, go to `folder`. Raises NoPackageError."""
    if shutil.which("apt-get") is None:
        raise NoPackageError("there is no apt-get on this machine")
    try:
        return _ask([], package)
    except NoPackageError:
        for part in ("lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", "-o", "Debug::NoLocking=1"]
        if not any(path.is_file() for path in (folder / "lists").iterdir()):
            _run(["apt-get", *own, "update"])
        return _ask(own, package)


def _ask(options: list[str], package: str) -> str:
    said = _run(["apt-get", *options, "download", "--print-uris", package])
    found = re.search(r"^'([^']+)' ", said, re.MULTILINE)
    if not found:
        raise NoPackageError(f"apt-get gives no address of {package}")
    return found[1]


def _run(command: list[str]) -> str:
    """What a command prints; NoPackageError with its last line where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise NoPackageError((done.stderr.strip().splitlines() or [f"apt-get ended with status {done.returncode}"])[-1])
    return done.stdout
