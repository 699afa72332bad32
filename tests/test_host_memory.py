"""Freed memory goes back to the system, though what lies between is still used."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from pykaldist.host_memory import give_back

MB, PIECE = 1 << 20, 100_000  # bytes; the C library takes pieces below 128 KB from its heap


def resident() -> int:
    """The bytes of memory that this process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to give memory back")
def test_freed_memory_between_what_is_used_is_given_back() -> None:
    pieces = [np.ones(PIECE, np.uint8) for _ in range(1000)]
    kept, full = pieces[::10], resident()
    del pieces
    assert resident() > full - 20 * MB  # the last piece lies at the end of the heap
    give_back()
    assert resident() < full - 60 * MB and all(piece.all() for piece in kept)
