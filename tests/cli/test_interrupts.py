"""Ctrl-C at any time ends the command line with status 130 and one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pykaldist import interrupts

ROOT = Path(__file__).resolve().parent.parent.parent
#: Stands in a module's place: says that it is imported, and is not done before Ctrl-C comes.
SLOW_IMPORT = "import os, time\nos.write(1, b'now ')\ntime.sleep(100)\n"
CALLBACK = """
import weakref, os, time
from pykaldist import interrupts
interrupts.start()
class Thing: pass
def callback(ref):
    os.write(1, b"now ")
    time.sleep(100)
thing = Thing()
ref = weakref.ref(thing, callback)
with interrupts.Working():
    del thing
print("lost")
"""


def interrupted(words: list[str | Path], after: bytes = b"now ", **more: str) -> tuple[int, str]:
    """Status and stderr of a command that gets Ctrl-C when it has printed `after` on stdout."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYKALDIST_")}
    env = {**own, "PYTHONPATH": f"{more.pop('path', '')}:{ROOT}", "PYKALDIST_TOLD": "true", "PYKALDIST_PYTHON": sys.executable, **more}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), len(after)) == after or not after
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@pytest.mark.parametrize("entry", ["module", "installed", "checkout"])
@pytest.mark.parametrize("module", ["argparse", "pykaldist_slow_verb"])
def test_while_modules_are_imported(tmp_path, entry, module):
    """Those of the command line itself, and those of the verb."""
    if module == "argparse":
        (tmp_path / "argparse.py").write_text(SLOW_IMPORT)
    else:
        (tmp_path / "kaldiio.py").write_text(SLOW_IMPORT)
        (tmp_path / "numpy.py").write_text(SLOW_IMPORT)
    code = "import sys; sys.argv[0] = 'pykaldist'; from pykaldist.__main__ import entry; entry()"  # as pip writes it
    words = {"module": [sys.executable, "-m", "pykaldist"], "installed": [sys.executable, "-c", code],
             "checkout": [ROOT / "utils" / "pykaldist"]}[entry]
    status, err = interrupted([*words, "align-si", "a", "b"], path=str(tmp_path))
    assert (status, err) == (130, "pykaldist align-si: interrupted; run the same command again to go on.\n")


def test_where_an_exception_would_be_lost():
    assert interrupted([sys.executable, "-c", CALLBACK])[0] == 130


def test_a_script_says_it_itself(tmp_path):
    (tmp_path / "argparse.py").write_text(SLOW_IMPORT)
    assert interrupted([sys.executable, "-m", "pykaldist", "align-si"], path=str(tmp_path), PYKALDIST_STARTED_BY="1-1") == (130, "")


def test_while_python_itself_starts():
    """The checkout's command: from when bash has become Python, nothing is printed but the line."""
    seen = set()
    for delay in (0.0, 0.004, 0.008, 0.012, 0.016, 0.02):
        own = {name: value for name, value in os.environ.items() if name != "PYKALDIST_STARTED_BY"}
        process = subprocess.Popen([ROOT / "utils" / "pykaldist", "align-si", "--help"], env={**own, "PYKALDIST_PYTHON": sys.executable},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        deadline = time.monotonic() + 30
        while b"-m" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < deadline:
            pass
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        seen.add((process.wait(timeout=60), process.stderr.read()))
        process.stderr.close()
    line = "pykaldist align-si: interrupted; run the same command again to go on.\n"
    assert seen <= {(130, line), (-signal.SIGINT, ""), (0, "")} and (130, line) in seen, seen


def test_ctrl_c_that_is_ignored_stays_so(monkeypatch):
    """As in a background command; and in a process of a job, whose launcher has it."""
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupts.start()
        with interrupts.Working():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setenv("PYKALDIST_JOB", "token")
        interrupts.start()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
