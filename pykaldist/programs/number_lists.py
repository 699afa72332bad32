"""Numbers in the arguments and tables of programs; what is none is said in a sentence."""

from __future__ import annotations

import io

from pykaldist.errors import UserError
from pykaldist.io.table_streams import read_token


def integers(what: str, text: str) -> list[int]:
    """The integers of an argument such as 13:14:15; raises UserError, naming `what` they are, for other text."""
    try:
        return [int(word) for word in text.split(":") if word]
    except ValueError as error:
        raise UserError(f"{what}: expected integers with colons between them, such as 13:14:15, found {text!r}.") from error


def real_numbers(what: str, text: str) -> list[float]:
    """The numbers of an argument such as 0.7:0.3; raises UserError, naming `what` they are, for other text."""
    try:
        return [float(word) for word in text.split(":")]
    except ValueError as error:
        raise UserError(f"{what}: expected numbers with colons between them, such as 0.7:0.3, found {text!r}.") from error


def read_integer(stream: io.BufferedReader) -> int:
    """Read a table's value that is an integer; raises ValueError for another."""
    return int(read_token(stream))


def read_number(stream: io.BufferedReader) -> float:
    """Read a table's value that is a number; raises ValueError for another."""
    return float(read_token(stream))
