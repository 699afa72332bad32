"""The command `pykaldist <verb>`: one thin module a verb in this package.

A verb module has a docstring whose first line is its help, `add_arguments(parser)` and `run(args) -> int | None`. Where it sets INTERMIXED,
its options may stand between arguments of which there may be any number.
It is found by its file name (`train_mono.py` is `pykaldist train-mono`), and only the module asked for is imported. Kaldi's programs, which
`pykaldist.programs` lists, are run by their names, too, with Kaldi's command lines.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import NoReturn

from pykaldist import __version__, deterministic, interrupts, scheduling, usage
from pykaldist.cures import with_commands
from pykaldist.errors import Terminated, UserError, missing_package_sentence, os_error_sentence, out_of_memory_sentence
from pykaldist.jobs.guard import LOG
from pykaldist.programs.command import run as run_program
from pykaldist.programs.table import PROGRAMS
from pykaldist.programs.table import load as load_program

_HERE = Path(__file__).parent
TOLD = "PYKALDIST_TOLD"  # set where the script that called has said already what is done; a job's launcher (PYKALDIST_JOB) has, too


def _first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.splitlines()[0] if doc else ""


def verbs() -> dict[str, str]:
    """The verbs with the first lines of their help, read without importing anything."""
    return {path.stem.replace("_", "-"): _first_line(path) for path in sorted(_HERE.glob("*.py")) if not path.stem.startswith("_")}


def _module(verb: str) -> Path | None:
    path = _HERE / f"{verb.replace('-', '_')}.py"
    return path if path.is_file() and not verb.startswith("_") else None


def say_what(argv: list[str]) -> bool:
    """Say at once what the verb does, before what it needs is imported; returns whether it was said.

    It prints the first line of the verb's help, on stdout where help is asked for, else on stderr.
    """
    path = _module(argv[0]) if argv else None
    asked = any(argument in ("-h", "--help") for argument in argv)
    if path is None or ((TOLD in os.environ or "PYKALDIST_JOB" in os.environ) and not asked):
        return False
    print(f"pykaldist {argv[0]}: {_first_line(path)}", file=sys.stdout if asked else sys.stderr, flush=True)
    os.environ[TOLD] = "true"  # the processes of its job need not say it again
    return True


def _usage() -> str:
    lines = [f"pykaldist {__version__}", "usage: pykaldist <verb> [options] ...   (pykaldist <verb> --help for one verb)", ""]
    lines += [f"  {verb:22s} {text}" for verb, text in verbs().items()]
    programs = textwrap.wrap(" ".join(sorted(PROGRAMS)), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([*lines, "", "Kaldi's and OpenFst's programs, which src/bin has by their own names:", *programs])


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one sentence, as all errors are reported."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ") if message.startswith("unrecognized arguments: --") else ""
        near = difflib.get_close_matches(unknown.split(" ")[0].split("=")[0], self._option_string_actions, 1) if unknown else []
        if near:
            message = f"there is no option {unknown.split(' ')[0].split('=')[0]}, the nearest is {near[0]}"
        self.exit(2, f"{self.prog}: ERROR: {message.removeprefix('argument ')}; {self.prog} --help lists the options.\n")


def _terminated(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough, also for what cleans up
    raise Terminated


def _hung_up(signum: int, frame: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # a terminal that is closed is to a verb as SIGTERM, which trainings and launchers handle


def main(argv: list[str] | None = None, told: bool = False) -> int:
    """Run a verb; returns the exit status. `told`: the first line of the verb's help has been printed."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if argv else 1
    if argv[0] == "--version":
        print(__version__)
        return 0
    verb = argv[0]
    if verb in PROGRAMS:
        return run_program(verb, load_program(verb), argv[1:])
    if _module(verb) is None:
        near = difflib.get_close_matches(verb, [*verbs(), *PROGRAMS], 1)
        nearest = f", the nearest is {near[0]}" if near else ""
        print(f"pykaldist: there is no verb {verb!r}{nearest}; `pykaldist --help` lists them.", file=sys.stderr)
        return 2
    scheduling.ask_for_short_time_slices()
    try:
        deterministic.start(argv[1:])  # before the verb loads numpy or PyTorch
        module = importlib.import_module(f"pykaldist.cli.{verb.replace('-', '_')}")
    except ModuleNotFoundError as error:
        print(f"pykaldist {verb}: ERROR: {missing_package_sentence(error)}", file=sys.stderr)
        return 1
    except UserError as error:
        print(f"pykaldist {verb}: ERROR: {error}", file=sys.stderr)
        return 1
    description = "".join((module.__doc__ or "").splitlines(keepends=True)[1 if told else 0 :])
    parser = _Parser(prog=f"pykaldist {verb}", description=description, allow_abbrev=False,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    parse = parser.parse_intermixed_args if getattr(module, "INTERMIXED", False) else parser.parse_args
    args = parse(argv[1:], argparse.Namespace(argv=argv))
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # by nohup
        signal.signal(signal.SIGHUP, _hung_up)
    try:
        with interrupts.Working():
            status = int(module.run(args) or 0)
        taken = usage.ending(verb)
        if taken is not None and LOG in os.environ:
            print(taken, file=sys.stderr, flush=True)
        return status
    except UserError as error:
        message = str(error)
    except Terminated as error:
        print(f"pykaldist {verb}: terminated; {str(error) or interrupts.GO_ON}.", file=sys.stderr)
        return 128 + signal.SIGTERM
    except ModuleNotFoundError as error:
        message = missing_package_sentence(error)
    except MemoryError:
        message = "out of memory; use fewer jobs (--nj) or a machine with more."
    except KeyboardInterrupt as error:
        print(interrupts.line(verb, str(error)), end="", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        raise  # see `entry` of __main__.py
    except OSError as error:
        message = os_error_sentence(error)
    except RuntimeError as error:
        sentence = out_of_memory_sentence(error)
        if sentence is None:
            raise
        message = sentence
    finally:
        if signal.getsignal(signal.SIGTERM) == _terminated:  # while Python ends, an exception has nobody to catch it
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(f"pykaldist {verb}: ERROR: {with_commands(message, argv[1:])}", file=sys.stderr)
    return 1
