"""queue.pl and slurm.pl: options and configurations, and jobs on a stand-in for Grid Engine, on a real one and on a real SLURM.

    tests/run.sh --all tests/utils/test_clusters.py      (apt-get install gridengine-master gridengine-exec slurm-wlm munge; as root)
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import gridengine
import pytest
import slurm
from killed import Script, path_without

from pykaldist.jobs.cluster import GRID_ENGINE, SCHEDULERS, read_config, submission
from pykaldist.jobs.wrapper import parse

ROOT = Path(__file__).resolve().parent.parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """The state of a stand-in for Grid Engine, whose programs are in `bin`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "state").mkdir()
    for name in ("qsub", "qstat", "qdel"):
        (tmp_path / "bin" / name).symlink_to(ROOT / "tests/utils/grid_engine.py")
    return tmp_path / "state"


def command(tmp_path: Path, script: str) -> str:
    return f". '{ROOT}/path.sh'; export PATH='{tmp_path}/bin':$PATH GRID_ENGINE='{tmp_path}/state'; {script}"


@pytest.fixture
def on_engine(tmp_path: Path, engine: Path) -> Run:
    """`on_engine(script)` runs a shell script where there is Grid Engine."""
    return lambda script: subprocess.run(["bash", "-c", command(tmp_path, script)], cwd=tmp_path, capture_output=True, text=True,
                                         check=False, timeout=120)


def test_an_array_of_grid_engine(tmp_path, engine, on_engine):
    (tmp_path / "path.sh").write_text("export SEEN=yes\n")
    work = "echo '$SEEN' JOB '>' out.JOB '&&' sleep 0.2 '&&' hostname"
    done = on_engine(f"queue.pl --mem 2G --max-jobs-run 2 JOB=1:5 exp/log/x.JOB.log {work}")
    assert (done.returncode, done.stderr) == (0, "")
    assert [(tmp_path / f"out.{job}").read_text() for job in range(1, 6)] == [f"yes {job}\n" for job in range(1, 6)]
    lines = (tmp_path / "exp/log/x.3.log").read_text().splitlines()
    assert lines[0] == f"# Running on {lines[3]}" and lines[1].startswith("# Started at ") and lines[2].startswith("# echo $SEEN 3 > out.3")
    assert re.fullmatch(r"# Accounting: time=\d+ threads=1", lines[-2]) and lines[-1].endswith(" with status 0")
    ended, late = engine / "ended.1", time.monotonic() + 20
    while not ended.is_file() and time.monotonic() < late:  # the engine knows of a job's end a little after those who wait for it
        time.sleep(0.05)
    words = ended.read_text()
    assert "'-l', 'mem_free=2G,ram_free=2G'" in words and "'-t', '1-5'" in words and (engine / "peak.1").read_text() == "2"
    assert not list((tmp_path / "exp/q/sync").iterdir())


def test_a_failing_job_of_an_array_is_named_and_run_again_alone(tmp_path, engine, on_engine):
    work = "sh -c 'echo JOB >> ran; test JOB != 2 || test -e good || { touch good; echo ERROR: JOB is bad; exit 3; }'"
    done = on_engine(f"queue.pl JOB=1:3 exp/x.JOB.log {work}")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["ERROR: 2 is bad", "queue.pl: 1 / 3 failed, log is in exp/x.*.log (JOB=2)"]
    (tmp_path / "good").unlink()
    again = on_engine(f"retry.pl queue.pl JOB=1:3 exp/x.JOB.log {work}")
    assert again.returncode == 0 and "exp/x.2.log is kept with .bak" in again.stderr
    assert sorted((tmp_path / "ran").read_text().split()) == ["1", "1", "2", "2", "2", "3", "3"]
    alone = on_engine("queue.pl exp/y.log sh -c 'exit 3'")
    assert alone.returncode == 1 and alone.stderr.endswith("queue.pl: job failed with status 3, log is in exp/y.log\n")


def test_jobs_that_are_refused(tmp_path, on_engine):
    done = on_engine("queue.pl -q none.q x.log true")
    assert done.returncode == 1 and 'requests unknown queue "none.q"' in done.stderr
    assert "qsub did not take the jobs (status 1)" in done.stderr
    unknown = on_engine("queue.pl --matylda 0.2 x.log true")
    assert unknown.returncode == 1 and "does not say what option --matylda 0.2 means; it has: --gpu, --max-jobs-run" in unknown.stderr


LOOKS = "import sys; from pykaldist.jobs import cluster, wrapper; cluster.ASK_S = cluster.LATE_S = 0.5; " \
        "sys.exit(cluster.run(wrapper.parse(sys.argv[1:], 'queue.pl'), 'queue.pl'))"


def test_a_job_that_is_gone_has_failed(tmp_path, on_engine):
    """As after `qdel` of a task by somebody, or where its machine has died."""
    (tmp_path / "looks.py").write_text(LOOKS)
    work = "sh -c 'test JOB != 2 || { qdel 1 -t 2; sleep 1000; }'"
    done = on_engine(f"'{sys.executable}' looks.py JOB=1:3 exp/x.JOB.log {work}")
    assert done.returncode == 1
    assert "queue.pl: JOB=2 of job 1 is gone from the queue and has not ended (qstat does not know it any more" in done.stderr
    assert done.stderr.endswith("queue.pl: 1 / 3 failed, log is in exp/x.*.log (JOB=2)\n")


def test_a_job_that_will_never_start_is_deleted(tmp_path, engine, on_engine):
    (tmp_path / "looks.py").write_text(LOOKS)
    (engine / "reason").write_text("error reason    1:          can't chdir to /nowhere: No such file or directory\n")
    done = on_engine(f"'{sys.executable}' looks.py exp/x.log sleep 1000")
    assert done.returncode == 1 and "can't chdir to /nowhere" in done.stderr and (engine / "deleted.1").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_jobs_are_deleted_with_queue_pl(tmp_path, engine, number):
    script = Script(tmp_path, "bash", "-c", command(tmp_path, "exec queue.pl JOB=1:2 exp/x.JOB.log sleep 1001"))
    script.until(lambda: len(list(tmp_path.glob("exp/x.*.log"))) == 2)
    os.kill(script.process.pid, number)
    status, _ = script.ended()
    assert status == (-9 if number == signal.SIGKILL else 128 + number) and (engine / "deleted.1").exists()


def test_without_grid_engine_jobs_run_here_and_that_is_said_once(tmp_path):
    path = path_without("qsub", os.environ["PATH"], tmp_path / "others")
    words = "queue.pl --gpu 0 --mem 2G -l arch=*64* JOB=1:2 x.JOB.log echo JOB"
    done = subprocess.run(["bash", "-c", f". '{ROOT}/path.sh'; {words} && {words}"], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env={**os.environ, "PATH": path}, start_new_session=True)
    assert done.returncode == 0
    assert re.fullmatch(r"queue.pl: no Grid Engine \(qsub\) here; jobs run on this machine's \d+ cores, as by run.pl.\n", done.stderr)
    assert "# Ended (code 0)" in (tmp_path / "x.2.log").read_text()


CONF = """# Our queue
command qsub -v PATH -cwd
option mem=* -l ram=$0   # in bytes
option mem=0
option gpu=0 -q all.q
option gpu=* -q g.q -l gpu=$0
default gpu=0
default mem=1G
"""


@pytest.mark.parametrize(("words", "expected"), [
    ([], "qsub -v PATH -cwd -q all.q -l ram=1G"),
    (["--mem", "0"], "qsub -v PATH -cwd  -q all.q"),
    (["--gpu", "2", "--mem", "4G", "-V"], "qsub -v PATH -cwd -q g.q -l gpu=2 -l ram=4G -V"),
    (["--max-jobs-run", "3"], "qsub -v PATH -cwd -q all.q -l ram=1G"),
])
def test_a_configuration_says_what_options_mean(tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/queue.conf").write_text(CONF)
    assert submission(parse([*words, "x.log", "true"], "queue.pl"), SCHEDULERS["queue.pl"], "queue.pl") == expected


@pytest.mark.parametrize(("text", "sentence"), [
    ("option mem=* -l x=$0\n", "has no line with the command"), ("command qsub\nopt mem=1\n", "found 'opt mem=1'")])
def test_a_damaged_configuration_is_refused(text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_config(text, "queue.conf", {})


def test_the_usage_shows_the_default_configuration():
    for runner in ("queue.pl", "slurm.pl"):
        usage = (ROOT / "utils" / runner).read_text().replace("\\$", "$")
        assert all(f"  {line}\n" in usage for line in SCHEDULERS[runner].default.splitlines()), runner
    assert read_config(GRID_ENGINE, "", {})[1]["mem", "0"] == ""


@dataclass
class Real:
    """A scheduler that is started for a test: its runner, and what a test says to it."""

    start: Callable[[], AbstractContextManager[dict[str, str]]]
    runner: str
    options: str
    number: str
    no_queue: str
    queue: tuple[str, ...]


REAL = {"slurm": Real(slurm.slurm, "slurm.pl", "--mem 100M", "SLURM_ARRAY_TASK_ID", "-p none", ("squeue", "--noheader")),
        "grid engine": Real(gridengine.grid_engine, "queue.pl", "--mem 100M", "SGE_TASK_ID", "-q none.q", ("qstat",))}
LACKING = {"slurm": slurm.lacking(), "grid engine": gridengine.lacking()}


@pytest.fixture(scope="module", params=[
    pytest.param(name, marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacks), reason=lacks or "it is there")])
    for name, lacks in LACKING.items()])
def real(request: pytest.FixtureRequest) -> Iterator[tuple[Real, dict[str, str]]]:
    """A real scheduler, and the environment in which its programs are used."""
    scheduler = REAL[request.param]
    with scheduler.start() as env:
        yield scheduler, {**env, "PYKALDIST_PYTHON": sys.executable}


def test_arrays_of_a_real_scheduler(tmp_path, real):
    """An array, its failing task, a job that ends without a word, and jobs that are cancelled with the runner."""
    scheduler, env = real
    runner = scheduler.runner

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", f". '{ROOT}/path.sh'; {script}"], cwd=tmp_path, capture_output=True, text=True,
                              check=False, env=env, timeout=300)

    work = f"echo '${scheduler.number}' JOB '>' out.JOB"
    done = run(f"{runner} {scheduler.options} --num-threads 1 --max-jobs-run 2 JOB=1:5 exp/log/x.JOB.log {work}")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"out.{job}").read_text() for job in range(1, 6)] == [f"{job} {job}\n" for job in range(1, 6)]
    assert (tmp_path / "exp/log/x.3.log").read_text().splitlines()[-1].endswith(" with status 0")
    threads = run(f"{runner} --num-threads 2 exp/log/t.log true")
    assert threads.returncode == 0, threads.stderr
    failed = run(f"{runner} JOB=1:3 exp/log/y.JOB.log test JOB != 2")
    assert failed.returncode == 1 and failed.stderr.endswith(f"{runner}: 1 / 3 failed, log is in exp/log/y.*.log (JOB=2)\n")
    refused = run(f"{runner} {scheduler.no_queue} exp/log/z.log true")
    assert refused.returncode == 1 and f"{SCHEDULERS[runner].submits} did not take the jobs" in refused.stderr
    (tmp_path / "looks.py").write_text(LOOKS.replace("queue.pl", runner))
    work = "sh -c 'test LMWT != 2 || { kill -KILL $PPID; sleep 1000; }'"  # as where the machine has no memory left
    gone = run(f"'{sys.executable}' looks.py LMWT=1:2 exp/log/g.LMWT.log {work}")
    assert gone.returncode == 1 and f"{runner}: LMWT=2 of job " in gone.stderr, gone.stderr
    for number in (signal.SIGTERM, signal.SIGKILL):
        words = f"rm -f exp/log/k.*; exec {runner} JOB=1:2 exp/log/k.JOB.log sleep 1001"
        script = Script(tmp_path, "bash", "-c", f". '{ROOT}/path.sh'; {words}", **env)
        script.until(lambda: len(list(tmp_path.glob("exp/log/k.*.log"))) == 2)
        os.kill(script.process.pid, number)
        assert script.ended()[0] == (-9 if number == signal.SIGKILL else 128 + number)
        script.until(lambda: not subprocess.run(scheduler.queue, env=env, capture_output=True, check=True).stdout.strip())


def test_a_stage_by_a_real_scheduler(tmp_path, real):
    """Features, whose jobs are an array: those that run.pl makes."""
    import numpy as np
    import soundfile

    scheduler, env = real
    generator = np.random.default_rng(3)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/mfcc.conf").write_text("--sample-frequency=8000\n--dither=0\n")
    (tmp_path / "path.sh").symlink_to(ROOT / "path.sh")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        for utt in "abcd":
            if name == "here":
                soundfile.write(tmp_path / f"{utt}.wav", generator.normal(0, 0.1, 4000), 8000)
        for file, text in (("wav.scp", "{0} {1}/{0}.wav\n"), ("utt2spk", "{0} {0}\n"), ("spk2utt", "{0} {0}\n")):
            (tmp_path / name / file).write_text("".join(text.format(utt, tmp_path) for utt in "abcd"))
    for name, runner in (("here", "run.pl"), ("there", f"{scheduler.runner} --mem 200M")):
        words = [ROOT / "steps/make_mfcc.sh", "--nj", "2", "--cmd", runner, name, f"{name}/log", f"{name}/mfcc"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=env, timeout=300)
        assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in tmp_path.glob(f"{name}/q/*.log"))
    here, there = (sorted(path.read_bytes() for path in (tmp_path / name / "mfcc").glob("*.ark")) for name in ("here", "there"))
    assert here == there and len(here) == 2
