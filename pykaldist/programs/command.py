"""The command line of one of Kaldi's programs, made of a function: its parameters are arguments, its keyword parameters options.

    def feat_to_dim(feats: str, output: str = "-") -> int: ...      feat-to-dim [options] <feats> [<output>]

The docstring is the usage text. An option's type is that of its default; a line of the docstring that begins with `--name:` says what it
is for. Every program also has Kaldi's `--help`, `--config=FILE` (lines of `--name=value`), `--print-args` and `--verbose`. Options may be
written with `-` or `_` inside, as Kaldi's and OpenFst's are. Nothing that takes time is imported here: a program starts in a few hundredths
of a second.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from pykaldist.errors import UserError

#: What a program's docstring leaves out, since every program has it.
COMMON = """\
  --config: file of options, one `--name=value` a line
  --help: print this text
  --print-args: print the command line to the log (default: true)
  --verbose: how much is told in the log (default: 0)
"""
#: Files of programs that do not print their command line.
QUIET = ("openfst", "srilm", "kenlm", "kaldi_lm", "pocolm", "g2p", "score_details")


class Command:
    """A program with its name, its function, and what of it the command line needs."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        code = function.__code__
        self.name, self.function = name, function
        self.quiet = function.__module__.rpartition(".")[2] in QUIET
        self.options: dict[str, Any] = dict(function.__kwdefaults__ or {})
        self.most = code.co_argcount if not code.co_flags & 4 else 10**9
        self.takes_others = bool(code.co_flags & 8)  # options that are not listed go on to the function as text
        self.least = code.co_argcount - len(function.__defaults__ or ())

    def usage(self) -> str:
        """The docstring, with the options that every program has."""
        lines = [line.removeprefix("    ").rstrip() for line in (self.function.__doc__ or "").strip().splitlines()]
        text = "\n".join(lines).rstrip() + "\n"
        return text + ("\nOptions:\n" if "\nOptions:" not in text else "") + COMMON


def say(text: str) -> None:
    """Write a line to the log, which is stderr."""
    print(text, file=sys.stderr)


def values_of(command: Command, argv: list[str]) -> tuple[list[str], dict[str, Any], bool]:
    """The arguments, the options' values, and whether the command line is to be printed; raises UserError for what is no option."""
    values = dict(command.options)
    common = {"print_args": not command.quiet, "verbose": 0}
    arguments: list[str] = []
    queue = list(argv)
    while queue:
        word = queue.pop(0)
        if word == "--":
            arguments += queue
            break
        if not word.startswith("-") or word == "-" or not (word.startswith("--") or word[1].isalpha()):
            arguments.append(word)
            continue
        name, equals, text = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name == "config":
            queue[:0] = _config_lines(text if equals else queue.pop(0))
            continue
        if name not in values and name not in common and command.takes_others:
            values[name] = text if equals else "true" if not queue or queue[0].startswith("-") else queue.pop(0)
            continue
        target = values if name in values else common
        if name not in target:
            raise _error(f"there is no option {word.partition('=')[0]}; {command.name} --help lists the options.")
        default = target[name]
        if not equals:
            text = "true" if isinstance(default, bool) else queue.pop(0) if queue else ""
        target[name] = _value(word.partition("=")[0], text, default)
    return arguments, values, bool(common["print_args"])


def _config_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as stream:
            lines = [line.partition("#")[0].strip() for line in stream]
    except OSError as error:
        raise _error(f"--config={path} cannot be read ({error.strerror}); check the path.") from error
    for line in lines:
        if line and not line.startswith("--"):
            raise _error(f"{path}: expected lines of --name=value, found {line!r}.")
    return [line for line in lines if line]


def _value(option: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() in ("true", "t", "1", ""):
            return True
        if text.lower() in ("false", "f", "0"):
            return False
        raise _error(f"{option} is true or false, found {text!r}.")
    try:
        return type(default)(text)
    except ValueError as error:
        raise _error(f"{option}: expected {'an integer' if isinstance(default, int) else 'a number'}, found {text!r}.") from error


def _error(message: str) -> UserError:
    from pykaldist.errors import UserError

    return UserError(message)


def _quoted(word: str) -> str:
    """A word as the shell takes it, for the log."""
    plain = all(c.isalnum() or c in "-_=/.,:+@%^" for c in word) and word
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def _ended(signum: int, frame: object) -> NoReturn:
    signal.signal(signum, signal.SIG_DFL)  # a second one ends at once
    raise SystemExit(128 + signum)


def run(name: str, function: Callable[..., Any], argv: list[str]) -> int:
    """Run a program on its arguments; returns the exit status: 0, or 1 after one sentence on stderr, or what the function returns."""
    command = Command(name, function)
    if "--help" in argv or "-h" in argv:
        print(command.usage(), end="")
        return 0
    try:
        arguments, values, print_args = values_of(command, argv)
    except Exception as error:  # one that is no user's is raised again by _said
        return _said(name, error, argv)
    if not command.least <= len(arguments) <= command.most:
        print(command.usage(), end="", file=sys.stderr)
        if argv:
            some = f"{command.least}" if command.most == command.least else f"at least {command.least}" if command.most > 99 else \
                f"{command.least} to {command.most}"
            print(f"{name}: ERROR: expected {some} arguments, found {len(arguments)}.", file=sys.stderr)
        return 1
    if print_args:
        print(name, *(_quoted(word) for word in argv), file=sys.stderr, flush=True)
    try:
        status = int(function(*arguments, **values) or 0)
        sys.stdout.flush()
        return status
    except Exception as error:  # one that is no user's is raised again by _said
        return _said(name, error, argv)


def _said(name: str, error: Exception, argv: Sequence[str]) -> int:
    """Say an error that is the user's in one sentence; any other is a fault, and raised."""
    from pykaldist.cures import with_commands
    from pykaldist.errors import UserError, missing_package_sentence, os_error_sentence

    if isinstance(error, UserError):
        message = str(error)
    elif isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    elif isinstance(error, ModuleNotFoundError):
        message = missing_package_sentence(error)
    elif isinstance(error, OSError):
        message = os_error_sentence(error)
    elif isinstance(error, MemoryError):
        message = "out of memory; use a machine with more."
    else:
        raise error
    print(f"{name}: ERROR: {with_commands(message, argv)}", file=sys.stderr)
    return 1


def start(argv: list[str]) -> int:
    """Run the program argv[0] with the arguments behind it, as src/bin does: a process of its own; returns the exit status."""
    from pykaldist.programs.table import load

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as any program whose reader has gone
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _ended)
    try:
        function = load(argv[0])
    except ModuleNotFoundError as error:
        return _said(argv[0], error, argv[1:])
    return run(argv[0], function, argv[1:])
