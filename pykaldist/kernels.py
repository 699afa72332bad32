"""Kernels: functions that numba compiles to machine code at their first call with arguments of new types, once for all processes.

    @kernel                      # or @kernel(nogil=True), with options of numba.njit
    def costs(offset, cost): ...

Numba keeps what it has compiled in `__pycache__` beside the source, in $NUMBA_CACHE_DIR where that is set, or in the user's cache
directory where neither can be written; what was kept is compiled again when the source's time or the CPU changes. Three things are added:

* numba is imported at the first call, not with the module, so that a program can print its help at once;
* what numba compiles with (the types and bodies of all functions that it knows, 0.4 s) is loaded where something is compiled, and not where
  what was kept is called;
* a process that needs a kernel which another one is compiling waits for that one's result. Numba alone would compile it in both.

`pykaldist compile` compiles every kernel ahead, so that no job has to.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast, overload

from pykaldist.progress import notice

F = TypeVar("F", bound=Callable[..., Any])
#: Every kernel of the modules that have been imported, by module and name.
KERNELS: dict[str, Kernel] = {}
#: Set in the environment of `pykaldist compile`, which is about nothing else.
COMPILING = "PYKALDIST_COMPILE"
_interpreted = False
_making = threading.Lock()
_said = False


class Kernel:
    """A function that numba compiles. Other kernels may call it, as functions of numba.njit."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function, self._options, self._dispatcher = function, options, None
        KERNELS[f"{function.__module__}.{function.__name__}"] = self

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher, made at the first use."""
        if self._dispatcher is None:
            with _making:
                if self._dispatcher is None:
                    self._dispatcher = _make(self.function, self._options)
        return self._dispatcher

    @property
    def loaded(self) -> bool:
        """Whether numba has been loaded for it."""
        return self._dispatcher is not None

    def __call__(self, *args: Any) -> Any:
        if _interpreted and not self.loaded:
            return self.function(*args)
        return (self._dispatcher or self.dispatcher)(*args)

    @property
    def _numba_type_(self) -> Any:  # by which numba knows it where another kernel calls it
        return self.dispatcher._numba_type_


@overload
def kernel(function: F) -> F: ...


@overload
def kernel(**options: Any) -> Callable[[F], F]: ...


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Declare a kernel: `@kernel`, or `@kernel(nogil=True)`; the options are those of numba.njit."""
    if function is not None:
        return Kernel(function, options)
    return lambda wrapped: Kernel(wrapped, options)


@contextlib.contextmanager
def interpreted_where(little: bool) -> Iterator[None]:
    """Where there is little to do, run kernels that are not loaded as the Python that they are: numba takes time to load."""
    global _interpreted
    before, _interpreted = _interpreted, little and COMPILING not in os.environ
    try:
        yield
    finally:
        _interpreted = before


def python_of(function: F, little: bool) -> F | None:
    """The Python function that a kernel is made of, where there is `little` to do and numba has not been loaded for it; else None."""
    if not isinstance(function, Kernel) or function.loaded or not (_interpreted or (little and COMPILING not in os.environ)):
        return None
    return cast(F, function.function)


def _make(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba
    from numba.core.caching import FunctionCache
    from numba.core.runtime import rtsys

    class SharedCache(FunctionCache):
        """Numba's cache of a function on disk; between a failed search in it and the saving of the result it is locked."""

        _held: TextIO | None = None

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)  # arrays' memory: all of numba that what is compiled already needs
            with self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)
            if found is not None:
                return found
            if self._held is None:  # held still after a compilation that failed
                self._held = _locked(Path(self.cache_path) / f"{self._impl.filename_base}.lock")
            _say_that_it_compiles()
            found = super().load_overload(sig, target_context)  # another process may have saved it meanwhile
            if found is not None:
                self._unlock()
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            super().save_overload(sig, data)
            self._unlock()

        def _unlock(self) -> None:
            if self._held is not None:
                self._held.close()
                self._held = None

    dispatcher = numba.njit(**options)(function)
    dispatcher._cache = SharedCache(function)
    return dispatcher


def _locked(path: Path) -> TextIO | None:
    """Open a file, locked for this process alone; None where it cannot be made, as numba then saves nothing either."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "w", encoding="utf-8")  # noqa: SIM115  # closed by who unlocks it
        fcntl.flock(stream, fcntl.LOCK_EX)
    except OSError:
        return None
    return stream


def _say_that_it_compiles() -> None:
    global _said
    told = os.environ.get("PYKALDIST_TOLD") == "recipe"  # by the recipe, which compiles them in the background
    if not _said and not told and COMPILING not in os.environ:
        notice("compiling kernels, or waiting for a job that does: up to a minute, once a checkout (pykaldist compile does it ahead)")
    _said = True


def declared() -> list[str]:
    """The names of the modules of pykaldist that declare kernels, found without importing anything."""
    package = Path(__file__).parent
    return sorted(".".join(("pykaldist", *path.relative_to(package).with_suffix("").parts)) for path in package.rglob("*.py")
                  if "\n@kernel" in path.read_text(encoding="utf-8"))


def all_kernels() -> dict[str, Kernel]:
    """Every kernel of pykaldist, by module and name."""
    for module in declared():
        importlib.import_module(module)
    return dict(sorted(KERNELS.items()))


def fingerprint(one: Kernel) -> dict[str, Any]:
    """A description of what compiled kernels depend on.

    It has the sources that declare kernels, and their times; numba; and the CPU (which `one` is compiled for).
    """
    import numba

    package = Path(__file__).parent.parent
    sources = [(package / module.replace(".", "/")).with_suffix(".py") for module in declared()]
    times = {str(path.relative_to(package)): [path.stat().st_mtime_ns, path.stat().st_size] for path in [*sources, Path(__file__)]}
    return {"numba": numba.__version__, "cpu": list(one.dispatcher.targetctx.codegen().magic_tuple()), "sources": times}


def compiled() -> dict[str, list[str]]:
    """The types that each kernel has been compiled for, or found in the cache, in this process."""
    return {name: sorted(map(str, one.dispatcher.overloads)) for name, one in all_kernels().items()}
