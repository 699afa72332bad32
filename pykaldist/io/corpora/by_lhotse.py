"""Calls of lhotse's recipe functions: without what they print of each file, and with one clear sentence where they cannot read a corpus."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pykaldist.errors import UserError

Prepared = TypeVar("Prepared")


def call_lhotse(prepare: Callable[[], Prepared], folder: Path, cure: str, backend: str = "default") -> Prepared:
    """What `prepare` returns, a call of one of lhotse's recipes on `folder`. Raises UserError, which ends with `cure`, where it fails.

    `backend`: lhotse's reader of audio. By default files *.sph go through a program that decodes all of them; LibsndfileBackend reads
    headers.
    """
    from lhotse.audio.backend import get_current_audio_backend, set_current_audio_backend  # takes a second

    before = get_current_audio_backend()
    try:
        set_current_audio_backend(backend)
        with _quietly():
            return prepare()
    except Exception as error:  # what its readers raise has no common class
        what = str(error).partition("\n")[0].removesuffix(" Details:").removesuffix(".")
        raise UserError(f"lhotse cannot read {folder}: {what} ({type(error).__name__}); {cure}.") from error
    finally:
        set_current_audio_backend(before)


def lay_links(folder: Path, links: Mapping[str, Path]) -> None:
    """Make `folder` one of links and nothing else, to files in the layout that one of lhotse's recipes reads: path below it -> file."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())


@contextlib.contextmanager
def in_threads(recipe: ModuleType) -> Iterator[None]:
    """The processes of one of lhotse's recipes as threads: each would import torch, and an error would come back without what it says."""
    own = recipe.ProcessPoolExecutor
    recipe.ProcessPoolExecutor = lambda max_workers, mp_context: ThreadPoolExecutor(max_workers)  # type: ignore[attr-defined]  # a module
    try:
        yield
    finally:
        recipe.ProcessPoolExecutor = own  # type: ignore[attr-defined]  # a module


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without lhotse's warnings of every missing file, which are counted here, and its bars where there is no terminal to draw them."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with (contextlib.nullcontext() if sys.stderr.isatty() else _no_stderr(),
              contextlib.redirect_stdout(io.StringIO())):
            yield
    finally:
        logging.getLogger().setLevel(level)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Without what goes to stderr, also from libraries in C (of mp3, say)."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
