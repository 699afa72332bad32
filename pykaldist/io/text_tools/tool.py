"""What a text tool is: a function with its usage, options and number of arguments, and what all of them share.

A tool gets its options and its arguments, reads files or standard input, and gives back the lines of its output. It raises UserError, a
sentence with the file and the line, for input that it cannot use.
"""

from __future__ import annotations

import os
import sys

from pykaldist.errors import UserError

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Output = Iterable[bytes] | int | None


class Tool:
    """A text tool. Options: name -> how many values each takes (0 for a flag); least and most: numbers of arguments, most -1 for any."""

    def __init__(self, function: Callable[..., Output], usage: str, options: dict[str, int], least: int, most: int) -> None:
        self.function, self.usage, self.options, self.least, self.most = function, usage, options, least, most

    def parse(self, arguments: list[str]) -> tuple[dict[str, str], list[str]]:
        """The options and arguments of a command line; the values of an option that takes two are joined by a space."""
        options: dict[str, str] = {}
        rest = list(arguments)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            given, equals, value = rest.pop(0).partition("=")
            name = given.lstrip("-").replace("_", "-")
            if given == "--":
                break
            if name not in self.options:
                raise UserError(f"there is no option {given}; --help shows the usage.")
            values = [value] if equals else [rest.pop(0) for _ in range(min(self.options[name], len(rest)))]
            if len(values) != (self.options[name] if not equals else 1):
                raise UserError(f"option {given} needs {'a value' if self.options[name] == 1 else f'{self.options[name]} values'}.")
            options[name] = " ".join(values)
        return options, rest


def tool(usage: str, options: str = "", arguments: tuple[int, int] = (1, 2)) -> Callable[[Callable[..., Output]], Tool]:
    """Declare a tool. Options are names with `=` and how many values they take behind (`f=`, `j=2`); without it they are flags."""

    def declare(function: Callable[..., Output]) -> Tool:
        table = {}
        for text in options.split():
            name, equals, count = text.partition("=")
            table[name] = int(count or 1) if equals else 0
        return Tool(function, usage, table, *arguments)

    return declare


def lines_of(path: str = "-") -> Iterable[bytes]:
    """The lines of a file with their ends; of standard input for `-`."""
    return sys.stdin.buffer if path == "-" else _lines_of_file(path)


def _lines_of_file(path: str) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        yield from stream


def rows_of(path: str, least: int, most: int, form: str) -> Iterator[tuple[list[bytes], bytes, int]]:
    """The fields, the line and its number for each line of a file; UserError where it has not `least` to `most` fields (most -1: any).

    `form` says what was expected, such as `utterance speaker`.
    """
    for number, line in enumerate(lines_of(path), 1):
        fields = line.split()
        if len(fields) < least or -1 < most < len(fields):
            raise UserError(f"{shown(path)}, line {number}: expected `{form}`, found {text(line)!r}.")
        yield fields, line, number


def shown(path: str) -> str:
    """A file's name for a message."""
    return "standard input" if path == "-" else path


def text(line: bytes) -> str:
    """A line for a message, without its end."""
    return line.decode("utf-8", "replace").strip()


def warn(message: str) -> None:
    """Print a warning of the tool that runs."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)


def number(value: str, what: str) -> float:
    """A number of the command line."""
    try:
        return float(value)
    except ValueError as error:
        raise UserError(f"expected a number for {what}, found {value!r}.") from error


def whole(value: str, what: str, least: int) -> int:
    """A whole number of the command line that is at least `least`."""
    if not value.lstrip("-").isdigit() or int(value) < least:
        raise UserError(f"expected a whole number from {least} up for {what}, found {value!r}.")
    return int(value)


def field_range(options: dict[str, str]) -> slice:
    """The fields that the option `-f` names: 3, 2-4, 2- or -3, counted from 1; all where it is not given."""
    given = options.get("f", "1-")
    first, dash, last = given.replace(":", "-").partition("-")
    if not (first or last) or not (first + last).isdigit() or first == "0" or last == "0":
        raise UserError(f"-f {given}: expected fields such as 3, 2-4, 2- or -3, counted from 1.")
    return slice(int(first) - 1 if first else 0, int(last) if last else None if dash else int(first))


def write_file(path: str, lines: Iterable[bytes]) -> None:
    """Write a file whole or not at all; to `-`, pipes and devices as they are."""
    if path == "-":
        sys.stdout.buffer.writelines(lines)
        return
    plain = os.path.isfile(path) or not os.path.exists(path)
    target = f"{os.path.join(os.path.dirname(path), '.' + os.path.basename(path))}.{os.getpid()}.tmp" if plain else path
    try:
        with open(target, "wb") as stream:
            stream.writelines(lines)
        if plain:
            os.replace(target, path)
    except OSError as error:
        error.filename = path
        raise
    finally:
        if plain and os.path.exists(target):
            os.unlink(target)
