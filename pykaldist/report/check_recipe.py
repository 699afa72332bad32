"""The check of a foreign recipe: which calls of its `run.sh` and `local/` are accepted here, by reading them only.

A call of a script of `steps/` or `utils/` is accepted where the script is here, has the options, and takes as many arguments.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError, to_utf8
from pykaldist.report.interfaces import RUNNERS, Interface, Interfaces
from pykaldist.report.shell_calls import Command, Word, commands, functions

ACCEPTED, OPTION, ARGUMENTS, UNKNOWN, LATER = "accepted", "option", "arguments", "unknown", "later"
# What this toolkit has not yet, by the scripts' names, whose calls are not counted.
TOPICS = (
    ("chain and nnet3 networks", r"/(nnet3|chain2?)/|align_fmllr_lats|gen_topo\.(py|pl)|^nnet3-|^chain-"),
    ("i-vectors", r"ivector|steps/online/"),
    ("nnet2 networks", r"steps/nnet2/|/nnet2/|^nnet2?-am-"),
    ("neural language models", r"rnnlm|pytorchnn|/tfrnnlm/"),
)
_SCRIPT = re.compile(r"^(?:.*/)?(?P<name>(?:steps|utils)/[^$*]+\.(?:sh|pl|py))$")
_LOCAL = re.compile(r"^(?:\./)?(?P<name>(?:local|\.\./\.\.)/[^$*]+)$")
_PROGRAM = re.compile(r"^(?:\$\{?KALDI_ROOT\}?/(?:src|tools)/\S*/)?"
                      r"(?P<name>[a-z][a-z0-9]*(?:[-_][a-z0-9]+)+|fst[a-z]+|arpa2fst|ngram|sph2pipe|"
                      r"sox|flac|ffmpeg|\w+\.(?:pl|py|sh))$")
_SEVERAL = re.compile(r"\$[@*]|\$\{?\w*opts?\b|\[@\]|\$\{\w+:[+-]")  # of a word before the arguments: it may stand for options

_MANY = re.compile(r"[*?]|\$[@*]|\[@\]|\$\(\)|\$\w*(dirs|sets|opts)\b|\{.*,.*\}")  # of an argument: it may stand for several


@dataclass
class Call:
    """A call of a script of `steps` or `utils`: where it stands, and what becomes of it here."""

    file: str
    line: int
    script: str
    verdict: str
    detail: str = ""
    counts: bool = True


@dataclass
class Checked:
    """What the check of one recipe has found. Programs: how often each is called, and which of them are not on PATH."""

    recipe: Path
    files: int = 0
    calls: list[Call] = field(default_factory=list)
    programs: Counter[str] = field(default_factory=Counter)
    missing_programs: set[str] = field(default_factory=set)
    missing_local: list[str] = field(default_factory=list)

    def number(self, *verdicts: str) -> int:
        """How many calls that count have one of the verdicts."""
        return sum(call.counts and call.verdict in verdicts for call in self.calls)

    @property
    def counted(self) -> int:
        return sum(call.counts for call in self.calls)


def check_recipe(run_sh: Path, interfaces: Interfaces, only_run: bool = False) -> Checked:
    """Read a recipe's `run.sh`, the scripts of its own that it and they name, and its local/score.sh; `only_run` leaves all but run.sh out.

    Raises UserError where there is no such file, or it is no text.
    """
    if not run_sh.is_file():
        raise UserError(f"{run_sh} does not exist; name a recipe's run.sh.")
    folder, result = _recipe_of(run_sh), Checked(run_sh)
    waiting = [run_sh] if only_run else [run_sh, *_own_scoring(folder)]
    seen = {file.resolve() for file in waiting}
    while waiting:
        file = waiting.pop(0)
        try:
            text = file.read_text(encoding="utf-8", errors="replace" if file != run_sh else "strict")
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is no shell script in UTF-8 (byte {error.start}); {to_utf8(file)}.") from error
        result.files += 1
        own, shown = _functions(text, folder, interfaces.root), str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        for command in commands(text):
            for name in _look_at(command, shown, own, interfaces, result):
                script = folder / name
                if not script.is_file():
                    if name.startswith("local/"):
                        result.missing_local.append(f"{file.name}:{command.line}: {name}")
                elif script.resolve() not in seen and not only_run:
                    seen.add(script.resolve())
                    if _is_shell(script):
                        waiting.append(script)
    return result


def _recipe_of(script: Path) -> Path:
    """The folder of the recipe that a script belongs to: its own, or that above `local`."""
    above = (folder.parent for folder in script.parents if folder.name == "local")
    return next((folder for folder in above if (folder / "path.sh").is_file()), script.parent)


def _own_scoring(folder: Path) -> list[Path]:
    """The recipe's local/score.sh, which the scripts that decode call; none where it is a link to one of `steps`."""
    script = folder / "local/score.sh"
    return [script] if script.is_file() and not script.resolve().is_relative_to((folder / "steps").resolve()) else []


def _functions(text: str, folder: Path, root: Path) -> set[str]:
    """The functions that a script defines, and those of what it sources of the recipe or of utils."""
    found = functions(text)
    for command in commands(text):
        if command.name in (".", "source") and command.words:
            name = command.words[0].text
            places = (folder / name, folder / name.rpartition("$()/")[2], *(root / "utils" / part / name for part in ("", "shared")))
            found |= next((functions(path.read_text(encoding="utf-8", errors="replace")) for path in places if path.is_file()), set())
    return found


def _is_shell(path: Path) -> bool:
    with open(path, "rb") as stream:
        first = stream.readline(200)
    return path.suffix == ".sh" or (first.startswith(b"#!") and b"sh" in first)


def _look_at(command: Command, file: str, own: set[str], interfaces: Interfaces, result: Checked) -> Iterator[str]:
    """Enter a command into the result; yields the recipe's own scripts that it names."""
    name, words = command.name, command.words
    sourced = name in (".", "source")
    if sourced and words:
        name, words = words[0].text, words[1:]
    if name in own:
        return
    if local := _LOCAL.match(name):
        yield local["name"]
    if sourced and re.match(r"^(?:\./)?\w+\.sh$", name) and name.removeprefix("./") not in interfaces.tool_names:
        yield name.removeprefix("./")
        return
    bare = name in interfaces.tool_names or name in RUNNERS
    script = _SCRIPT.match(f"utils/{name}" if bare else name)
    if script and not local:
        result.calls.append(_judge(Call(file, command.line, script["name"], ACCEPTED), words, interfaces))
    elif not sourced and (program := _PROGRAM.match(name)):
        result.programs[program["name"]] += 1
        known = shutil.which(program["name"]) or program["name"] in interfaces.verbs
        if not known and not _brought(program["name"], result, interfaces):
            result.missing_programs.add(program["name"])


def _brought(program: str, result: Checked, interfaces: Interfaces) -> bool:
    """Whether a program is under `tools` here, or the recipe has it in a folder of local/, such as local/dict: scripts put both on PATH."""
    return any(interfaces.root.glob(f"tools/**/{program}")) or any((result.recipe.parent / "local").glob(f"*/{program}"))


def topic_of(name: str) -> str | None:
    """What a script or program belongs to that is not here yet; None for all else."""
    return next((topic for topic, pattern in TOPICS if re.search(pattern, name)), None)


def _judge(call: Call, words: list[Word], interfaces: Interfaces) -> Call:
    interface = interfaces.of(call.script)
    if interface is None:
        topic = topic_of(call.script)
        call.verdict, call.detail = (LATER, f"belongs to {topic}") if topic else (UNKNOWN, "there is no such script")
        call.counts = topic is None
        return call
    names, arguments, variable = _divide(words, interface)
    lacking = [name for name in names if not interface.any_option and name.replace("_", "-") not in interface.options]
    least, most = interface.arguments
    if lacking:
        call.verdict, call.detail = OPTION, f"has no option {', '.join('--' + name for name in lacking)}"
    elif not variable and not least <= arguments <= most and not call.script.endswith("parse_options.sh"):
        takes = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        call.verdict, call.detail = ARGUMENTS, f"takes {takes} arguments, here are {arguments}"
    return call


def _divide(words: list[Word], interface: Interface) -> tuple[list[str], int, bool]:
    """The options' names of a call, the number of its arguments, and whether variables may hold more of either."""
    names: list[str] = []
    i, variable = 0, False
    while i < len(words):
        text = words[i].text
        option = re.match(r"^--?([A-Za-z][\w.-]*)(=)?", text)
        if option is None:
            several = (not words[i].quoted or "[@]" in text) and bool(_SEVERAL.search(text))  # an array is several words in quotes, too
            if text == "--" or not several:
                break
            variable = True
            i += 1
            continue
        names.append(option[1])
        i += 1 if option[2] or not interface.options.get(option[1].replace("_", "-"), True) else 2
    rest = [word for word in words[i:] if word.text or word.quoted]
    variable |= any(word.text == "$@" or "[@]" in word.text or (not word.quoted and _MANY.search(word.text)) for word in rest)
    return names, len(rest), variable


def lines(checked: Checked) -> Iterator[str]:
    """What the check of a recipe has found, as text: each call that is not accepted, programs that are missing, the sums."""
    for call in checked.calls:
        if call.verdict != ACCEPTED:
            yield f"{call.file}:{call.line}: {call.script}: {call.detail}"
    yield from (f"{text}: the recipe has no such script" for text in checked.missing_local)
    for name in sorted(checked.missing_programs):
        topic = topic_of(name)
        times = checked.programs[name]
        yield f"program {name} ({times} call{'s' * (times > 1)}): " + (f"belongs to {topic}" if topic else "it is not on PATH")
    yield (f"{checked.recipe}: {checked.number(ACCEPTED)} of {checked.counted} calls of steps/ and utils/ are accepted{_share(checked)}; "
           f"{checked.number(OPTION)} have an option that is not here, {checked.number(ARGUMENTS)} other arguments, "
           f"{checked.number(UNKNOWN)} name an unknown script; not counted: {len(checked.calls) - checked.counted} of {_topics()}")


def _share(checked: Checked) -> str:
    return f" ({100 * checked.number(ACCEPTED) / checked.counted:.0f} %)" if checked.counted else ""


def _topics() -> str:
    *most, last = [topic for topic, _ in TOPICS]
    return f"{', '.join(most)} and {last}"


def table(all_checked: Iterable[Checked]) -> Iterator[str]:
    """The sums of several recipes as a Markdown table, the sum of all at its end."""
    yield "| recipe | calls | accepted | option | arguments | unknown | not counted |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    total = Checked(Path("all"))
    for checked in all_checked:
        total.calls += checked.calls
        yield _row("/".join(checked.recipe.parts[-3:-1]) or str(checked.recipe), checked)
    yield _row("together", total)


def _row(name: str, checked: Checked) -> str:
    return (f"| {name} | {checked.counted} | {checked.number(ACCEPTED)}{_share(checked)} | {checked.number(OPTION)} | "
            f"{checked.number(ARGUMENTS)} | {checked.number(UNKNOWN)} | {len(checked.calls) - checked.counted} |")
