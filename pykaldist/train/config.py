"""`config.json` of an experiment's folder: what was run, where and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.io.schema import read_json

FORMAT = 1  # of an experiment's folder: config.json and history.jsonl


@dataclass
class Config:
    """What `config.json` holds: of a run, and of where and when it began."""

    format: int
    options: dict[str, Any]
    ngpu: int
    inputs: dict[str, Any]
    device: str
    versions: dict[str, str]
    checkpoints: dict[str, Any]
    store: str
    host: str
    commit: str | None
    started: str


def read_config(exp: Path) -> Config:
    """Read config.json of an experiment's folder; raises UserError where it does not fit."""
    cure = f"restore it; or, to begin again, remove {exp / 'ckpt'}, {exp / 'final.pt'} and this file"
    return read_json(exp / "config.json", Config, cure, FORMAT)
