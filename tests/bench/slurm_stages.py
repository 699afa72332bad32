"""Stages whose work is divided among array jobs, on a recipe's data: by run.pl, and through slurm.pl on a real SLURM that is started here.

    tests/bench/run.sh slurm_stages --recipe egs/an4/s5 --out DIR       (apt-get install slurm-wlm munge; as root)

The recipe has run to the end of its GMMs, and local/chain/run_tdnn.sh --ivectors true to its networks. Prints the seconds of each stage,
and ends with an error where what they have made is not the same, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/parallel")]

from slurm import lacking, slurm  # noqa: E402  # tests/parallel is on sys.path only after the line above

OWN = ("inputs.json", ".lock")  # in which are paths, or which process it was


def stages(out: str) -> dict[str, list[str]]:
    """The command line of each stage without how its jobs are run; results are in the folder `out`."""
    chain = ["--frame-subsampling-factor", "3", "--context-opts", "--context-width=2 --central-position=1", "250"]
    return {
        "build_tree": ["steps/nnet3/chain/build_tree.sh", *chain, "data/train", "data/lang_chain", "exp/tri3_ali", f"{out}/tree"],
        "train_ubm": ["steps/train_ubm.sh", "--num-iters", "1", "100", "data/train", "data/lang", "exp/tri3_ali", f"{out}/ubm"],
        "train_sgmm2": ["steps/train_sgmm2.sh", "--num-iters", "2", "400", "1000", "data/train", "data/lang", "exp/tri3_ali",
                        f"{out}/ubm/final.ubm", f"{out}/sgmm2"],
        "train_diag_ubm": ["steps/online/nnet2/train_diag_ubm.sh", "--num-iters", "1", "data/train_hires", "64", "exp/nnet3/pca_transform",
                           f"{out}/dubm"],
        "train_full_ubm": ["steps/online/nnet2/train_full_ubm.sh", "--num-iters", "1", "data/train_hires", f"{out}/dubm", f"{out}/fubm"],
        "train_ivector_extractor": ["steps/online/nnet2/train_ivector_extractor.sh", "--ivector-dim", "30", "--num-iters", "1",
                                    "data/train_hires", f"{out}/dubm", f"{out}/extractor"]}


def checksums(folder: Path) -> dict[str, str]:
    """The checksum of each file that does not say how or where it was made, as logs do, and what slurm.pl notes (`q`)."""
    return {str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in OWN and not {"log", "q"} & set(path.relative_to(folder).parts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "egs/an4/s5", help="the recipe (default: egs/an4/s5)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; new")
    parser.add_argument("--nj", type=int, default=4, help="jobs of each array (default: 4)")
    args = parser.parse_args()
    if why := lacking():
        raise SystemExit(f"slurm_stages.py: ERROR: {why}.")
    args.out.mkdir(parents=True)
    for name in ("data", "exp", "conf", "mfcc", "mfcc_hires"):
        (args.out / name).symlink_to((args.recipe / name).resolve())
    for name in ("steps", "utils", "path.sh"):
        (args.out / name).symlink_to(ROOT / name)
    with slurm(cpus=1) as env:
        kept = {name: value for name, value in os.environ.items() if name.startswith("PYKALDIST_") or name == "PYTHONPATH"}
        for stage in stages(""):
            for runner in ("run.pl", "slurm.pl"):
                script, *rest = stages(runner)[stage]
                start = time.perf_counter()
                command = [script, "--nj", str(args.nj), "--jobs", "array", "--cmd", runner, *rest]
                done = subprocess.run(["bash", "-c", '. ./path.sh; "$@"', "bash", *command], cwd=args.out, env={**env, **kept},
                                      capture_output=True, text=True, check=False)
                print(f"{stage} {runner}: {time.perf_counter() - start:.0f} s", flush=True)
                if done.returncode:
                    raise SystemExit(f"slurm_stages.py: ERROR: {' '.join(command)} has ended with status {done.returncode}:\n{done.stderr}")
    here, there = checksums(args.out / "run.pl"), checksums(args.out / "slurm.pl")
    if differing := sorted(name for name in {*here, *there} if here.get(name) != there.get(name)):
        raise SystemExit(f"slurm_stages.py: ERROR: {len(differing)} files differ, such as {differing[0]}.")
    print(f"{len(here)} files, the same by run.pl and slurm.pl")


if __name__ == "__main__":
    main()
