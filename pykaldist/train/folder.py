"""The folder of an experiment, and what it says of its run.

`config.json` holds all options after defaults, versions, commit, checksums of inputs.
The same command run again in the same folder resumes. With any option or input changed that matters for the result, it starts clean, and
says so.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pykaldist
from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.frames.sampler import splice_statistics
from pykaldist.frames.store import FrameStore
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.parallel.launch.job import Job
from pykaldist.train.config import FORMAT, Config, read_config
from pykaldist.train.verification import FILE as VERIFIED
from pykaldist.train.verification import Store, Verification


def commit() -> str | None:
    """The commit of the checkout that runs, with `+` behind it where tracked files were changed. None outside of a checkout."""
    root = Path(pykaldist.__file__).parent.parent
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def versions() -> dict[str, str]:
    """The versions of all software that a result depends on. `baseline` is there in the deterministic mode."""
    found = {"pykaldist": pykaldist.__version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    return {**found, "baseline": deterministic.BASELINE} if deterministic.enabled() else found


def open_stores(path: Path) -> tuple[FrameStore, FrameStore]:
    """Open the frame stores `path/train` and `path/dev`. Raises UserError where they belong to different systems."""
    train, dev = FrameStore(path / "train"), FrameStore(path / "dev")
    for field in ("dim", "num_pdfs", "target_dim"):
        one, other = getattr(train.manifest, field), getattr(dev.manifest, field)
        if one != other:
            raise UserError(f"{path}: train has {field} {one}, dev {other}; pack both with the same features and alignment model "
                            "(steps/nnet/pack.sh).")
    return train, dev


def spliced_mean_and_scale(job: Job, train: FrameStore, splice: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """`splice_statistics` of a store, which the first process alone reads for that; the others get them from it."""
    both = torch.zeros(2 * len(splice) * train.manifest.dim)
    if job.first or job.host.guest:
        torch.cat(splice_statistics(train, splice), out=both)
    both = both.to(job.device)
    job.host.processes.sum(both, 1.0)
    shift, scale = both.cpu().chunk(2)
    return shift.clone(), scale.clone()


def prepared(job: Job, exp: Path, config: dict[str, Any], notes: dict[str, Any], made: tuple[str, ...], result: str,
             stores: tuple[FrameStore, ...], beside: Sequence[Store] = ()) -> Verification | None:
    """Prepare `exp`, in the first process of a job. Returns None in all processes where there is nothing to do.

    Otherwise it returns the comparison of the stores with their checksums, which has begun, in the first process; it is to be finished
    before the result is written.

    Afterwards `exp` is empty, or holds the beginning of this very run: of the run with this `config`, or one that differs only in the
    number of workers and has not ended. `notes` are written to config.json, too. `made` are patterns of the files and folders that a run
    makes, `result` is the last of these. `beside`: stores that are read beside the frame stores.
    """
    ready, verification = False, Verification()
    if job.first:
        begun = _prepare_folder(exp, config, notes, made, result)
        ready = (exp / result).is_file()
        if ready:
            print(f"{exp}/{result} is already there, made with these options; nothing to do.")
        else:
            provenance.check(stores[0].path.parent, inputs=not begun)  # a run that has begun goes on, whatever became of the features
            for other in beside:
                provenance.check(other.path, inputs=not begun)
            verification = Verification((*stores, *beside), exp / VERIFIED)
            verification.start()
    return None if job.host.total([float(ready)])[0] else verification


def _prepare_folder(exp: Path, config: dict[str, Any], notes: dict[str, Any], made: tuple[str, ...], result: str) -> bool:
    """Remove the run of another configuration, and write config.json; returns whether this very run has begun already."""
    path = exp / "config.json"
    if path.is_file():
        before = dataclasses.asdict(read_config(exp))
        differing = {key for key, value in config.items() if before[key] != value}
        if not differing:
            return any((exp / "ckpt").glob("*.ckpt"))
        if differing == {"ngpu"} and not (exp / result).is_file():
            print(f"{exp} holds a run of {before['ngpu']} workers; going on with {config['ngpu']}.", file=sys.stderr)
        else:
            print(f"{exp} holds a run with other options or data; starting clean.", file=sys.stderr)
            for old in (p for pattern in (*made, VERIFIED) for p in exp.glob(pattern)):
                if old.is_dir():
                    shutil.rmtree(old)
                else:
                    old.unlink()
    described = Config(format=FORMAT, **config, **notes, host=platform.node(), commit=commit(),
                       started=time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    write_text(path, json.dumps(dataclasses.asdict(described), indent=1) + "\n")
    return False
