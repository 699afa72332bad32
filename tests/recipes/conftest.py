"""A recipe copied to a folder of its own, so that a test leaves the project as it was."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import foreign_recipes
import pytest
from layouts import hour, tones

from pykaldist.cli import verbs
from pykaldist.cli.check_recipe import tool_interfaces, verb_options
from pykaldist.report.check_recipe import check_recipe
from pykaldist.report.interfaces import Interfaces

Recipe = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make_recipe(tmp_path: Path, root: Path) -> Callable[..., tuple[Path, Recipe]]:
    """`make_recipe("yesno")` gives the recipe's folder (s5, or another) and a function that runs its run.sh with arguments."""

    def make(name: str, version: str = "s5") -> tuple[Path, Recipe]:
        folder = tmp_path / name / version
        source = root / "egs" / name / version
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns("data", "data-*", "exp", "mfcc", "fbank", "corpus"))
        for link in [path for path in folder.rglob("*") if path.is_symlink()]:  # they lead from the source's folder
            link.unlink()
            link.symlink_to((source / link.relative_to(folder)).resolve())

        def run(*arguments: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run([folder / "run.sh", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=False,
                                  timeout=3600, **kwargs)  # type: ignore[call-overload]  # any of Popen's keywords

        return folder, run

    return make


@pytest.fixture(params=["tones", pytest.param("hour", marks=pytest.mark.slow)])
def speech(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A minute of words that are tones, or an hour of AN4: the folder that layouts are made of, whose name tells which."""
    folder = tmp_path / request.param
    return tones.as_an4(folder, 12, 6) if request.param == "tones" else hour.as_an4(request.getfixturevalue("shared"), folder)


@pytest.fixture
def row(root: Path) -> Callable[[str, Path, str, float], None]:
    """`row(name, folder, stages, wer)`: a line of the table of foreign recipes, which stands at the end of the tests."""

    def add(name: str, folder: Path, stages: str, wer: float) -> None:
        checked = check_recipe(folder / "run.sh", Interfaces(root, verbs(), verb_options, tool_interfaces()))
        foreign_recipes.ROWS.append((name, f"{checked.number('accepted')} of {checked.counted}", stages, f"{wer:.2f}"))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of recipes that were written for Kaldi."""
    if foreign_recipes.ROWS:
        terminalreporter.section("recipes that were written for Kaldi")
        for line in [("recipe", "lines accepted", "run", "WER, %"), ("---",) * 4, *foreign_recipes.ROWS]:
            terminalreporter.write_line(f"| {' | '.join(line)} |")
