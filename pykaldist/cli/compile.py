"""Compile all kernels ahead, so that no job has to: once a checkout, about a minute. The modules' byte code is written, too.

A tiny corpus goes through every stage. What numba compiles for it goes to numba's cache: __pycache__ beside the sources, or where
NUMBA_CACHE_DIR says, or the user's cache directory where the checkout cannot be written. Jobs that start meanwhile wait for the kernels
that they need, and a second `pykaldist compile` waits for the first. A change of a source, of numba or of the CPU makes it necessary
again. Byte code goes to __pycache__ even where Python is told not to write any (PYTHONDONTWRITEBYTECODE, as in many containers), where
every program would compile its modules at each start.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pykaldist.cli._rehearsal import STEPS, corpus
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.fst import _scan
from pykaldist.io.lock import locked
from pykaldist.io.schema import read_json
from pykaldist.kernels import COMPILING, Kernel, compiled, fingerprint
from pykaldist.options import add_flag
from pykaldist.progress import notice, progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flag(parser, "background", "draw no bar, and say in one line that it is done beside other things")


@dataclass
class Done:
    """What the file of a compilation holds: the sources, numba and CPU that it was of, and what each kernel was compiled for."""

    of: dict[str, Any]
    kernels: dict[str, list[str]]


def _compiled_before(path: Path) -> dict[str, Any]:
    """What was compiled the last time; nothing where the file is missing or damaged: then it is done again."""
    try:
        return read_json(path, Done, "the kernels are compiled again").of
    except (OSError, UserError):
        return {}


def run(args: argparse.Namespace) -> None:
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)
    one = cast(Kernel, _scan)  # any kernel will do
    start, cache = time.monotonic(), Path(one.dispatcher._cache.cache_path)
    done, wanted = cache / "kernels.json", fingerprint(one)
    if _compiled_before(done) == wanted:
        print(f"the kernels are compiled already: {done}")
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(cache))
        except UserError:  # another process compiles them
            if args.background:
                return
            notice("another process is compiling the kernels; waiting for its end")
            stack.enter_context(locked(cache, wait=True))
        if _compiled_before(done) == wanted:
            print(f"another process has compiled the kernels meanwhile: {done}")
            return
        if args.background:
            notice("compiling kernels in the background, once a checkout; stages that need them wait for them")
            if fd := os.environ.pop("PYKALDIST_PROGRESS_FD", ""):
                os.close(int(fd))  # whoever reads what the recipe prints would wait for this process
        os.environ[COMPILING] = "true"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykaldist-compile-")))
        stack.enter_context(corpus(folder))
        for name in STEPS if args.background else progress(STEPS, "compiling kernels", unit="stage"):
            STEPS[name]()
            if args.background:
                print(f"compiled what {name} needs, {time.monotonic() - start:.0f} s", flush=True)
        kernels = compiled()
        write_text(done, json.dumps({"of": wanted, "kernels": kernels}, indent=1))
    print(f"compiled {len(kernels)} kernels in {time.monotonic() - start:.0f} s: {done}")
