"""The library's types hold: mypy finds no error in pykaldist/, by the options in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the last numpy for Python 3.10 has types that are less exact")
def test_the_library_passes_the_type_checker() -> None:
    """Takes about 40 s on one core the first time; after that .mypy_cache has the modules that are as they were."""
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
