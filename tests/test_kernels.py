"""Kernels: numba comes with the first call, two processes compile once, and `pykaldist compile` knows every kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pykaldist.io.fst import _scan
from pykaldist.io.lock import locked
from pykaldist.kernels import KERNELS, Kernel, all_kernels, interpreted_where, kernel

USER = """
import sys, time
from pathlib import Path
from example import outer
assert "numba" not in sys.modules
outer.dispatcher
here = Path(sys.argv[1])
(here / f"ready.{sys.argv[2]}").touch()
while len(list(here.glob("ready.*"))) < 2:
    time.sleep(0.01)
assert outer([3.0, 1.0, 2.0]) == 1.0
print(sum(outer.dispatcher.stats.cache_misses.values()))
"""
EXAMPLE = """
import numpy as np
from pykaldist.kernels import kernel

@kernel
def inner(x):
    return np.argsort(np.sort(x), kind="mergesort")

@kernel(nogil=True)
def outer(x):
    y = np.array(x)
    return np.sort(y)[inner(y)[0]]
"""


def test_two_processes_compile_once(tmp_path: Path, root: Path) -> None:
    (tmp_path / "example.py").write_text(EXAMPLE)
    env = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "ignore", "-c", USER, str(tmp_path)]
    both = [subprocess.Popen([*command, str(n)], env=env, stdout=subprocess.PIPE, text=True) for n in range(2)]
    assert sorted(int(process.communicate(timeout=120)[0]) for process in both) == [0, 1]


def test_what_is_kept_is_called_without_what_numba_compiles_with(tmp_path: Path, root: Path) -> None:
    (tmp_path / "example.py").write_text(EXAMPLE)
    env = {**os.environ, "PYTHONPATH": f"{root}:{tmp_path}", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(program: str) -> str:
        command = [sys.executable, "-W", "ignore", "-c", f"import sys\nfrom example import outer\n{program}"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120).stdout

    called = "print(outer([3.0, 1.0]), 'numba.np.linalg' in sys.modules)\n"
    assert run(called) == "1.0 True\n"  # compiled
    assert run(called) == "1.0 False\n"
    assert run(f"{called}print(outer([3, 1]), 'numba.np.linalg' in sys.modules)") == "1.0 False\n1 True\n"  # other types


def test_a_kernel_stays_usable_after_a_call_that_cannot_be_compiled() -> None:
    before = set(KERNELS)

    @kernel
    def twice(x: np.ndarray) -> np.ndarray:
        return x.swapped() * 2

    for _ in range(2):  # a lock that stayed behind would stop the second
        try:
            twice(np.arange(3))
        except Exception as error:
            assert "swapped" in str(error)
        else:
            raise AssertionError("compiled")
    for name in set(KERNELS) - before:
        del KERNELS[name]


def test_where_there_is_little_to_do_python_runs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(KERNELS)

    @kernel
    def half(x: np.ndarray) -> object:
        return globals().get("absent", x[0] / 2)  # which numba cannot compile

    monkeypatch.delenv("PYKALDIST_COMPILE", raising=False)
    with interpreted_where(True):
        assert half(np.ones(1, np.float32)) == 0.5 and half._dispatcher is None
    with interpreted_where(False), pytest.raises(Exception, match="globals"):
        half(np.ones(1, np.float32))
    for name in set(KERNELS) - before:
        del KERNELS[name]


def named(one: Kernel, name: str) -> list[Kernel]:
    """The kernels that a name in the code of a kernel may mean: a global, or one of a module that the code names."""
    scope = one.function.__globals__
    modules = [scope[word] for word in one.function.__code__.co_names if isinstance(scope.get(word), ModuleType)]
    return [found for found in (scope.get(name), *(getattr(module, name, None) for module in modules)) if isinstance(found, Kernel)]


def test_compile_reaches_every_kernel(rehearsed: dict[str, list[str]]) -> None:
    """The tiny corpus of `pykaldist compile` calls every kernel, or one that calls it."""
    kernels = all_kernels()
    reached = {name for name, types in rehearsed.items() if types}
    while True:
        called = {f"{found.function.__module__}.{used}" for one in map(kernels.__getitem__, reached)
                  for used in one.function.__code__.co_names for found in named(one, used)}
        if called <= reached:
            break
        reached |= called
    assert set(kernels) == reached


def test_compile_does_nothing_again_but_writes_byte_code(rehearsed: dict[str, list[str]], tmp_path: Path) -> None:
    """Byte code is written even where Python is told to write none."""
    start, env = time.monotonic(), {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "pykaldist", "compile"], capture_output=True, text=True, check=True, env=env)
    assert "compiled already" in done.stdout and time.monotonic() - start < 60
    assert list(tmp_path.rglob("pykaldist/programs/command.*.pyc"))
    recorded = Path(_scan.dispatcher._cache.cache_path) / "kernels.json"
    assert json.loads(recorded.read_text())["kernels"] == rehearsed


def test_compile_waits_for_another_compilation(tmp_path: Path, root: Path) -> None:
    """When it returns, the kernels are there, whoever has compiled them; one in the background leaves it to the other."""
    env = {**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(tmp_path)}
    asked = ("import json; from pykaldist.io.fst import _scan; from pykaldist.kernels import fingerprint; "
             "print(json.dumps([str(_scan.dispatcher._cache.cache_path), fingerprint(_scan)]))")
    cache, of = json.loads(subprocess.run([sys.executable, "-c", asked], env=env, check=True, capture_output=True, text=True).stdout)
    command = [sys.executable, "-m", "pykaldist", "compile"]
    with locked(cache):
        assert subprocess.run([*command, "--background"], env=env, check=True, capture_output=True, text=True).stdout == ""
        waiting = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None and "waiting for its end" in waiting.stderr.readline()
        (Path(cache) / "kernels.json").write_text(json.dumps({"of": of, "kernels": {}}))
        assert waiting.poll() is None
    said, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and "another process has compiled the kernels meanwhile" in said
