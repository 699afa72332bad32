"""The deterministic mode's start: what it pins, and what it refuses."""

from __future__ import annotations

import os

import pytest

from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.parallel.launch.job import JobOptions

HERE = "processor\t: 0\nflags\t\t: fpu avx fma bmi2 f16c avx2\n"


@pytest.fixture
def environment(monkeypatch):
    """An environment of one's own, and a CPU that can do what the baseline needs."""
    monkeypatch.setattr(os, "environ", {"OMP_NUM_THREADS": "8", "OPENBLAS_CORETYPE": "Prescott", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"})
    monkeypatch.setattr(deterministic.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(deterministic.Path, "read_text", lambda *_, **__: HERE)
    return os.environ


def test_nothing_is_touched_without_the_mode(environment):
    before = dict(environment)
    deterministic.start(["--deterministic", "true", "--deterministic", "false"])
    assert environment == before and not deterministic.enabled()


@pytest.mark.parametrize("argv", [["--deterministic", "true"], ["--deterministic=true"],
                                  ["--deterministic", "false", "--deterministic", "true", "store"], []])
def test_the_callers_settings_give_way(environment, argv):
    if not argv:
        environment[deterministic.VARIABLE] = "true"
    deterministic.start(argv)
    assert deterministic.enabled() and environment["OMP_NUM_THREADS"] == "1" and environment["OPENBLAS_CORETYPE"] == "Haswell"
    assert "MKL_ENABLE_INSTRUCTIONS" not in environment


def test_what_the_c_library_reads_at_its_start_needs_a_new_one(environment, monkeypatch):
    begun = []
    monkeypatch.setattr(os, "execv", lambda program, words: begun.append((program, dict(os.environ))))
    environment["GLIBC_TUNABLES"] = "glibc.cpu.hwcaps=-AVX2"
    deterministic.start(["--deterministic", "true"])
    assert len(begun) == 1 and "GLIBC_TUNABLES" not in begun[0][1] and begun[0][1][deterministic.VARIABLE] == "true"


def test_only_true_and_false_are_meant(environment):
    environment[deterministic.VARIABLE] = "yes"
    with pytest.raises(UserError, match="PYKALDIST_DETERMINISTIC is true or false, found 'yes'"):
        deterministic.start()


@pytest.mark.parametrize(("machine", "cpuinfo", "words"), [
    ("aarch64", "Features: asimd\n", "a machine of type aarch64; leave the option out"),
    ("x86_64", HERE.replace("avx2", "").replace("fma", ""), "this CPU lacks avx2, fma; leave the option out"),
    ("x86_64", "", "this CPU lacks avx2"),
])
def test_a_machine_without_the_baseline_is_refused(machine, cpuinfo, words):
    with pytest.raises(UserError, match=words):
        deterministic.check_machine(machine, cpuinfo)


def test_a_job_follows_the_mode(environment):
    environment[deterministic.VARIABLE] = "true"
    job = JobOptions(ngpu=2)
    assert job.deterministic and job.device == "cpu"
    with pytest.raises(UserError, match="--num-threads 2 --deterministic true: sums depend on the number of threads"):
        JobOptions(num_threads=2)
