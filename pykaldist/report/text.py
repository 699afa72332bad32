"""Tables as text, which is valid Markdown, and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np


def markdown(table: list[list[str]]) -> str:
    """Write rows, of which the first is the head, as a Markdown table."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [table[0], ["-" * w for w in widths], *table[1:]]
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in lines)


def without_empty_columns(table: list[list[str]]) -> list[list[str]]:
    """The rows, of which the first is the head, without the columns that are empty below it."""
    kept = [i for i in range(len(table[0])) if any(row[i] for row in table[1:])]
    return [[row[i] for i in kept] for row in table]


def as_json(content: Any) -> str:
    """Write dataclasses, dictionaries, lists and numbers as JSON; what is no finite number is null."""
    return json.dumps(_plain(content), indent=1, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
