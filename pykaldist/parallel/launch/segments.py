"""Shared memory of MPICH that outlives its job.

MPICH's processes of one machine meet in a segment of /dev/shm, whose name they make from the name of their job. MPI_Finalize removes it. A
process that is killed does not, and then the segment takes memory until the machine is started again. It can do worse: a later job whose
name gives the same number would find it, and take what is in it for its own.

So a process removes the names of its segments as soon as all have met (`unname`): memory without a name goes with the last process that has
it, however that ends. Only a job that is killed before that leaves something, and the next job removes it (`clear`).
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
NAME = re.compile(r"mpich_(shm|vci)_[0-9a-f]+_\d+")
MEETING_S = 3600.0  # processes that have not met by then have ended: nobody is still to open a segment of this age


def unname() -> None:
    """Remove the names of the segments that this process has. To be called when all processes of the machine have them."""
    for path, inode in _mapped(os.getpid()):
        with suppress(OSError):
            if path.stat().st_ino == inode:  # not another job's, which came after this name was removed
                path.unlink()


def clear(folder: Path = FOLDER) -> None:
    """Remove the segments of this user that no process has any more and that nobody is still to open."""
    left = {}
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                found = path.lstat()
                if NAME.fullmatch(path.name) and found.st_uid == os.getuid() and time.time() - found.st_mtime > MEETING_S:
                    left[found.st_ino] = path
    if not left:
        return
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        for _, inode in _mapped(pid, folder):
            left.pop(inode, None)
    for path in left.values():
        with suppress(OSError):
            path.unlink()


def _mapped(pid: int, folder: Path = FOLDER) -> list[tuple[Path, int]]:
    """The segments, and their inodes, that a process has mapped; none where it is another user's."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        found = {(Path(words[5]), int(words[4])) for line in lines if len(words := line.split(None, 5)) == 6}
        return [(path, inode) for path, inode in found if path.parent == folder and NAME.fullmatch(path.name)]
    return []
