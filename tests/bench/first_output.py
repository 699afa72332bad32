"""Seconds to the first output of every script and every verb; usage: [--runs N]."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pykaldist.cli import verbs

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 0.5


def seconds(command: list[str], folder: Path) -> float:
    """From starting the command to its first byte on stdout or stderr, in a process that is ended then."""
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as process:
        assert process.stdout is not None
        if not process.stdout.read(1):
            raise SystemExit(f"{' '.join(command)} said nothing")
        taken = time.perf_counter() - start
        process.kill()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts (default: 3)")
    runs = parser.parse_args().runs
    os.environ.pop("PYKALDIST_TOLD", None)
    commands = {f"pykaldist {verb}{more}": [sys.executable, "-m", "pykaldist", verb, *more.split()] for verb in verbs()
                for more in ("", " --help")}
    for folder in ("steps", "steps/nnet", "utils"):
        for script in sorted((ROOT / folder).glob("*.sh")):
            if os.access(script, os.X_OK) and script.name not in ("best_wer.sh", "parse_options.sh", "setup_venv.sh"):
                count = 3 if script.name == "subset_data_dir.sh" else _arguments(script)
                commands[f"{folder}/{script.name}"] = [str(script), *["x"] * count]
    with tempfile.TemporaryDirectory() as name:
        for link in ("steps", "utils", "path.sh"):
            (Path(name) / link).symlink_to(ROOT / link)
        taken = {what: statistics.median(seconds(command, Path(name)) for _ in range(runs)) for what, command in commands.items()}
    for what, s in sorted(taken.items(), key=lambda item: -item[1]):
        print(f"{s:6.2f} s  {what}{'   OVER ' + str(LIMIT_S) if s > LIMIT_S else ''}")
    print(f"{sum(s > LIMIT_S for s in taken.values())} of {len(taken)} take longer than {LIMIT_S} s")


def _arguments(script: Path) -> int:
    usage = subprocess.run([script, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return max(1, usage.count("<") - usage.count("[<"))


if __name__ == "__main__":
    main()
