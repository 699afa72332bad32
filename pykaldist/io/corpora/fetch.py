"""Fetching public corpora: archives (tarballs, Debian packages) and git repositories, checked, without root.

What is fetched appears whole under its name or not at all. A download that broke off is kept, in `.fetch-<name>` beside the target, and
goes on there when the fetch is made again. A folder that a fetch has made has a file `.fetched` with the checksums of what was fetched, and
the size of every file that came of it. A folder without one, or with anything that it does not list, is the user's, and never replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.corpora.debian import SCHEME, NoPackageError, package_url
from pykaldist.io.corpora.unpack import UnsoundArchive, unpack
from pykaldist.progress import Progress

TIMEOUT_S = 60
POLL_S = 0.05
BLOCK = 1 << 18
MARK, APT = ".fetched", "apt"
BREAKS = 5
"""A download may break off so many times without a byte more before it is given up."""


class Unreachable(UserError):
    """The error of a source that could not be read, or gave something else; another source may be tried."""


@dataclass(frozen=True)
class Archive:
    """A file to download and unpack: its addresses, of which the first that works is used, its size in bytes and its SHA-256.

    An address `apt:NAME` is that of the Debian package NAME on the machine's mirror (debian.py). Without `sha256` (where its publisher
    gives none) only the archive's own checks are made. It is unpacked in the folder `into` of the target; a `plain` file is left as it is.
    """

    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    into: str = "."
    plain: bool = False

    @property
    def name(self) -> str:
        name = self.urls[0].rsplit("/", 1)[-1]
        return f"{name.removeprefix(SCHEME)}.deb" if name.startswith(SCHEME) else name


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _refuse_foreign(target: Path) -> None:
    """Raise UserError where `target` is there, or has something in it, that no fetch has made."""
    if not target.is_symlink() and (not target.exists() or (target.is_dir() and not any(target.iterdir()))):
        return
    what = str(target)
    if not target.is_symlink() and (target / MARK).is_file():
        listed = set((target / MARK).read_text(encoding="utf-8", errors="replace").splitlines())
        foreign = next((line for line in _listing(target) if line not in listed), None)
        if foreign is None:
            return
        what = str(target / foreign.partition("  ")[2])
    raise UserError(f"{what} is there already, and no fetch has made it, so it is left as it is; {target} lacks what was looked for. "
                    "Move it away, or name the corpus's folder with --corpus.")


def _listing(folder: Path) -> list[str]:
    """A line for every file below a folder, its size and its name, without what git keeps for itself; a link has the size `link`."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not (name == ".git" and root == str(folder))]
        for path in (Path(root, name) for name in (*names, *folders)):
            if path.is_symlink() or not path.is_dir():
                found.append(f"{'link' if path.is_symlink() else path.stat().st_size}  {path.relative_to(folder)}")
    return sorted(line for line in found if not line.endswith(f"  {MARK}"))


def _install(made: Path, target: Path, contents: str) -> None:
    """Move a finished folder to its name, in the place of one fetched before, which is removed when the new one stands there."""
    write_text(made / MARK, contents + "".join(f"{line}\n" for line in _listing(made)))
    _refuse_foreign(target)
    before = made.with_name("before")
    if target.exists():
        os.replace(target, before)
    try:
        os.replace(made, target)
    except BaseException:
        if before.exists():
            os.replace(before, target)
        raise
    if before.exists():
        shutil.rmtree(before)


def fetch_archives(archives: Sequence[Archive], target: str | os.PathLike[str]) -> None:
    """Download, check and unpack `archives` below `target`; downloads that broke off go on where they were.

    Raises Unreachable where one cannot be had, is damaged or is not the one expected, and UserError where `target` is not a fetch's.
    """
    target = Path(target).absolute()
    _refuse_foreign(target)
    downloads = target.parent / f".fetch-{target.name}"
    if downloads.is_symlink():
        raise UserError(f"{downloads} is a link, where downloads are to be kept; remove it.")
    downloads.mkdir(parents=True, exist_ok=True)
    files = [_download(archive, downloads) for archive in archives]
    with tempfile.TemporaryDirectory(dir=downloads, prefix="unpack-") as temporary:
        made = Path(temporary) / "made"
        for archive, file in zip(archives, files, strict=True):
            (made / archive.into).mkdir(parents=True, exist_ok=True)
            if archive.plain:
                shutil.copyfile(file, made / archive.into / archive.name)
                continue
            try:
                unpack(file, made / archive.into)
                if not any(path.is_file() for path in (made / archive.into).rglob("*")):
                    raise UnsoundArchive("it has no files")
            except UnsoundArchive as error:
                file.unlink()
                raise Unreachable(f"{archive.name} of {archive.urls[0]} is no sound archive ({error})") from error
        _install(made, target, "".join(f"{_sha256(file)}  {file.name}\n" for file in files))
    for file in files:
        file.unlink()
    shutil.rmtree(downloads / APT, ignore_errors=True)
    with contextlib.suppress(OSError):  # what else is there, parts of other downloads or somebody's files, is left
        downloads.rmdir()


def _download(archive: Archive, folder: Path) -> Path:
    """The checked file, in `folder`; Unreachable says for each address why it has not come."""
    refusals = []
    for url in archive.urls:
        try:
            return _download_from(url, archive, folder)
        except Unreachable as refusal:
            refusals.append(str(refusal))
    raise Unreachable("; ".join(refusals))


def _download_from(url: str, archive: Archive, folder: Path) -> Path:
    path, part = folder / archive.name, folder / f"{archive.name}.part"
    if path.is_file():  # of an earlier run, and perhaps damaged since
        if not _wrong(path, archive):
            return path
        path.unlink()
    resumed = part.is_file() and part.stat().st_size > 0
    address = _address(url, folder)
    _say(f"fetching {url}" + (f", from {part.stat().st_size} bytes on" if resumed else "") + " ...")
    _continue(address, part, archive.size)
    found = _wrong(part, archive)
    if found and resumed:  # perhaps what was left from another time did not belong to it
        part.unlink()
        _say(f"{archive.name} {found}; fetching it once more from its start ...")
        _continue(address, part, archive.size)
        found = _wrong(part, archive)
    if found:
        part.unlink()
        raise Unreachable(f"{url} {found}: it was damaged on the way, or is another version")
    os.replace(part, path)
    return path


def _address(url: str, folder: Path) -> str:
    """What to open: `url`, or what it stands for; Unreachable where it stands for nothing."""
    if not url.startswith(SCHEME):
        return url
    try:
        return package_url(url.removeprefix(SCHEME), folder / APT)
    except NoPackageError as error:
        raise Unreachable(f"{url} cannot be found ({error})") from error


def _wrong(path: Path, archive: Archive) -> str:
    """What is wrong with a whole download, if anything."""
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        return f"has {size} bytes, expected {archive.size}"
    if archive.sha256 is not None and (found := _sha256(path)) != archive.sha256:
        return f"has the SHA-256 {found}, expected {archive.sha256}"
    return ""


def _continue(url: str, part: Path, size: int | None) -> None:
    """Download the rest of `part`, over as many connections as that takes."""
    breaks = 0
    with Progress("downloading", size, "B") as bar:
        if part.exists():
            bar.update(part.stat().st_size)
        while True:
            have = part.stat().st_size if part.exists() else 0
            try:
                if _receive(url, part, have, bar.update):
                    return
                reason = "the connection was closed"
            except urllib.error.HTTPError as error:
                if error.code == 416 and have:  # no such range: whole already, or not of this file
                    return
                raise Unreachable(f"{url} cannot be reached ({error.reason})") from error
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", None) or error)
            now = part.stat().st_size if part.exists() else 0
            if now == 0:
                raise Unreachable(f"{url} cannot be reached ({reason})")
            breaks = breaks + 1 if now <= have else 0
            if breaks >= BREAKS:
                raise Unreachable(f"{url} broke off after {now} of {size or 'an unknown number of'} bytes ({reason}); they are kept, "
                                  "and the next run goes on from there")


def _receive(url: str, part: Path, have: int, count: Callable[[int], None]) -> bool:
    """Append to `part` what one connection brings after its first `have` bytes; whether it is whole now."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as source:
        total, length = None, source.headers.get("Content-Length")
        ranges = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", source.headers.get("Content-Range") or "")
        if getattr(source, "status", None) == 206 and ranges and int(ranges[1]) == have:
            total = None if ranges[2] == "*" else int(ranges[2])
        else:  # the server ignores ranges: from the start
            count(-have)
            have, total = 0, int(length) if length else None
        with open(part, "r+b" if have else "wb") as stream:
            stream.seek(have)
            while block := source.read(BLOCK):
                stream.write(block)
                count(len(block))
                have += len(block)
    return total is None or have >= total


def fetch_git(url: str, commit: str, target: str | os.PathLike[str]) -> None:
    """Check out a commit of a git repository at `target`; git checks what it fetches by the commit's hash.

    Raises Unreachable where that fails, and UserError where `target` is not a fetch's.
    """
    target = Path(target).absolute()
    _refuse_foreign(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temporary:
        _say(f"fetching {url} ...")
        made = Path(temporary) / "clone"
        for command in (["init", "--quiet", str(made)], ["-C", str(made), "fetch", "--quiet", "--depth", "1", url, commit],
                        ["-C", str(made), "checkout", "--quiet", "FETCH_HEAD"]):
            _run(["git", *command], Path(temporary), "cloning")
        _install(made, target, f"{commit}  {url}\n")


def _run(command: Sequence[str], folder: Path, what: str) -> None:
    """Run a command that fills `folder`, its working directory; raises Unreachable with the last thing it said."""
    if shutil.which(command[0]) is None:
        raise Unreachable(f"there is no {command[0]} on this machine: apt-get install {command[0]}")
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
