"""Command lines under an error: where a sentence names a script to run, the command to paste.

A sentence such as "make the graph again (utils/mkgraph.sh)" is read for scripts that stand there without arguments. Each gets a line:

- `command:` and the command with which that script made a folder that the sentence or the command line names, from the folder's record
  (`pykaldist.io.provenance`);
- `e.g.:` and the example of the script's own usage text, in which the folders that are known (data, language, model, graph, ...) stand
  in the places that the usage gives them.

All of this happens after an error, so that it may take the tenths of a second that a script's --help takes, and fails in silence.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = "inputs.json"  # of pykaldist.io.provenance, which this module stands below
INDENT = "  "  # of the lines under a sentence
_SCRIPT = re.compile(r"(?<![\w./}-])((?:steps|utils)/[\w./-]+\.(?:sh|py|pl))(?=(?:[;:,.)`'\s]|$))")
_PATH = re.compile(r"[^\s,;:()'`=]+")
_OPTION = re.compile(r"--[a-zA-Z][\w.-]*")

# Kinds of folders: the names that usage texts give them, files that such a folder has, and what its name looks like.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "data": (("data", "data-dir"), ("utt2spk", "wav.scp", "feats.scp"), r"data[\w-]*/(?!lang|local)[^/]+"),
    "lang": (("lang", "lang-dir"), ("L.fst", "topo", "oov.int"), r"(?:.*/)?lang[^/]*"),
    "graph": (("graph-dir",), ("HCLG.fst", "HCLr.fst"), r"(?:.*/)?graph[^/]*"),
    "decode": (("decode-dir",), ("lat.1.gz",), r"(?:.*/)?decode[^/]*"),
    "alignment": (("ali-dir", "alignment-dir", "alignment"), ("ali.1.gz",), r".*_ali[^/]*"),
    "model": (("model-dir", "src-dir", "exp-dir"), ("final.mdl", "final.nnet", "final.raw"), r"$."),
    "store": (("store-dir",), ("train/manifest.json", "manifest.json"), r"(?:.*/)?store"),
    "lattices": (("denlats-dir",), ("dengraph",), r".*denlats[^/]*"),
}


def with_commands(message: str, argv: Sequence[str] = ()) -> str:
    """A sentence with the command lines under it that it asks for; `argv` is the command line that ended in it."""
    if "PYKALDIST_JOB" in os.environ:  # a process of a job, whose launcher says its error
        return message
    try:
        return "\n".join([message, *_lines(message, argv)])
    except (OSError, ValueError):  # what stands on a disk, or in a usage text, is not as expected: the sentence does without
        return message


def _lines(message: str, argv: Sequence[str]) -> list[str]:
    scripts = [match[1] for match in _SCRIPT.finditer(message) if not _has_arguments(message[match.end() :])]
    if not scripts:
        return []
    said = list(_folders(_PATH.findall(message)))
    given = list(_folders([word.partition("=")[2] or word for word in argv]))
    lines = [f"{INDENT}command: {made}" if (made := _as_made(script, [*said, *given])) else
             f"{INDENT}e.g.: {example}" if (example := _example(script, said, given)) else "" for script in dict.fromkeys(scripts)]
    return [line for line in lines if line]


def _has_arguments(rest: str) -> bool:
    """Whether a script's name goes on with arguments: an option, a path, a redirection."""
    word = rest.split(maxsplit=1)[0] if rest[:1] == " " and rest.strip() else ""
    return word.startswith(("-", "<", ">")) or "/" in word.strip("().,;") or os.path.exists(word.rstrip("().,;"))


def _folders(words: Sequence[str]) -> Iterator[str]:
    """Folders that words name: paths that are there or were expected, and the two folders above each."""
    for word in words:
        path = word.rstrip(".")
        if "/" not in path and not os.path.isdir(path):
            continue
        for _ in range(3):
            if path in ("", ".", "/", ".."):
                break
            yield path
            path = os.path.dirname(path)


def _as_made(script: str, folders: Sequence[str]) -> str:
    """The command by which a script made the first of the folders that has its record; '' where none has."""
    for folder in dict.fromkeys(folders):
        path = Path(folder) / RECORD
        if not path.is_file():
            continue
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known, dict) and known.get("made_by") == script and known.get("command"):
            place = os.path.normpath(os.path.join(os.path.abspath(folder), known.get("cwd") or "."))
            return known["command"] if place == os.getcwd() else f"cd {shlex.quote(place)} && {known['command']}"
    return ""


def _example(script: str, said: Sequence[str], given: Sequence[str]) -> str:
    """The first example of a script's usage text, with the folders in it that are known; '' where the script is not there."""
    usage = _usage(script)
    forms = re.search(r"^Usage: +\S+(.*)$", usage, re.MULTILINE)
    example = re.search(r"^ *e\.g\.: *((?:.*\\\n)*.*)$", usage, re.MULTILINE)
    if not example:
        return ""
    text = re.sub(r" *--cmd +\"\$\w+\"", "", re.sub(r" *\\\n *", " ", example[1]))  # a recipe's cmd.sh sets that variable
    words = re.findall(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""", text)
    places = re.findall(r"(--[\w.-]+ )?<([\w|-]+)>", forms[1] if forms else "")
    if re.search(r"[|<>]", text):  # a pipe: its parts have arguments of their own
        return text
    trains = os.path.basename(script).startswith("train")  # hardly on the data of the command that failed
    own, before = 0, ""
    beside: dict[str, str] = {}
    unknown: list[int] = []
    for number, word in enumerate(words):
        option, is_option = before, _OPTION.fullmatch(word) is not None
        before = word if is_option and "=" not in word else ""
        if number == 0 or is_option:
            continue
        if option:
            place = next((name for named, name in places if named.strip() == option), "")
        else:
            plain = [name for named, name in places if not named]
            place = plain[own] if own < len(plain) else ""
            own += 1
        known = _known(place, said) or ("" if place.startswith("data") and trains else _known(place, given))
        if known:
            words[number] = shlex.quote(known)
            beside[os.path.dirname(word)] = os.path.dirname(known)
        elif place in ("graph-dir", "lang-dir|graph-dir"):
            unknown.append(number)
    for number in unknown:  # the graph of a model stands beside its decode directories
        folder, name = os.path.split(words[number])
        folder = beside.get(folder, folder)
        there = [path.parent for path in Path(folder).glob("graph*/HCL*.fst")]
        words[number] = shlex.quote(str(there[0]) if len(there) == 1 else os.path.join(folder, name))
    return " ".join(words)


def _known(place: str, folders: Sequence[str]) -> str:
    """The one folder of the kind that a usage text asks for; '' where there is none, or more than one."""
    for kind in place.split("|"):
        for names, files, form in _KINDS.values():
            if kind not in names:
                continue
            there = list(dict.fromkeys(os.path.normpath(folder) for folder in folders
                                       if any((Path(folder) / file).exists() for file in files)))
            if kind in _KINDS["model"][0]:
                there = [folder for folder in there if not folder.endswith("_ali")]  # alignments have copies of their model
            by_name = list(dict.fromkeys(os.path.normpath(folder) for folder in folders if re.fullmatch(form, folder)))
            for found in (there, by_name):
                if len(found) == 1:
                    return found[0]
                if found:
                    return ""
    return ""


def _usage(script: str) -> str:
    """What a script prints with --help; '' where it is not there, as beside an installed package."""
    return printed_by(ROOT / script, ["--help"], ROOT) if (ROOT / script).is_file() else ""


def printed_by(path: Path, arguments: Sequence[str], root: Path, variables: Mapping[str, str] | None = None) -> str:
    """What a script of a checkout prints for its usage text, in a folder that has no path.sh; `variables` of its environment are more."""
    folders = [str(root / "utils"), str(root / "utils/shared"), str(root / "src/bin"), os.environ.get("PATH", "")]
    env = {**os.environ, "PATH": ":".join(folders), "PYKALDIST_TOLD": "true", "PYKALDIST_ROOT": str(root), **(variables or {})}
    with tempfile.TemporaryFile("w+") as stream:  # no pipe: what a script leaves running would hold it open
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([str(path), *arguments], cwd=root / "utils", env=env, stdin=subprocess.DEVNULL, stdout=stream,
                           stderr=subprocess.STDOUT, check=False, timeout=30)
        stream.seek(0)
        return stream.read()
