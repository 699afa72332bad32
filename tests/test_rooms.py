"""The house keeps its shape: rooms, folders and modules import only downwards, every verb has help, every folder says what is inside."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from pykaldist.cli import verbs

ROOMS = ["io", "lm", "feats", "hmm", "frames", "nnet", "optim", "parallel", "train", "decode", "score", "report", "study", "serve",
         "programs", "cli"]
FOLDERS = {
    "parallel": ["fabric", "clusters", "strategies", "transport", "engines", "planning", "launch"],
    "hmm": ["lang", "tree", "gmm", "adaptation", "alignments", "training", "sgmm", "ivector", "import_ali", "chain"],
}
FOLDERS_OF_ROOMS = [(room, folder) for room, folders in FOLDERS.items() for folder in folders]
MOST_FILES = 13  # of a folder, __init__.py among them
GROUND = {"deterministic", "devices", "errors", "host_memory", "kernels", "options", "pieces", "progress", "scheduling", "environment",
         "setup_venv", "usage", "jobs", "interrupts", "cures", "__init__", "__main__"}
GROUND_FOLDERS = {"jobs"}  # those of it that are folders, which use nothing else of the ground
PACKAGE = Path(__file__).resolve().parent.parent / "pykaldist"


def module_name(path: Path) -> str:
    """The dotted name of a file of the package; a folder's `__init__.py` has the folder's."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def modules_in(source: str, modules: set[str]) -> set[str]:
    """Those of `modules` that a source imports, wherever the import stands: at the top, in a function, or under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in modules else node.module)
    return found & modules


IMPORTS = {name: modules_in(path.read_text(encoding="utf-8"), set(MODULES)) for name, path in MODULES.items()}


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports."""
    return {name.split(".")[1] for name in IMPORTS[module_name(path)] if "." in name} - GROUND


def circle(imports: dict[str, set[str]]) -> list[str]:
    """A circle of imports, the first module at its end again; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_file_stands_in_a_room() -> None:
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"} == {*ROOMS, *GROUND_FOLDERS}
    assert {p.stem for p in PACKAGE.glob("*.py")} == GROUND - GROUND_FOLDERS


@pytest.mark.parametrize("room", FOLDERS)
def test_every_file_of_a_large_room_stands_in_a_folder(room: str) -> None:
    assert {p.name for p in (PACKAGE / room).iterdir() if p.name != "__pycache__"} == {*FOLDERS[room], "__init__.py"}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_from_rooms_below(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for path in (PACKAGE / room).rglob("*.py"):
        assert imported_rooms(path) <= allowed, f"{path} imports from above"


@pytest.mark.parametrize(("room", "folder"), FOLDERS_OF_ROOMS)
def test_folders_import_only_from_folders_before_them(room: str, folder: str) -> None:
    later = [["pykaldist", room, other] for other in FOLDERS[room][FOLDERS[room].index(folder) + 1 :]]
    for path in (PACKAGE / room / folder).rglob("*.py"):
        wrong = [name for name in IMPORTS[module_name(path)] if name.split(".")[:3] in later]
        assert not wrong, f"{path} imports {wrong[0]}; the order in {room} is {', '.join(FOLDERS[room])}"


@pytest.mark.parametrize("name", sorted(GROUND - {"__main__"}))
def test_the_ground_imports_no_room(name: str) -> None:
    for path in (PACKAGE / name).rglob("*.py") if name in GROUND_FOLDERS else [PACKAGE / f"{name}.py"]:
        assert not imported_rooms(path)
        assert name not in GROUND_FOLDERS or all(one.startswith(f"pykaldist.{name}") for one in IMPORTS[module_name(path)])


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circle(IMPORTS)


def test_a_circle_is_found_wherever_its_imports_stand() -> None:
    modules = {"a", "a.b", "a.c"}
    sources = {
        "a": "",
        "a.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.c import C\n",
        "a.c": "def f():\n    from a import b\n",
    }
    assert set(circle({name: modules_in(source, modules) for name, source in sources.items()})) == {"a.b", "a.c"}
    assert not circle({name: modules_in(source, modules) for name, source in sources.items() if name != "a.c"})


@pytest.mark.parametrize("path", [p for p in sorted(PACKAGE.rglob("*")) if p.is_dir() and p.name != "__pycache__"],
                         ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_folder_says_what_is_inside(path: Path) -> None:
    file = path / "__init__.py"
    assert file.is_file(), f"{path} has no __init__.py"
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert len(text) > 10, f"{file} has no docstring"


@pytest.mark.parametrize(("room", "folder"), FOLDERS_OF_ROOMS)
def test_folders_stay_small(room: str, folder: str) -> None:
    for path in (PACKAGE / room / folder, *(p for p in (PACKAGE / room / folder).rglob("*") if p.is_dir() and p.name != "__pycache__")):
        count = len(list(path.glob("*.py")))
        assert count <= MOST_FILES, f"{path} has {count} Python files, {MOST_FILES} at most; divide it by question"


@pytest.mark.parametrize(("verb", "help_line"), sorted(verbs().items()))
def test_every_verb_says_what_it_does(verb: str, help_line: str) -> None:
    assert len(help_line) > 10, f"pykaldist {verb} has no help line"
