"""The memory of this process: what it has freed goes back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Have freed memory returned to the system, which the C library would keep: that of many small pieces, and of threads of their own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
