"""The runners of jobs: run.pl, retry.pl and ssh.pl on this machine. Their logs, statuses and words are those of Kaldi's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from killed import Script

from pykaldist.jobs.wrapper import parse, quoted, spans

ROOT = Path(__file__).resolve().parent.parent.parent
DATE = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \S+ \d{4}"


def bash(script: str, cwd: Path, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f". '{ROOT}/path.sh'; {script}"], cwd=cwd, capture_output=True, text=True, check=False, **kwargs)


def test_jobs_run_at_once_and_are_logged(tmp_path):
    work = "touch made.JOB; while [ ! -e made.3 ] || [ ! -e made.1 ]; do sleep 0.05; done; echo JOB"
    result = bash(f"run.pl --mem 2G --max-jobs-run 3 JOB=1:3 log/x.JOB.log sh -c '{work}'", tmp_path, timeout=20)
    assert result.returncode == 0, result.stderr
    for job in "123":
        text = (tmp_path / "log" / f"x.{job}.log").read_text()
        assert re.fullmatch(rf'# sh -c "touch .*"\n# Started at {DATE}\n#\n{job}\n# Accounting: time=\d+ threads=1\n'
                            rf"# Ended \(code 0\) at {DATE}, elapsed time \d+ seconds\n", text), text


def test_so_many_jobs_run_at_once_and_no_more(tmp_path):
    work = 'n=$(ls run.* 2>/dev/null | wc -l); touch run.JOB; sleep 0.2; rm run.JOB; test $n -lt 2'
    (tmp_path / "work.sh").write_text(work)
    result = bash(r"run.pl JOB=1:5 -tc 2 --max-jobs-run 3 x.JOB.log sed s/JOB/JOB/ work.sh \| sed s/run.JOB/r/ \; bash work.sh", tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("words", "out"), [
    (r"echo 'a  b' \| sed s/a/c/ '>' out.JOB", "c  b\n"),
    (r"""awk '{print "x" $1}' in '>' out.JOB""", "xone\n"),
    ("echo '$((1+JOB))' '>' out.JOB", "3\n"),
    (r"echo '' end '>' out.JOB", " end\n"),
    (r"false \; echo on \> out.JOB", "on\n"),
    (r"scale=\`echo 1.JOB\`\; echo \$scale '>' out.JOB", "1.2\n"),
])
def test_the_command_is_for_bash(tmp_path, words, out):
    """The quoting of words with spaces, and what stands bare, as Kaldi's scripts use it."""
    (tmp_path / "in").write_text("one two\n")
    result = bash(f"run.pl JOB=2 x.JOB.log {words}", tmp_path)
    assert (result.returncode, (tmp_path / "out.2").read_text()) == (0, out), (tmp_path / "x.2.log").read_text()


@pytest.mark.parametrize("jobs", ["JOB=1:0", "JOB=1:abc", "JOB=1:-1", "JOB=", "JOB=2:1", "JOB=0:3"])
def test_jobs_without_a_number_are_refused(tmp_path, jobs):
    result = bash(f"run.pl {jobs} log/x.JOB.log touch made", tmp_path)
    assert result.returncode == 1
    assert result.stderr.strip() == f"run.pl: ERROR: expected JOB=<first>:<last> from low to high, from 1 up, found {jobs}."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "sentence"), [
    (["JOB=1:2", "x.log", "true"], "2 jobs would write the same log x.log; put JOB in its name."),
    (["--max-jobs-run", "none", "x.log", "true"], "option --max-jobs-run takes a number from 1 up, found 'none'."),
    (["--pick", "some", "x.log", "true"], "option --pick takes all, failed or incomplete, found 'some'."),
    (["--mem", "2G", "x.log"], "expected a log and a command; run.pl --help shows its usage."),
])
def test_arguments_that_are_none_are_refused(words, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(words, "run.pl")


def test_options_stand_before_and_behind_the_array():
    words = ["--mem", "2G", "-V", "JOB=2:5", "--gpu=1", "-pe", "smp", "4", "-sync", "y", "-l", "arch=*64*", "a.JOB.log", "x", "--y", "z w"]
    wanted = parse(words, "queue.pl")
    assert wanted.options == {"mem": "2G", "gpu": "1"} and wanted.native == ["-V", "-pe", "smp", "4", "-l", "arch=*64*"]
    assert (list(wanted.numbers), wanted.threads, wanted.log, wanted.command) == ([2, 3, 4, 5], 4, "a.JOB.log", 'x --y "z w"')
    assert quoted('a "b"') == "'a \"b\"'" and quoted("") == '""'


def test_numbers_in_short():
    assert spans([3]) == "3" and spans([5, 1, 2, 3, 7]) == "1-3,5,7"


def test_a_failed_job_fails_the_step_and_shows_its_sentence(tmp_path):
    result = bash("run.pl JOB=1:2 x.JOB.log sh -c 'echo pykaldist y: ERROR: utt JOB is bad; echo more; test JOB = 1'", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["pykaldist y: ERROR: utt 2 is bad", "run.pl: 1 / 2 failed, log is in x.*.log (JOB=2)"]
    alone = bash("run.pl x.log nonesuch", tmp_path)
    assert alone.returncode == 1 and alone.stderr.splitlines()[-1] == "run.pl: job failed, log is in x.log"
    assert "nonesuch: command not found" in alone.stderr and "# Ended (code 127)" in (tmp_path / "x.log").read_text()
    forgot = bash("run.pl x.JOB.log false", tmp_path)
    assert forgot.stderr.splitlines()[-1] == "run.pl: probably you forgot to put JOB=1:$nj in your script."


def test_a_job_that_is_killed_is_said(tmp_path):
    """It could say nothing itself."""
    result = bash("run.pl JOB=1:2 x.JOB.log bash -c 'echo begun; [ JOB = 1 ] || kill -9 $BASHPID'", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "run.pl: ERROR: its process was killed by signal 9 (was there memory enough?); run the same command again.",
        "run.pl: 1 / 2 failed, log is in x.*.log (JOB=2)"]


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    done = bash("ulimit -f 0; run.pl x.log true", tmp_path)
    assert (done.returncode, done.stderr) == (1, "run.pl: ERROR: File too large: x.log.\n")


def test_failed_jobs_alone_are_picked(tmp_path):
    work = "sh -c 'echo JOB >> ran; test -e good || test JOB != 2'"
    assert bash(f"run.pl JOB=1:3 --max-jobs-run 1 x.JOB.log {work}", tmp_path).returncode == 1
    again = bash(f"run.pl --pick incomplete JOB=1:3 x.JOB.log {work}", tmp_path)
    assert again.returncode == 1 and again.stderr.endswith("(JOB=2)\n")
    (tmp_path / "good").touch()
    assert bash(f"run.pl --pick failed JOB=1:3 x.JOB.log {work}", tmp_path).returncode == 0
    assert (tmp_path / "ran").read_text().split() == ["1", "2", "3", "2"]


def test_retry_runs_what_has_failed_once_more(tmp_path):
    work = "sh -c 'echo JOB >> ran; test JOB != 2 || { test -e once.JOB || { touch once.JOB; exit 1; }; }'"
    result = bash(f"retry.pl run.pl --max-jobs-run 1 JOB=1:3 log/x.JOB.log {work}", tmp_path)
    assert result.returncode == 0 and "retry.pl: job failed; log log/x.2.log is kept with .bak" in result.stderr
    assert (tmp_path / "ran").read_text().split() == ["1", "2", "3", "2"] and (tmp_path / "log/x.2.log.bak").exists()
    never = bash("retry.pl --num-tries 3 run.pl y.log sh -c 'echo x >> tried; false'", tmp_path)
    assert never.returncode == 1 and never.stderr.endswith("retry.pl: job failed 3 times; log is in y.log\n")
    assert (tmp_path / "tried").read_text().split() == ["x"] * 3


@pytest.mark.parametrize("runner", ["run.pl", "retry.pl run.pl"])
def test_an_interrupt_reaches_the_jobs(tmp_path, runner):
    process = subprocess.Popen(["bash", "-c", f". '{ROOT}/path.sh'; exec {runner} x.log sh -c 'trap \"touch cleaned; exit 1\" TERM; "
                                "touch started; while :; do sleep 0.05; done'"], cwd=tmp_path, start_new_session=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a background test run has it ignored
    deadline = time.monotonic() + 20
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert (tmp_path / "cleaned").exists()


def running(script: Script, words: bytes) -> list[int]:
    """The processes of a script that have these words in their command lines."""
    found = []
    for pid in script.pids():
        with contextlib.suppress(OSError):
            found += [pid] if words in Path(f"/proc/{pid}/cmdline").read_bytes() and script.process.pid != pid else []
    return found


def names(script: Script) -> list[str]:
    """The names of the programs that run in a script's processes."""
    found = []
    for pid in script.pids():
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


def test_all_of_a_pipe_ends_with_what_has_started_it(tmp_path):
    """A killed run.pl leaves neither the shell of a job nor the programs of its pipe."""
    command = "run.pl JOB=1:2 --max-jobs-run 1 x.JOB.log sleep 1001 '|' sleep 1002 '>' out; echo $?"
    script = Script(tmp_path, "bash", "-c", f". '{ROOT}/path.sh'; {command}")
    script.until(lambda: names(script).count("sleep") == 2)
    for pid in running(script, b"\0run.pl\0"):
        if os.getsid(pid) == script.process.pid:  # not its guard
            os.kill(pid, signal.SIGTERM)
    assert script.ended() == (0, "143\n") and not (tmp_path / "x.2.log").exists()


SSH = """#!/usr/bin/env bash
echo "$1" >> machines
exec bash -c "$2"
"""


@pytest.fixture
def machines(tmp_path: Path) -> str:
    """A stand-in for ssh, which notes the machine and runs the command here; the words that put it on PATH."""
    (tmp_path / ".queue").mkdir()
    (tmp_path / ".queue/machines").write_text("one\ntwo\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(SSH)
    (tmp_path / "bin/ssh").chmod(0o755)
    return f"export PATH='{tmp_path}/bin':$PATH;"


def test_ssh_deals_jobs_out_to_machines(tmp_path, machines):
    (tmp_path / "path.sh").write_text("export SEEN=yes\n")
    result = bash(machines + " ssh.pl JOB=1:3 --max-jobs-run 1 log/x.JOB.log echo 'a  b' JOB '$SEEN' '&&' test JOB -lt 3", tmp_path)
    assert result.returncode == 1 and result.stderr.endswith("ssh.pl: 1 / 3 failed, log is in log/x.*.log (JOB=3)\n"), result.stderr
    assert (tmp_path / "machines").read_text().split() == ["one", "two", "one"]
    lines = (tmp_path / "log/x.2.log").read_text().splitlines()
    assert lines[3].startswith("# Running on ") and lines[4] == "a  b 2 yes" and lines[-1].startswith("# Ended (code 0)")
    (tmp_path / ".queue/machines").unlink()
    assert "there is no file .queue/machines" in bash(machines + " ssh.pl x.log true", tmp_path).stderr


def test_jobs_of_other_machines_end_with_ssh_pl(tmp_path, machines):
    script = Script(tmp_path, "bash", "-c", f". '{ROOT}/path.sh'; {machines} ssh.pl x.log sleep 1001 '|' cat; echo $?")
    script.until(lambda: names(script).count("sleep") == 1 and names(script).count("cat") == 2)  # the second waits for the connection's end
    for pid in running(script, b"\0ssh.pl\0"):  # and its guard, which could end them by their marks here
        os.kill(pid, signal.SIGKILL)
    assert script.ended()[1].endswith("137\n")
