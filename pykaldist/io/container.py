"""The format of pykaldist's own binary files (`final.pt`, checkpoints): a nested dict of tensors and plain values behind a checksum.

Layout: 8 bytes magic, 16 bytes BLAKE2b of the rest, then what torch.save wrote. Read with `weights_only=True`: nothing in a file is run.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open

MAGIC = b"PYKALD01"


def save(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write `state` atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    with atomic_open(path, "wb") as stream:
        stream.write(MAGIC + hashlib.blake2b(payload, digest_size=16).digest() + payload)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote, tensors on the CPU; raises UserError where the file is missing, foreign or damaged."""
    try:
        with named(path):
            content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; run the training stage that makes it.") from error
    if content[:8] != MAGIC:
        raise UserError(f"{path} is no pykaldist file (expected magic {MAGIC!r}, found {content[:8]!r}).")
    payload = content[24:]
    if hashlib.blake2b(payload, digest_size=16).digest() != content[8:24]:
        raise UserError(f"{path} is damaged: its checksum does not match; take an older checkpoint or train again.")
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
