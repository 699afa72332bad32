"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real speech and golden numbers: $PYKALDIST_SHARED, else ../shared beside the project."""
    path = Path(os.environ.get("PYKALDIST_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no real speech or golden numbers at {path} (set PYKALDIST_SHARED)")
    return path


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    """The numbers recorded from Kaldi."""
    return shared / "golden"
