"""Counts which programs Kaldi's recipes call, in run.sh and local/; usage: programs_called.py EGS NAMES RECIPE ... (NAMES: a name a line).

A line counts that is no comment, and has a program where a command stands: at its beginning, or behind a space, a pipe, a bracket, a quote
or `ark:`.
EGS is Kaldi's egs folder, which is only read. Prints program, calls, recipes, and whether src/bin has it.
"""

from __future__ import annotations

import collections
import re
import sys
from pathlib import Path

from pykaldist.programs.table import PROGRAMS


def main() -> None:
    egs, names, *recipes = sys.argv[1:]
    known = {*Path(names).read_text(encoding="utf-8").split(), *PROGRAMS}
    word = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    called = re.compile(rf"(?:^|[|&;(`\"'!:]|\b(?:if|then|do|else|command -v|which)\s|log\s|\s)\s*({word})(?=\s|$)")
    calls: collections.Counter[str] = collections.Counter()
    where: dict[str, set[str]] = collections.defaultdict(set)
    for recipe in recipes:
        folder = Path(egs) / recipe
        files = [folder / "run.sh", *(path for path in sorted((folder / "local").rglob("*.sh")) if path.is_file())]
        for path in files:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if not line.lstrip().startswith("#") and "echo" not in line.split("|")[0]:
                    for name in called.findall(line):
                        calls[name] += 1
                        where[name].add(recipe)
    for name, count in sorted(calls.items(), key=lambda item: (-item[1], item[0])):
        print(f"{name}\t{count}\t{len(where[name])}\t{'yes' if name in PROGRAMS else 'no'}")


if __name__ == "__main__":
    main()
