"""The line at the end of a stage has the hours of speech, and what a process has taken."""

from __future__ import annotations

import re
import subprocess
import sys

CODE = """
import time
data = bytearray(200_000_000)
data[::4096] = b"x" * len(data[::4096])
start = time.process_time()
while time.process_time() - start < 1.0:
    pass
from pykaldist.usage import usage_line
print(usage_line(720_000))
"""


def test_a_stage_says_what_it_took() -> None:
    ours = bytearray(400_000_000)  # of the process that starts it, which do not count
    ours[::4096] = b"x" * len(ours[::4096])
    said = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout
    found = re.fullmatch(r"2 h of speech in (\d+) s, (\d+) s of CPU, (\d+) MB of memory\n", said)
    assert found is not None, said
    wall, cpu, memory = map(int, found.groups())
    assert 1 <= wall < 300 and 1 <= cpu <= 20 and 200 <= memory < 350
