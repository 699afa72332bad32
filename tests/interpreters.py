"""Set-up, the default recipe and the quick tests under each Python from 3.10 to 3.14 that this machine has.

Each works on a fresh clone of this checkout's last commit in a temporary folder (up to 7 GB, removed afterwards). Pythons are looked for on
PATH, under ~/.pyenv/versions and by uv; --python names others. A table says what came out of each command, in how many seconds, and which
Pythons were not there; the logs stay in --out. Status 1 where a command failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
COMMANDS = {"setup": ["utils/setup_venv.sh"], "recipe": ["egs/prompts/s5/run.sh"], "tests": ["tests/run.sh"]}


@dataclass
class Row:
    """A line of the table."""

    version: str
    what: str
    seconds: float
    result: str
    failed: bool = False


def version_of(python: str) -> str:
    """An interpreter's version, as 3.12.1; '' where it does not run."""
    try:
        asked = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True,
                               check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def candidates(environment: dict[str, str]) -> Iterator[str]:
    """Interpreters on PATH (this checkout's own aside), under ~/.pyenv/versions, and those that uv knows."""
    path = environment.get("PATH", "")
    for name in [f"python{version}" for version in VERSIONS] + ["python3"]:
        found = shutil.which(name, path=path)
        if found:
            yield found
    yield from map(str, sorted((Path(environment.get("HOME", "/")) / ".pyenv" / "versions").glob("3.*/bin/python")))
    uv = shutil.which("uv", path=path)
    if uv:
        known = subprocess.run([uv, "python", "list", "--only-installed"], env=environment, capture_output=True, text=True, check=False)
        yield from (line.split()[1] for line in known.stdout.splitlines() if len(line.split()) > 1)


def choose(pythons: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Each of VERSIONS that is there -> (whole version, interpreter): the first one found."""
    found: dict[str, tuple[str, str]] = {}
    for python in pythons:
        whole = version_of(python)
        minor = ".".join(whole.split(".")[:2])
        if minor in VERSIONS and minor not in found:
            found[minor] = (whole, python)
    return found


def wers(recipe: Path) -> str:
    """The test set's WER of each system that a recipe has scored, at the LMWT that was best on the development set."""
    chosen = {file.parent.parent.name: file.read_text(encoding="utf-8") for file in sorted(recipe.glob("exp/*/decode/dev_chosen_wer"))}
    return ", ".join(f"{system} {re.findall(r'%WER ([0-9.]+)', line)[0]} %" for system, line in chosen.items())


def summary(log: str) -> str:
    """pytest's closing line, without its frame."""
    lines = [line.strip("= ") for line in log.splitlines() if re.search(r"\d+ (passed|failed|skipped|errors?)\b.* in ", line)]
    return lines[-1] if lines else ""


def outcome(what: str, clone: Path, log: str) -> str:
    """What a command that succeeded has given."""
    if what == "recipe":
        return wers(clone / "egs" / "prompts" / "s5")
    if what == "tests":
        return summary(log)
    ask = "import importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in ('torch', 'numpy', 'numba')))"
    return subprocess.run([clone / ".venv" / "bin" / "python", "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def try_one(version: str, python: str, args: argparse.Namespace, environment: dict[str, str]) -> Iterator[Row]:
    """Run the commands with one interpreter, up to one that fails; a row each."""
    with tempfile.TemporaryDirectory(prefix=f"pykaldist-{version}-", dir=args.tmp) as folder:
        clone = Path(folder) / "pykaldist"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for what in COMMANDS:
            if what not in args.what and what != "setup":  # which each of the others needs
                continue
            options = {"recipe": args.recipe_opts, "tests": args.test_opts}.get(what, "")
            path = args.out / f"{version}.{what}.log"
            start = time.monotonic()
            with open(path, "w", encoding="utf-8") as stream:
                status = subprocess.run([*COMMANDS[what], *shlex.split(options)], cwd=clone, stdin=subprocess.DEVNULL, stdout=stream,
                                        stderr=subprocess.STDOUT, env={**environment, "PYKALDIST_SETUP_PYTHON": python},
                                        check=False).returncode
            seconds, log = time.monotonic() - start, path.read_text(encoding="utf-8", errors="replace")
            if status:
                last = summary(log) or next((line for line in reversed(log.splitlines()) if line.strip()), "no output")
                yield Row(version, what, seconds, f"FAILED ({status}): {last} (log: {path})", failed=True)
                return
            yield Row(version, what, seconds, outcome(what, clone, log))


def table(rows: list[Row], absent: list[str]) -> str:
    """The table that README and issues show."""
    lines = ["| Python | command | seconds | result |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.version} | {row.what} | {row.seconds:.0f} | {row.result} |" for row in rows]
    return "\n".join(lines + [f"Not on this machine: Python {', '.join(absent)}."] * bool(absent))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/interpreters.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[],
                        help="an interpreter to try in place of one that is looked for; may be repeated")
    parser.add_argument("--only", default=",".join(VERSIONS), help="versions to try (default: %(default)s)")
    parser.add_argument("--what", default=",".join(COMMANDS), help="commands to run; set-up always is (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "bench" / "out" / "interpreters", help="folder of logs and table.md")
    parser.add_argument("--tmp", help="folder for the clones (default: the system's)")
    parser.add_argument("--recipe-opts", default="", help="options for egs/prompts/s5/run.sh, such as '--corpus /data/prompts'")
    parser.add_argument("--test-opts", default="", help="arguments for tests/run.sh, such as 'tests/nnet tests/hmm'")
    args = parser.parse_args()
    args.what, only, args.out = args.what.split(","), args.only.split(","), args.out.resolve()
    wrong = [word for word in args.what if word not in COMMANDS] + [word for word in only if word not in VERSIONS]
    if wrong:
        sys.exit(f"interpreters.sh: ERROR: there is no {wrong[0]}; --what takes {','.join(COMMANDS)}, --only {','.join(VERSIONS)}.")
    for python in args.python:
        if not version_of(python):
            sys.exit(f"interpreters.sh: ERROR: --python {python} does not run as a Python; correct the path.")
    args.out.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYKALDIST_", "PYTHONPATH"))}
    own["PATH"] = os.pathsep.join(folder for folder in own["PATH"].split(os.pathsep) if not Path(folder).is_relative_to(ROOT))
    environment = {**own, "PYKALDIST_SHARED": os.environ.get("PYKALDIST_SHARED", str(ROOT.parent / "shared"))}
    found = {minor: choice for minor, choice in choose([*args.python, *candidates(own)]).items() if minor in only}
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if changed:
        print("interpreters.sh: WARNING: what is not committed is not tried.", file=sys.stderr)
    rows: list[Row] = []
    for minor in sorted(found, key=VERSIONS.index):
        version, python = found[minor]
        print(f"interpreters.sh: Python {version} ({python}) ...", file=sys.stderr)
        for row in try_one(version, python, args, environment):
            rows.append(row)
            print(f"interpreters.sh: {row.version} {row.what}: {row.seconds:.0f} s, {row.result}", file=sys.stderr)
    text = table(rows, [minor for minor in only if minor not in found])
    (args.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(any(row.failed for row in rows) or not rows)


if __name__ == "__main__":
    sys.exit(main())
