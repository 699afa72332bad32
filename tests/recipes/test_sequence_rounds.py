"""Sequence training with new alignments and lattices: what is trained on what, by stages that only write down how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

# Each stage notes its call in `calls`. A training with the file `beside` waits until lattices are being made, which wait for a training.
STAGE = r"""#!/usr/bin/env bash
until_there() { for _ in {1..400}; do [ ! -f "$1" ] || return 0; sleep 0.05; done; echo "no $1" >&2; exit 1; }
args=("${@: -6}")
case ${0##*/} in
  train_mpe.sh)
    out=${args[5]}
    [[ "$*" =~ --num-iters\ ([0-9]+).*--learn-rate\ ([0-9.e-]+) ]]
    mkdir -p "$out"
    touch "$out.begun"
    [[ ! -f beside || $out != exp/iters2 ]] || until_there exp/iters1/new_denlats/begun
    echo "train $out: ${BASH_REMATCH[1]} at ${BASH_REMATCH[2]} from ${args[2]}, ${args[3]}, ${args[4]}" >> calls
    echo "${args[2]}" > "$out/final.pt" ;;
  align.sh) args=("${@: -4}"); mkdir -p "${args[3]}"; sleep 0.1; echo "align ${args[2]}" >> calls; touch "${args[3]}/final.mdl" ;;
  make_denlats.sh)
    args=("${@: -4}")
    mkdir -p "${args[3]}"
    touch "${args[3]}/begun"
    [ ! -f beside ] || until_there exp/iters2.begun
    [ ! -f broken ] || { echo "make_denlats.sh: ERROR: broken." >&2; exit 1; }
    [[ "$*" =~ --nj\ ([0-9]+).*(--beam\ [0-9]+) ]]
    echo "lattices ${args[2]} by ${BASH_REMATCH[1]} jobs ${BASH_REMATCH[2]}" >> calls ;;
esac
"""


@pytest.fixture
def rounds(tmp_path: Path, root: Path):
    """Runs train_mpe.sh in a folder with these stages: (exit status, calls, what it said)."""
    stages = tmp_path / "root/steps/nnet"
    stages.mkdir(parents=True)
    for name in ("train_mpe", "align", "make_denlats"):
        (stages / f"{name}.sh").write_text(STAGE)
        (stages / f"{name}.sh").chmod(0o755)
    (tmp_path / "denlats").mkdir()
    (tmp_path / "denlats/num_jobs").write_text("2\n")
    env = {**os.environ, "PYKALDIST_ROOT": str(tmp_path / "root"), "PYKALDIST_STARTED_BY": "a test", "PYKALDIST_TOLD": "true",
           "PATH": f"{root}/utils/shared:{os.environ['PATH']}"}

    def run(*options: str) -> tuple[int, list[str], str]:
        (tmp_path / "calls").unlink(missing_ok=True)
        command = [f"{root}/steps/nnet/train_mpe.sh", "--learn-rate", "0.001", "--halving-factor=0.5", "--denlats-opts", "--beam 9"]
        done = subprocess.run([*command, *options, "data", "lang", "src", "ali", "denlats", "exp"], cwd=tmp_path, env=env,
                              capture_output=True, text=True, check=False, timeout=60)
        calls = tmp_path / "calls"
        return done.returncode, calls.read_text().splitlines() if calls.exists() else [], done.stdout + done.stderr

    return run


def test_lattices_and_alignments_between_iterations(rounds):
    status, calls, said = rounds("--num-iters", "3", "--relattice-iters", "1", "--realign-iters", "2")
    assert status == 0, said
    assert calls == ["train exp/iters1: 1 at 0.001 from src, ali, denlats", "lattices exp/iters1 by 2 jobs --beam 9",
                     "train exp/iters2: 1 at 0.0005 from exp/iters1, ali, exp/iters1/new_denlats", "align exp/iters2",
                     "lattices exp/iters2 by 2 jobs --beam 9",
                     "train exp: 1 at 0.00025 from exp/iters2, exp/iters2/ali, exp/iters2/new_denlats"]
    assert "iteration 3 has alignments of exp/iters2/ali, lattices of exp/iters2/new_denlats" in said


def test_lattices_are_made_beside_training(rounds, tmp_path):
    """At the same time: each of the two waits for the other's beginning."""
    (tmp_path / "beside").touch()
    options = ["--num-iters", "4", "--relattice-iters", "1", "--realign-iters", "3", "--relattice-beside", "true"]
    status, calls, said = rounds(*options)
    assert status == 0, said
    trained = ["train exp/iters1: 1 at 0.001 from src, ali, denlats", "train exp/iters2: 1 at 0.0005 from exp/iters1, ali, denlats",
               "train exp/iters3: 1 at 0.00025 from exp/iters2, ali, exp/iters1/new_denlats",
               "train exp: 1 at 0.000125 from exp/iters3, ali, exp/iters2/new_denlats"]
    assert [call for call in calls if call.startswith("train")] == trained
    # No lattices of iteration 3's network: nothing would be trained on them; for the same reason no alignment.
    assert sorted(set(calls) - set(trained)) == ["lattices exp/iters1 by 2 jobs --beam 9", "lattices exp/iters2 by 2 jobs --beam 9"]
    assert sorted(rounds(*options)[1]) == sorted(calls)  # whatever was ready first


def test_iterations_go_together_where_nothing_is_made_between_them(rounds, tmp_path):
    status, calls, said = rounds("--num-iters", "5", "--relattice-iters", "2", "--relattice-beside", "true")
    assert status == 0, said
    assert [call.split(" from")[0] for call in calls if call.startswith("train")] == [
        "train exp/iters2: 2 at 0.001", "train exp/iters3: 1 at 0.00025", "train exp: 2 at 0.000125"]
    assert calls[-1].endswith("exp/iters2/new_denlats")


@pytest.mark.parametrize("beside", ["false", "true"])
def test_lattices_that_fail_end_it(rounds, tmp_path, beside):
    (tmp_path / "broken").touch()
    status, calls, said = rounds("--num-iters", "3", "--relattice-iters", "1", "--relattice-beside", beside)
    assert status == 1 and "make_denlats.sh: ERROR: broken." in said
    assert len(calls) == (2 if beside == "true" else 1) and "train exp:" not in " ".join(calls)


def test_options_with_a_wrong_value(rounds):
    for options, expected in ((["--relattice-beside", "perhaps"], "takes true or false, found 'perhaps'"),
                              (["--realign-iters", "x"], "--realign-iters takes a whole number, found 'x'")):
        status, calls, said = rounds("--relattice-iters", "1", *options)
        assert status == 1 and expected in said and not calls
