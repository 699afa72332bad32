"""The line at the end of a stage has the hours of speech, and what a process has taken; a process that is no stage says nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TAKES = """
import subprocess, sys, time
data = bytearray(200_000_000)
data[::4096] = b"x" * len(data[::4096])
def work(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass
work(1.0)
with open(sys.argv[1], "wb") as stream:
    stream.write(data[:30_000_000])
with open(sys.argv[1], "rb") as stream:
    stream.read()
"""
LINE = re.compile(r"(?P<hours>\S+) h of speech in (?P<wall>[\d.]+) s, (?P<cpu>[\d.]+) s of CPU, (?P<memory>\d+) MB of memory, "
                  r"(?P<read>\d+) MB read, (?P<written>\d+) MB written\n")


def said_by(code: str, *args: Path) -> str:
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=True).stdout


def test_a_stage_says_what_it_took(tmp_path: Path) -> None:
    ours = bytearray(400_000_000)  # of the process that starts it, which do not count
    ours[::4096] = b"x" * len(ours[::4096])
    found = LINE.fullmatch(said_by(TAKES + "from pykaldist.usage import usage_line\nprint(usage_line(720_000))", tmp_path / "data"))
    assert found is not None
    hours, wall, cpu, memory, read, written = map(float, found.groups())
    assert hours == 2 and 1 <= wall < 300 and 1 <= cpu <= 20 and 200 <= memory < 350 and 30 <= read < 100 and 30 <= written < 50


def test_a_stage_that_hears_nothing_says_what_it_has_done() -> None:
    done, line = said_by("from pykaldist import usage\nprint(usage.ended('G.fst'))\nprint(usage.ending('format-lm'))").splitlines()
    assert re.fullmatch(r"G\.fst; [\d.]+ s, [\d.]+ s of CPU, \d+ MB of memory, \d+ MB read, \d+ MB written", done)
    assert line.startswith("USAGE: format-lm: 0 h of speech in ")


def test_what_other_stages_took_is_theirs() -> None:
    code = """
import subprocess, sys
from pykaldist import usage
burn = [sys.executable, "-c", "import time\\nwhile time.process_time() < 2: pass"]
with usage.others():
    subprocess.run(burn)
apart = usage.usage_line(0)
subprocess.run(burn)
print(apart, usage.usage_line(0), sep="\\n")
"""
    apart, with_own = (LINE.fullmatch(f"{line}\n") for line in said_by(code).splitlines())
    assert apart is not None and with_own is not None and float(apart["cpu"]) < 1 and 1.9 <= float(with_own["cpu"]) < 3


def test_a_stage_is_who_hears_or_says_so() -> None:
    code = """
from pykaldist import usage
print(usage.ending("mkgraph"))
usage.stage()
print(usage.ending("mkgraph"))
usage.heard(1800)
usage.heard(1800)
print(usage.ending("decode"))
"""
    nobody, stage, heard = said_by(code).splitlines()
    assert nobody == "None" and stage.startswith("USAGE: mkgraph: 0 h of speech in ")
    assert heard.startswith("USAGE: decode: 0.01 h of speech in ")
