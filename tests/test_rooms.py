"""The house keeps its shape: rooms import only downwards, every verb has help, every script prints its usage."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pykaldist.cli import verbs

ROOMS = ["io", "feats", "hmm", "frames", "nnet", "optim", "parallel", "train", "decode", "score", "report", "cli"]
GROUND = {"deterministic", "errors", "kernels", "options", "progress", "scheduling", "environment", "setup_venv", "__init__", "__main__"}
PACKAGE = Path(__file__).resolve().parent.parent / "pykaldist"


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a module imports, wherever in the module the import stands."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module] if node.module != "pykaldist" else [f"pykaldist.{a.name}" for a in node.names]
        rooms |= {n.split(".")[1] for n in names if n.startswith("pykaldist.")}
    return rooms - GROUND - {"__version__"}


def test_every_file_stands_in_a_room() -> None:
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"} == set(ROOMS)
    assert {p.stem for p in PACKAGE.glob("*.py")} == GROUND


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_from_rooms_below(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for path in (PACKAGE / room).rglob("*.py"):
        assert imported_rooms(path) <= allowed, f"{path} imports from above"


@pytest.mark.parametrize("name", sorted(GROUND - {"__main__"}))
def test_the_ground_imports_no_room(name: str) -> None:
    assert not imported_rooms(PACKAGE / f"{name}.py")


@pytest.mark.parametrize(("verb", "help_line"), sorted(verbs().items()))
def test_every_verb_says_what_it_does(verb: str, help_line: str) -> None:
    assert len(help_line) > 10, f"pykaldist {verb} has no help line"
