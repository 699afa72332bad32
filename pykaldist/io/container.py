"""The format of pykaldist's own binary files (`final.pt`, checkpoints): a nested dict of tensors and plain values behind a checksum.

Layout: 8 bytes magic, 16 bytes BLAKE2b of the rest, then what torch.save wrote. It is read with `weights_only=True`, which makes tensors
and plain values and calls nothing else. Forms that torch.save does not write, and that PyTorch before 2.6 would read without this guard
(the old one that is no zip archive, TorchScript programs), are refused. The checksum finds damage; whoever makes a file on purpose can make
its checksum, too.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from pykaldist.errors import AGAIN, MADE, UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.io.magic import CONTAINER

TORCHSCRIPT = "constants.pkl"  # by which PyTorch knows a program


def save(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write `state` atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    with atomic_open(path, "wb") as stream:
        stream.write(CONTAINER + hashlib.blake2b(payload, digest_size=16).digest() + payload)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote, tensors on the CPU; raises UserError where the file is missing, foreign or damaged."""
    try:
        with named(path):
            content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {MADE}.") from error
    if content[:8] != CONTAINER:
        raise UserError(f"{path} is no pykaldist file (expected magic {CONTAINER!r}, found {content[:8]!r}).")
    payload = content[24:]
    if hashlib.blake2b(payload, digest_size=16).digest() != content[8:24]:
        raise UserError(f"{path} is damaged: its checksum does not match; take an older checkpoint or {AGAIN}.")
    foreign = f"{path} holds something else than tensors and plain values, and is not read; {AGAIN}."
    if not _as_saved(payload):
        raise UserError(foreign)
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, KeyError, EOFError) as error:
        raise UserError(foreign) from error
    if not isinstance(state, dict):
        raise UserError(foreign)
    return state


def _as_saved(payload: bytes) -> bool:
    """True for a zip archive as torch.save writes it: nothing in it is compressed, and it is no TorchScript program."""
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            parts = archive.infolist()
    except zipfile.BadZipFile:
        return False
    return all(part.compress_type == zipfile.ZIP_STORED and PurePosixPath(part.filename).name != TORCHSCRIPT for part in parts)
