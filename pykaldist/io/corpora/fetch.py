"""Fetching public corpora: Debian packages without root, tarballs, git repositories.

What is fetched appears whole under its name or not at all, so that an interrupted fetch is simply made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.progress import Progress

TIMEOUT_S = 60
POLL_S = 0.05


class Unreachable(UserError):
    """A source that could not be read; another may be tried."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(command: Sequence[str], folder: Path, what: str) -> None:
    """Run a command that fills `folder`, its working directory; raises Unreachable with the last thing it said."""
    if shutil.which(command[0]) is None:
        raise Unreachable(f"there is no {command[0]} on this machine")
    with tempfile.TemporaryFile("w+", errors="replace") as said, Progress(what, unit="B") as bar:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                bar.update(max(0, _size(folder) - bar.count))
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        lines = said.read().strip().splitlines()
    if process.returncode != 0:
        raise Unreachable(f"{command[0]} failed" + (f": {lines[-1]}" if lines else ""))


def _size(folder: Path) -> int:
    """Bytes of the files below `folder`, which may come and go meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total


def _install(made: Path, target: Path) -> None:
    """Move a finished folder to its name, in the place of an older one."""
    if target.exists():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(made, target)


def fetch_debs(packages: Sequence[str], target: str | os.PathLike[str]) -> None:
    """Unpack Debian packages below `target`, by the machine's package lists, else by lists of our own; no root, nothing installed.

    Raises Unreachable where apt-get or dpkg is missing or fails.
    """
    target = Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        work = Path(temporary)
        debs = work / "debs"
        for folder in (debs, work / "lists/partial", work / "cache/archives/partial", work / "unpacked"):
            folder.mkdir(parents=True)
        own = ["-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}/cache", "-o", "Debug::NoLocking=1"]
        _say(f"fetching the Debian packages {' '.join(packages)} ...")
        try:
            _run(["apt-get", "download", *packages], debs, "downloading")
        except Unreachable:
            _say("the machine's package lists do not have them; fetching lists ...")
            _run(["apt-get", *own, "update"], work, "package lists")
            _run(["apt-get", *own, "download", *packages], debs, "downloading")
        for deb in sorted(debs.glob("*.deb")):
            _run(["dpkg", "-x", str(deb), str(work / "unpacked")], work / "unpacked", "unpacking")
        _install(work / "unpacked", target)


def fetch_tarball(url: str, target: str | os.PathLike[str]) -> None:
    """Download a tarball and unpack it below `target`. Raises Unreachable where it cannot be had or is no sound tarball."""
    target = Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        archive, unpacked = Path(temporary) / "archive", Path(temporary) / "unpacked"
        _say(f"fetching {url} ...")
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as source, open(archive, "wb") as stream:
                size = int(source.headers.get("Content-Length") or 0)
                with Progress("downloading", size or None, "B") as bar:
                    while block := source.read(1 << 18):
                        stream.write(block)
                        bar.update(len(block))
            if size and archive.stat().st_size != size:
                raise Unreachable(f"{url} broke off after {archive.stat().st_size} of {size} bytes")
            _unpack(archive, unpacked)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise Unreachable(f"{url} cannot be reached ({getattr(error, 'reason', None) or error})") from error
        except (tarfile.TarError, EOFError) as error:
            raise Unreachable(f"{url} is no sound tarball ({error})") from error
        _install(unpacked, target)


def _unpack(archive: Path, folder: Path) -> None:
    """Regular files of a tarball, none of them outside of `folder`."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if member.isfile() and not path.is_absolute() and ".." not in path.parts:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with open(folder / path, "wb") as stream:
                    shutil.copyfileobj(tar.extractfile(member), stream)  # type: ignore[arg-type]  # a regular file has content


def fetch_git(url: str, target: str | os.PathLike[str]) -> None:
    """Clone the last state of a git repository to `target`. Raises Unreachable where that fails."""
    target = Path(target).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        _say(f"cloning {url} ...")
        _run(["git", "clone", "--quiet", "--depth", "1", url, f"{temporary}/clone"], Path(temporary), "cloning")
        _install(Path(temporary) / "clone", target)
