"""Checksums of a whole recipe on emulated CPUs, with several numbers of threads and jobs, in the deterministic mode or without."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "recipes"))

from checksums import CPUS, recipe_checksums, threads  # noqa: E402  # tests/recipes is on sys.path only after the line above

RUNS = "this:1:1,this:2:2,Haswell:1:2,SkylakeX:2:3,Nehalem:3:3"


def copy_of_recipe(recipe: Path, folder: Path) -> Path:
    """The recipe's folder, without what it has made, and with its corpus."""
    target = folder / "s5"
    ignored = shutil.ignore_patterns("data", "data-*", "exp", "mfcc", "fbank", "fmllr", "corpus")
    shutil.copytree(recipe, target, symlinks=True, ignore=ignored)
    for link in ("steps", "utils", "path.sh"):
        (target / link).unlink()
        (target / link).symlink_to(ROOT / link)
    if (recipe / "corpus").is_dir():
        (target / "corpus").symlink_to(recipe / "corpus")
    return target


def run(target: Path, cpu: str, number: int, nj: int, mode: str, options: list[str]) -> tuple[dict[str, str], float, float]:
    """Checksums, seconds, and seconds of CPU."""
    env = {**os.environ, **CPUS[cpu], **threads(number), "PYKALDIST_DETERMINISTIC": mode}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(target.parent / "log", "w", encoding="utf-8") as log:
        done = subprocess.run([target / "run.sh", "--nj", str(nj), *options], env=env, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"same_numbers.py: the recipe failed; its log is {target.parent / 'log'}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return recipe_checksums(target), time.monotonic() - start, cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder to make, for a copy of the recipe a run")
    parser.add_argument("--recipe", type=Path, default=ROOT / "egs" / "prompts" / "s5", help="the recipe (default: egs/prompts/s5)")
    parser.add_argument("--deterministic", choices=("true", "false"), default="true", help="the mode (default: true)")
    parser.add_argument("--runs", default=RUNS, help=f"CPU:threads:jobs of each, CPUs being {', '.join(CPUS)} (default: {RUNS})")
    parser.add_argument("--options", default="", help='of run.sh, such as "--corpus DIR --stop-stage 7"')
    args = parser.parse_args()
    columns: list[dict[str, str]] = []
    runs = [(cpu, int(number), int(nj)) for cpu, number, nj in (run.split(":") for run in args.runs.split(","))]
    for i, (cpu, number, nj) in enumerate(runs):
        target = copy_of_recipe(args.recipe.resolve(), args.folder.resolve() / f"run{i + 1}")
        found, seconds, cpu_s = run(target, cpu, number, nj, args.deterministic, args.options.split())
        columns.append({**found, "seconds, of CPU": f"{seconds:.0f}, {cpu_s:.0f}"})
        print(f"run {i + 1}: CPU {cpu}, {number} threads, {nj} jobs: {seconds:.0f} s", flush=True)
    differ = 0
    print("| | " + " | ".join(f"{cpu}, {number} threads, {nj} jobs" for cpu, number, nj in runs) + " | |")
    print("| --- |" + " --- |" * (len(runs) + 1))
    for name in columns[0]:
        values = [column.get(name, "missing") for column in columns]
        same = len(set(values)) == 1
        timed = name.startswith("seconds")
        differ += not same and not timed
        print(f"| {name} | {' | '.join(values)} | {'' if timed else 'identical' if same else 'DIFFERENT'} |")
    print("all identical" if not differ else f"{differ} of {len(columns[0]) - 1} differ")
    if differ and args.deterministic == "true":
        sys.exit(1)


if __name__ == "__main__":
    main()
