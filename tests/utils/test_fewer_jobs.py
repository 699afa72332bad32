"""utils/shared/fewer_jobs.sh: no more jobs than there is to share out, and a line that says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize(("nj", "unit", "left"), [
    (2, "utterances", 2), (5, "utterances", 5), (6, "utterances", 5), (40, "utterances", 5), (2, "speakers", 2), (3, "speakers", 2)])
def test_no_more_jobs_than_utterances_or_speakers(root: Path, tmp_path: Path, nj: int, unit: str, left: int) -> None:
    """Five utterances of two speakers."""
    (tmp_path / "utt2spk").write_text("".join(f"{speaker}-{i} {speaker}\n" for speaker, i in zip("aabba", range(5), strict=True)))
    said = [f"stage.sh: {tmp_path} has {left} {unit}, so there are {left} jobs, not {nj}"] if nj > left else []
    assert jobs(root, tmp_path, nj, unit) == [*said, str(left)]


def test_without_a_list_of_utterances_the_number_stays(root: Path, tmp_path: Path) -> None:
    """What checks the directory afterwards says what is missing."""
    assert jobs(root, tmp_path, 40, "utterances") == ["40"]


@pytest.mark.parametrize("unit", ["utterances", "speakers"])
def test_a_count_that_fails_ends_the_script(root: Path, tmp_path: Path, unit: str) -> None:
    """Where the program that counts is killed, and where there is nothing to count."""
    (tmp_path / "utt2spk").write_text("a-1 a\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/wc").write_text("#!/usr/bin/env bash\nkill -9 $$\n")
    (tmp_path / "bin/wc").chmod(0o755)
    done = call(root, tmp_path, 2, unit, f"PATH={tmp_path}/bin:$PATH")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"stage.sh: ERROR: the {unit} of {tmp_path}/utt2spk were not counted; run the same command again."
    (tmp_path / "utt2spk").write_text("")
    done = call(root, tmp_path, 2, unit)
    assert (done.returncode, done.stderr) == (1, f"stage.sh: ERROR: {tmp_path}/utt2spk has no {unit}.\n")


def jobs(root: Path, data: Path, nj: int, unit: str) -> list[str]:
    """The lines that the function prints, and the number of jobs after it."""
    done = call(root, data, nj, unit)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def call(root: Path, data: Path, nj: int, unit: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f'{before}\n. {root}/utils/shared/fewer_jobs.sh; nj=$1; fewer_jobs "$2" "$3"; echo "$nj"'
    return subprocess.run(["bash", "-c", code, "steps/stage.sh", str(nj), str(data), unit], capture_output=True, text=True, check=False)
