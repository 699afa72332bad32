"""What the pages are made of, which their rooms' tests make, too."""

from __future__ import annotations

from report.page.conftest import experiment
from serve.conftest import audio, recipe
from serve.server.conftest import engine

__all__ = ["audio", "engine", "experiment", "recipe"]
