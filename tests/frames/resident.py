"""How much of mapped files this process has in memory."""

from __future__ import annotations

from pathlib import Path


def resident(paths: list[Path]) -> int:
    """The bytes of mapped files that this process has in memory."""
    total, of_file, names = 0, False, tuple(map(str, paths))
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            of_file = line.endswith(names)
        elif of_file and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total
