"""The first bytes by which pykaldist's own binary files are known; read without PyTorch."""

from __future__ import annotations

import os

CONTAINER = b"PYKALD01"


def is_container(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a final.pt or checkpoint of pykaldist."""
    with open(path, "rb") as stream:
        return stream.read(len(CONTAINER)) == CONTAINER
