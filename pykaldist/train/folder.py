"""What an experiment's folder says of its run: `config.json`, every option after defaults, versions, commit, checksums of its inputs.

The same command run again in the same folder resumes; with anything changed that bears on the result it starts clean, and says so.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pykaldist
from pykaldist.errors import UserError
from pykaldist.frames.store import FrameStore
from pykaldist.io.atomic import write_text


def commit() -> str | None:
    """The commit of the checkout that runs, `+` behind it where tracked files were changed; None outside of one."""
    root = Path(pykaldist.__file__).parent.parent
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    return {"pykaldist": pykaldist.__version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


def open_stores(path: Path) -> tuple[FrameStore, FrameStore]:
    """`path/train` and `path/dev`; raises UserError where they are of different systems."""
    train, dev = FrameStore(path / "train"), FrameStore(path / "dev")
    for field in ("dim", "num_pdfs", "target_dim"):
        one, other = getattr(train.manifest, field), getattr(dev.manifest, field)
        if one != other:
            raise UserError(f"{path}: train has {field} {one}, dev {other}; pack both with the same features and alignment model.")
    return train, dev


def prepare_folder(exp: Path, config: dict[str, Any], notes: dict[str, Any], made: tuple[str, ...]) -> None:
    """Leave in `exp` nothing, or the beginning of this very run: the one with this `config`.

    `notes` stand in config.json beside it; `made` are patterns of the files and folders that a run with another config has left.
    """
    path = exp / "config.json"
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        if all(before.get(key) == value for key, value in config.items()):
            return
        print(f"{exp} holds a run with other options or data; starting clean.", file=sys.stderr)
        for old in (p for pattern in made for p in exp.glob(pattern)):
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink()
    described = {**config, **notes, "host": platform.node(), "commit": commit(), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    write_text(path, json.dumps(described, indent=1) + "\n")
