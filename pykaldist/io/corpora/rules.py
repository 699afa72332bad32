"""Text normalisation as a table: what is replaced by what, with an example of each rule.

A line of a table has four columns, with tabs between: a pattern (Python's regular expressions, large and small letters alike), its
replacement, an example, and what the whole table makes of the example. The rules of a table are applied one after another, to a word or
to a line. A line whose pattern and replacement are `"` is another example of the rule above it, one that begins with # a comment. A table
whose examples do not come out as it says is refused.
"""

from __future__ import annotations

import os
import re

from pykaldist.errors import UserError
from pykaldist.io.tables import read_lines

COLUMNS = 4
SAME = '"'


def read_columns(path: str | os.PathLike[str], count: int) -> list[tuple[int, list[str]]]:
    """The lines of a table with tabs between its columns: (number of the line, columns); comments (#) and empty lines are left out.

    Raises UserError for a line with another number of columns.
    """
    rows = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != count:
                raise UserError(f"{path}, line {number}: expected {count} columns with tabs between, found {len(columns)}.")
            rows.append((number, columns))
    return rows


class Rules:
    """The rules of one table. `rules(text)` applies all of them, in order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read a table. Raises UserError for a pattern that is none, and for an example that does not come out as the table says."""
        rows = read_columns(path, COLUMNS)
        self._rules = []
        for number, (pattern, replacement, _, _) in rows:
            if (pattern, replacement) == (SAME, SAME):
                continue
            try:
                self._rules.append((re.compile(pattern, re.IGNORECASE), replacement))
                self._rules[-1][0].sub(replacement, "")
            except re.error as error:
                raise UserError(f"{path}, line {number}: {pattern!r} with {replacement!r} is no rule ({error}); correct it.") from error
        for number, (_, _, example, becomes) in rows:
            if self(example) != becomes:
                raise UserError(f"{path}, line {number}: of {example!r} the rules make {self(example)!r}, expected {becomes!r}; correct "
                                "the table.")

    def __call__(self, text: str) -> str:
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text
