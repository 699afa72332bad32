"""Options as dataclasses: declared beside the code that uses them, with the same spelling in Python and on the command line.

    @dataclass
    class DecoderOptions:
        beam: float = option(13.0, "beam, in natural-log cost")

    add_options(parser, DecoderOptions)          # gives --beam
    options = from_args(DecoderOptions, args)
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import typing
from pathlib import Path
from typing import Any, TypeVar

from pykaldist.errors import UserError

T = TypeVar("T")


def option(default: Any, help: str, choices: tuple[Any, ...] | None = None) -> Any:
    """Declare a dataclass field with help text, for `add_options`."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


NAMED = re.compile(r'^    name = "', re.MULTILINE)  # a class that `discover` finds


def discover(package: str, base: type[T]) -> dict[str, type[T]]:
    """Find the classes in the modules of a package that derive from `base` and have a `name = "..."` of their own; by that name.

    So a new one is a new file, and nothing else. Modules without such a line are not imported.
    """
    found: dict[str, type[T]] = {}
    for path in sorted(Path(str(importlib.import_module(package).__file__)).parent.glob("*.py")):
        if NAMED.search(path.read_text(encoding="utf-8")):
            module = importlib.import_module(f"{package}.{path.stem}")
            for cls in vars(module).values():
                if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == module.__name__ and "name" in vars(cls):
                    found[vars(cls)["name"]] = cls
    return found


def options_of(cls: type) -> type:
    """The dataclass of a class's options, which stands beside it, named as it is with `Options` behind."""
    return getattr(importlib.import_module(cls.__module__), f"{cls.__name__}Options")


def boolean(text: str) -> bool:
    """Read Kaldi's booleans: `true` or `false`."""
    if text in ("true", "false"):
        return text == "true"
    raise argparse.ArgumentTypeError(f"expected true or false, found {text!r}")


def numbers(name: str, text: str) -> list[float]:
    """Read the numbers of an option that takes a list, as 0.1,0.2; raises UserError, naming the option, for other text."""
    try:
        return [float(field) for field in text.split(",")]
    except ValueError as error:
        raise UserError(f"--{name} {text}: expected numbers with commas between them, such as 0.1,0.2.") from error


def add_flag(parser: argparse.ArgumentParser, name: str, help: str) -> None:
    """Add a boolean option as Kaldi's programs take it: `--name`, `--name=true` or `--name=false`."""
    parser.add_argument(f"--{name}", f"--{name}=true", action="store_true", help=f"{help} (default: false)")
    parser.add_argument(f"--{name}=false", dest=name.replace("-", "_"), action="store_false", help=argparse.SUPPRESS)


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


def add_variants(parser: argparse.ArgumentParser, variants: dict[str, type]) -> None:
    """Add the options of every variant (`--schedule newbob | exponential`, say); one that several share is added once.

    They have no value until given, so that `pick_variant` can refuse those that the chosen variant does not use.
    """
    owners: dict[str, list[tuple[str, Any]]] = {}
    for variant, cls in variants.items():
        for field in dataclasses.fields(cls):
            owners.setdefault(field.name, []).append((f"{variant} {field.default}", (cls, field)))
    group = parser.add_argument_group(" | ".join(variants))
    for name, found in owners.items():
        cls, field = found[0][1]
        defaults = ", ".join(text for text, _ in found).replace("None", "none")
        group.add_argument("--" + name.replace("_", "-"), type=_parser_type(typing.get_type_hints(cls)[name]), default=argparse.SUPPRESS,
                           choices=field.metadata.get("choices"), metavar=None if field.metadata.get("choices") else name.upper(),
                           help=f"{field.metadata.get('help', '')} (default: {defaults})".replace("%", "%%"))


def pick_variant(option_name: str, chosen: str, variants: dict[str, type], args: argparse.Namespace) -> Any:
    """Fill the chosen variant's dataclass from parsed arguments; an option that only other variants have is a UserError."""
    names = {f.name for f in dataclasses.fields(variants[chosen])}
    for variant, cls in variants.items():
        for field in dataclasses.fields(cls):
            if hasattr(args, field.name) and field.name not in names:
                raise UserError(f"--{field.name.replace('_', '-')} belongs to --{option_name} {variant} and is not used by "
                                f"--{option_name} {chosen}; leave it out.")
    return variants[chosen](**{n: getattr(args, n) for n in names if hasattr(args, n)})


def from_args(cls: type[T], args: argparse.Namespace, **fixed: Any) -> T:
    """Fill the dataclass from parsed arguments; `fixed` values win."""
    names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # any dataclass
    return cls(**{**{n: getattr(args, n) for n in names if hasattr(args, n)}, **fixed})
