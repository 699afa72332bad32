"""A recipe copied to a folder of its own, so that a test leaves the project as it was."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Recipe = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make_recipe(tmp_path: Path, root: Path) -> Callable[[str], tuple[Path, Recipe]]:
    """`make_recipe("yesno")` gives the recipe's folder and a function that runs its run.sh with arguments."""

    def make(name: str) -> tuple[Path, Recipe]:
        folder = tmp_path / name / "s5"
        source = root / "egs" / name / "s5"
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns("data", "data-*", "exp", "mfcc", "fbank", "corpus"))
        for link in [path for path in folder.rglob("*") if path.is_symlink()]:  # they lead from the source's folder
            link.unlink()
            link.symlink_to((source / link.relative_to(folder)).resolve())

        def run(*arguments: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run([folder / "run.sh", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=False,
                                  timeout=900, **kwargs)  # type: ignore[call-overload]  # any of Popen's keywords

        return folder, run

    return make
