"""What the stages of a recipe took: the lines at the ends of their logs (pykaldist/usage.py), added up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pykaldist.report.text import markdown, without_empty_columns
from pykaldist.usage import MARK

_LINE = re.compile(rf"^{MARK}(?P<verb>[\w-]+): (?P<hours>[\d.e+-]+) h of speech in (?P<wall>[\d.]+) s, (?P<cpu>[\d.]+) s of CPU, "
                   r"(?P<memory>\d+) MB of memory, (?P<read>\d+) MB read, (?P<written>\d+) MB written$", re.MULTILINE)
TAIL = 1 << 16  # bytes of a log's end that are looked at


@dataclass
class Stage:
    """What one verb took in one folder, over its processes.

    `hours`, `cpu` (s), `read` and `written` (MB) are sums, `wall` (s) and `memory` (MB) those of the process that had most.
    """

    name: str
    processes: int = 0
    hours: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    read: float = 0.0
    written: float = 0.0

    def add(self, found: re.Match[str]) -> None:
        """Add the line of a process."""
        self.processes += 1
        for name in ("hours", "cpu", "read", "written"):
            setattr(self, name, getattr(self, name) + float(found[name]))
        for name in ("wall", "memory"):
            setattr(self, name, max(getattr(self, name), float(found[name])))


def stages(exp: Path) -> list[Stage]:
    """The stages whose logs are below a folder, in the order of folders and verbs; those without such a line are left out."""
    found: dict[tuple[str, str], Stage] = {}
    for log in sorted(exp.glob("**/*.log")):
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - TAIL))
            text = stream.read().decode(errors="replace")
        folder = str((log.parent.parent if log.parent.name == "log" else log.parent).relative_to(exp))
        for line in _LINE.finditer(text):
            found.setdefault((folder, line["verb"]), Stage(f"{folder}: {line['verb']}")).add(line)
    return [found[key] for key in sorted(found)]


def render_stages(found: list[Stage]) -> str:
    """Write the stages as a table, the sum of all in its last row; empty where there are none."""
    if not found:
        return ""
    total = Stage("all", sum(s.processes for s in found), sum(s.hours for s in found), sum(s.wall for s in found),
                  sum(s.cpu for s in found), max(s.memory for s in found), sum(s.read for s in found), sum(s.written for s in found))
    rows = [["stage", "processes", "hours of speech", "wall s", "CPU s", "memory MB", "read MB", "written MB"]]
    rows += [[s.name, str(s.processes), f"{s.hours:.3g}", f"{s.wall:.0f}", f"{s.cpu:.0f}", f"{s.memory:.0f}", f"{s.read:.0f}",
              f"{s.written:.0f}"] for s in [*found, total]]
    return "\n".join([markdown(without_empty_columns(rows)), "",
                      "wall and memory: those of the longest, and the largest, of a stage's processes; the wall of all is the sum of "
                      "these. Hours count each time that speech was gone through. Mapped files are not counted as read."])
