"""Checkpoints: whole or not there, the last k kept, chosen by number; a damaged one is passed over with a warning."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io import container


class Checkpoints:
    """Files `<updates>.ckpt` in a folder, of which the newest `keep` stay."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        self.path, self.keep = path, keep

    def files(self) -> list[Path]:
        """Oldest first."""
        found = [p for p in self.path.glob("*.ckpt") if re.fullmatch(r"\d+", p.stem)]
        return sorted(found, key=lambda p: int(p.stem))

    def save(self, updates: int, state: dict[str, Any]) -> None:
        container.save(self.path / f"{updates:09d}.ckpt", state)
        for old in self.files()[: -self.keep]:
            old.unlink()

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, or None."""
        for path in reversed(self.files()):
            try:
                return container.load(path)
            except UserError as error:
                print(f"WARNING: {error} Going back to the one before.", file=sys.stderr)
        return None

    def clear(self) -> None:
        for path in self.path.glob("*.ckpt"):
            path.unlink()
