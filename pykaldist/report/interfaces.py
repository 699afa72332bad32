"""The interfaces of this project's scripts, found out from the scripts themselves: for `utils/check_recipe.sh`.

A script that reads its options with `utils/parse_options.sh` is asked for its usage text and for the variables that may be set; one that
hands its arguments to a verb takes the verb's options; the text tools stand in a table. No script does anything more than print.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pykaldist.cures import printed_by

RUNNERS = ("run.pl", "queue.pl", "slurm.pl", "ssh.pl", "pbs.pl", "retry.pl")
LIST_OPTIONS = "PYKALDIST_LIST_OPTIONS"  # set, `--help` prints the names of a script's variables too: parse_options.sh
_OPTION = re.compile(r"(?<![\w-])--?([a-zA-Z][\w-]*(?:\.[\w-]+)*)")
_SEVERAL = re.compile(r"(--[\w.-]*)\{([\w.,\s-]+)\}")  # --egs.{cmd,nj}: several options that begin alike
_FLAGS = re.compile(r"^ +(--[\w-]+(?:, --[\w-]+)*) +#", re.MULTILINE)  # options without a value
_VERB = re.compile(r'pykaldist ([a-z][a-z0-9-]+)\b[^\n]*"\$(?:@|\{options\[@\]\})"')
_SOURCED = re.compile(r'^\. "\$\(dirname "\$\{BASH_SOURCE\[0\]\}"\)/([^"]+)"', re.MULTILINE)
_USED = re.compile(r"^(?:Usage|   or| +or|usage): +(.*)$", re.MULTILINE)
_SHOWN_OPTIONS = re.compile(r"\[-[^\[\]]*\]|\[(?:options|<[\w-]*options?>)[^\]]*\]|"
                            r"(?<![\w<-])-{1,2}[\w-]+(?:[ =]<[^>]*>)?(?:\|-{1,2}[\w-]+(?:[ =]<[^>]*>)?)*")


@dataclass
class Interface:
    """What a script takes: its options with whether they take a value, and how many arguments."""

    options: dict[str, bool] = field(default_factory=dict)
    arguments: tuple[float, float] = (0, math.inf)
    any_option: bool = False


def numbers_of_arguments(usage: str) -> tuple[float, float]:
    """Fewest and most arguments by the lines `Usage: script [options] <a> [<b>]` of a usage text."""
    found = []
    for line in _USED.findall(usage):
        if " | " in line and "<" in line.rpartition(" | ")[0]:
            line = line.rpartition(" | ")[2]  # utils/best_wer.sh: what reads a pipe
        line = _SHOWN_OPTIONS.sub(" ", re.sub(r"(?<= )[<>] <[^>]*>", " ", line))
        least = len(re.findall(r"<[^>]*>", re.sub(r"\[(?:[^\[\]]|\[[^\]]*\])*\]", " ", line)))
        found.append((least, math.inf if "..." in line else len(re.findall(r"<[^>]*>", line))))
    return (min((a for a, _ in found), default=0), max((b for _, b in found), default=math.inf))


LATER = "later"  # the script in `utils` to which the names of scripts lead that are not here yet


class Interfaces:
    """The interfaces of the scripts below a folder that has `steps` and `utils`.

    `verb_options` gives the options of one of the `verbs` of `pykaldist`; `tools` has the text tools' interfaces by file name.
    """

    def __init__(self, root: Path, verbs: Collection[str], verb_options: Callable[[str], dict[str, bool]],
                 tools: dict[str, Interface]) -> None:
        self.root, self.verbs, self.verb_options, self.tools = root, verbs, verb_options, tools
        self._known: dict[str, Interface | None] = {}

    def of(self, name: str) -> Interface | None:
        """The interface of `steps/...` or `utils/...`; None where there is no such script. A name that leads out of there is none."""
        if name not in self._known:
            path = self.root / name
            own = ".." not in path.parts and path.is_file() and path.resolve().name != LATER  # for it is asked for its usage text
            self._known[name] = self._find(path) if own else None
        return self._known[name]

    @cached_property
    def tool_names(self) -> set[str]:
        """The file names in `utils`, which recipes call without their folder too."""
        return {path.name for path in (self.root / "utils").iterdir() if path.is_file()}

    def _find(self, path: Path) -> Interface:
        if path.name in RUNNERS or path.name in ("parse_options.sh", "setup_venv.sh") or not os.access(path, os.X_OK):
            return Interface(any_option=True)  # conf/queue.conf says which options a queue has; setup_venv.sh sets up at once
        if path.is_symlink() and path.name in self.tools:  # the file of all tools; a script of steps may have the same name
            return self.tools[path.name]
        text = path.read_text(encoding="utf-8")
        sourced = [path.parent / name for name in _SOURCED.findall(text)]
        text += "".join(other.read_text(encoding="utf-8") for other in sourced if other.is_file())
        usage, variables = self._ask(path)
        spelled = _SEVERAL.sub(lambda found: " ".join(found[1] + name.strip() for name in found[2].split(",")), usage)
        named = {name.replace("_", "-") for name in _OPTION.findall(spelled)}
        arguments = numbers_of_arguments(usage)
        flags = {name: False for line in _FLAGS.findall(usage) for name in _OPTION.findall(line)}
        if variables:
            return Interface({**dict.fromkeys((named & variables) | {"config", "deterministic"}, True), **flags}, arguments)
        options = {**dict.fromkeys(named, True), **flags}
        for verb in _VERB.findall(text):
            options.update(self.verb_options(verb) if verb in self.verbs else {})
        return Interface(options, arguments)

    def _ask(self, path: Path) -> tuple[str, set[str]]:
        """A script's usage text, and the names that its options may have; none where it does not read them with parse_options.sh."""
        for arguments in (["--help"], []):
            shown = printed_by(path, arguments, self.root, {LIST_OPTIONS: "true"})
            if "sage:" in shown:
                usage, _, names = shown.partition("\nvariables:\n")
                return usage, {name.replace("_", "-") for name in names.split() if name[0].islower() and name not in os.environ}
        return "", set()
