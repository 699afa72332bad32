"""Options in Kaldi's spelling, `--norm-vars=true`, as in the files `conf/mfcc.conf` and `cmvn_opts`.

    options = read_conf(MfccOptions, "conf/mfcc.conf")      # one `--option=value` a line, `#` starts a comment
    options = parse_conf(CmvnOptions, "--norm-vars=true")    # or several on one line
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import typing
from pathlib import Path
from typing import Any, TypeVar

from pykaldist.errors import UserError
from pykaldist.io.tables import read_lines
from pykaldist.options import boolean

T = TypeVar("T")


def parse_conf(cls: type[T], text: str, where: str = "options") -> T:
    """Make the dataclass `cls` from a text of options; fields that the text does not set keep their defaults.

    Raises UserError, naming `where`, for an option or a value that the dataclass cannot hold.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for line in text.splitlines():
        for word in line.split("#", 1)[0].split():
            name, equals, value = word.partition("=")
            field = name[2:].replace("-", "_")
            if not name.startswith("--") or field not in hints:
                known = ", ".join("--" + f.name.replace("_", "-") for f in dataclasses.fields(cls))  # type: ignore[arg-type]  # dataclass
                raise UserError(f"{where}: there is no option {name}; known are {known}.")
            kind = hints[field]
            try:
                values[field] = (boolean(value) if equals else True) if kind is bool else kind(value)
            except (ValueError, argparse.ArgumentTypeError) as error:
                raise UserError(f"{where}: {name} needs a value of type {kind.__name__}, found {value!r}.") from error
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def read_conf(cls: type[T], path: str | os.PathLike[str]) -> T:
    """Make the dataclass `cls` from a file of options, as `parse_conf` does from a text."""
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; give a file with one --option=value a line.")
    return parse_conf(cls, "\n".join(read_lines(path)), str(path))


def divided_conf(classes: tuple[type, ...], path: str | os.PathLike[str]) -> list[str]:
    """The options of a file, as one line for each of several dataclasses, each option with the first that has it.

    Raises UserError for an option that none has.
    """
    parts: list[list[str]] = [[] for _ in classes]
    fields = [{field.name for field in dataclasses.fields(cls)} for cls in classes]
    for line in read_lines(path):
        for word in line.split("#", 1)[0].split():
            name = word.partition("=")[0]
            place = next((n for n, names in enumerate(fields) if name[2:].replace("-", "_") in names), None)
            if place is None:
                known = ", ".join("--" + field.replace("_", "-") for names in fields for field in sorted(names))
                raise UserError(f"{path}: there is no option {name}; known are {known}.")
            parts[place].append(word)
    return [" ".join(part) for part in parts]


def format_conf(options: Any) -> str:
    """The fields that differ from their defaults, as one line that `parse_conf` reads back."""
    words = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            words.append(f"--{field.name.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}")
    return " ".join(words)
