"""A recipe through slurm.pl, on a real SLURM that is started here: seconds of its steps, arrays and jobs that SLURM ran, word error rates.

    tests/bench/run.sh slurm_recipe --out DIR --nj 50 -- --corpus /corpora/an4     # what stands behind -- is run.sh's

SLURM has two nodes of one core each, both this machine, so that of an array of 50 jobs 48 wait. It needs root, slurm-wlm and munge. DIR,
which may be there already (run.sh --stage goes on), gets the recipe's folder, its log and slurm.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parallel"))

from slurm import lacking, slurm  # noqa: E402  # tests/parallel is on sys.path only after the line above


def arrays(folder: Path) -> list[int]:
    """The number of jobs of each array or single job that slurm.pl submitted below a folder."""
    return [len(json.loads(path.read_text())["numbers"]) for path in sorted(folder.glob("**/q/*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "egs/an4/s5", help="the recipe (default: egs/an4/s5)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recipe's copy")
    parser.add_argument("--nj", type=int, default=50, help="jobs of each array (default: 50)")
    parser.add_argument("rest", nargs="*", help="arguments of run.sh")
    args = parser.parse_args()
    if why := lacking():
        raise SystemExit(f"slurm_recipe.py: ERROR: {why}.")
    work = args.out.resolve() / "s5"
    if not work.is_dir():
        shutil.copytree(args.recipe, work, symlinks=True)
        for name in ("steps", "utils"):
            (work / name).unlink()
            (work / name).symlink_to(ROOT / name)
        (work / "path.sh").unlink()
        (work / "path.sh").symlink_to(ROOT / "path.sh")
    start = time.perf_counter()
    with slurm(cpus=1) as env, (args.out / "run.log").open("a") as log:
        kept = {name: value for name, value in os.environ.items() if name.startswith("PYKALDIST_") or name == "PYTHONPATH"}
        status = subprocess.run(["./run.sh", "--nj", str(args.nj), "--cmd", "slurm.pl", *args.rest], cwd=work, env={**env, **kept},
                                stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    found = arrays(work)
    text = (f"status {status}, {time.perf_counter() - start:.0f} s; {len(found)} submissions, {sum(found)} jobs, "
            f"{sum(count == args.nj for count in found)} arrays of {args.nj}\n")
    for best in sorted(work.glob("exp/*/decode*/best_wer")):
        text += f"{best.parent.relative_to(work)}: {best.read_text()}"
    (args.out / "slurm.md").write_text(text)
    print(text, end="")
    raise SystemExit(status)


if __name__ == "__main__":
    main()
