"""Options as dataclasses: declared beside the code that uses them, spelled the same in Python and on the command line.

    @dataclass
    class DecoderOptions:
        beam: float = option(13.0, "beam, in natural-log cost")

    add_options(parser, DecoderOptions)          # gives --beam
    options = from_args(DecoderOptions, args)
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def option(default: Any, help: str, choices: tuple[str, ...] | None = None) -> Any:
    """A dataclass field with help text, for `add_options`."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


def boolean(text: str) -> bool:
    """Kaldi's booleans: `true` or `false`."""
    if text in ("true", "false"):
        return text == "true"
    raise argparse.ArgumentTypeError(f"expected true or false, found {text!r}")


def _parser_type(annotation: Any) -> Any:
    args = [a for a in typing.get_args(annotation) if a is not type(None)]
    plain = args[0] if args else annotation
    return boolean if plain is bool else plain


def add_options(parser: argparse.ArgumentParser, cls: type, skip: tuple[str, ...] = ()) -> None:
    """Add one `--kebab-case` option for each field of dataclass `cls`."""
    hints = typing.get_type_hints(cls)
    group = parser.add_argument_group(cls.__name__)
    for field in dataclasses.fields(cls):
        if field.name in skip:
            continue
        default = "none" if field.default is None else field.default
        default = str(default).lower() if isinstance(default, bool) else default
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            type=_parser_type(hints[field.name]),
            default=field.default,
            choices=field.metadata.get("choices"),
            metavar=None if field.metadata.get("choices") else field.name.upper(),
            help=f"{field.metadata.get('help', '')} (default: {default})".replace("%", "%%"),
        )


def from_args(cls: type[T], args: argparse.Namespace, **fixed: Any) -> T:
    """The dataclass filled from parsed arguments; `fixed` values win."""
    names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # any dataclass
    return cls(**{**{n: getattr(args, n) for n in names if hasattr(args, n)}, **fixed})
