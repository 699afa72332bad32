"""How a job's processes are started: mpiexec on hosts, srun, torchrun, or by themselves; and how they are watched."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import Terminated, UserError
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.launch import commands as starting
from pykaldist.parallel.launch import launcher as launch
from pykaldist.parallel.launch.commands import of_open_mpi
from pykaldist.parallel.launch.job import JobOptions, started_by
from pykaldist.parallel.launch.watch import CAME, DIED, FOLDER, WAITING, Watch, activity, pulse, read_records, write_last_words
from pykaldist.parallel.transport.addresses import variables

TRAIN = ["train", "--hid-layers", "1", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1", "--device",
         "cpu", "--schedule", "fixed", "--learn-rates", "0.01,0.005", "--strategy", "ma", "--deterministic", "true"]


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """Not in any job, on a machine with four cores."""
    for name in [n for n in os.environ if n.startswith(("PMI", "SLURM", "OMPI", "RANK", "WORLD", "MASTER", "UCX", "GLOO", "NCCL", "FI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(starting, "local_cores", lambda: 4)


def cpu(**options) -> JobOptions:
    return JobOptions(device="cpu", **options)


def one(options: JobOptions) -> starting.Command:
    [command] = starting.commands(options, ["train", "store", "exp"])
    return command


@pytest.mark.parametrize(("options", "count"), [
    ({"ngpu": 1}, 1), ({"ngpu": 3}, 3), ({"ngpu": 32}, 4), ({"ngpu": 32, "nproc": 8}, 8), ({"ngpu": 32, "fabric": "virtual"}, 1),
    ({"ngpu": 32, "hosts": "localhost,b"}, 8), ({"ngpu": 32, "hosts": "a:2,b:3"}, 5), ({"ngpu": 6, "hosts": "localhost,b:16"}, 6),
])
def test_number_of_processes(options, count):
    assert starting.num_processes(cpu(**options)) == count
    assert starting.needs_launcher(cpu(**options)) == (count > 1)


def test_room_on_other_machines_is_not_guessed():
    """From a head node, which has other devices than the hosts."""
    with pytest.raises(UserError, match=r"--hosts a:4,b: b has no number of processes, and this machine is not one of the hosts.*\(b:8\)"):
        starting.num_processes(cpu(ngpu=32, hosts="a:4,b"))
    assert starting.num_processes(cpu(ngpu=32, hosts="a,b", nproc=16)) == 16


def test_hosts_of_a_list_and_of_a_file(tmp_path):
    assert starting.parse_hosts("node1,node2:4") == [("node1", None), ("node2", 4)]
    (tmp_path / "hosts").write_text("# rack 3\nnode1\nnode2:4\n\nnode-3.site slots=2  # GPUs\n")
    assert starting.parse_hosts(str(tmp_path / "hosts")) == [("node1", None), ("node2", 4), ("node-3.site", 2)]
    for wrong in ("node1,,node2", "node1:0", "node 1"):
        with pytest.raises(UserError, match="is no host"):
            starting.parse_hosts(wrong)
    (tmp_path / "hosts").write_text("\n")
    with pytest.raises(UserError, match="names no host"):
        starting.parse_hosts(str(tmp_path / "hosts"))


def test_mpiexec():
    verb = [sys.executable, "-m", "mpi4py", "-m", "pykaldist", "train", "store", "exp"]
    command = one(cpu(ngpu=4))
    assert Path(command.words[0]) == Path(sys.executable).with_name("mpiexec.gforker") and command.words[1:] == ["-n", "4", *verb]
    assert command.env == variables("lo") | of_open_mpi()
    several = one(cpu(ngpu=7, nproc=7, hosts="a,b"))
    assert Path(several.words[0]).name == "mpiexec" and several.words[1:5] == ["-hosts", "a:4,b:4", "-n", "7"]
    assert several.env == of_open_mpi()
    named = one(cpu(ngpu=7, nproc=7, hosts="a,b", interface="eth1"))
    assert named.words[1:4] == ["-iface", "eth1", "-hosts"] and named.env == variables("eth1") | of_open_mpi()
    assert of_open_mpi()["OMPI_MCA_rmaps_base_oversubscribe"] == "true"
    gloo = one(cpu(ngpu=4, nproc=4, hosts="a,b", fabric="gloo"))
    assert gloo.words[5:] == [sys.executable, "-m", "pykaldist", "train", "store", "exp"] and gloo.env["MASTER_ADDR"] == "a"


def test_processes_of_its_own():
    commands = starting.commands(cpu(ngpu=3, fabric="gloo"), ["train", "store", "exp"])
    assert [c.words for c in commands] == [[sys.executable, "-m", "pykaldist", "train", "store", "exp"]] * 3
    for rank, command in enumerate(commands):
        assert (command.env["RANK"], command.env["LOCAL_RANK"], command.env["WORLD_SIZE"]) == (str(rank), str(rank), "3")
        assert (command.env["MASTER_ADDR"], command.env["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")
    assert len({c.env["MASTER_PORT"] for c in commands}) == 1


@pytest.fixture
def gpus(monkeypatch):
    """`gpus(count, nccl)`: as if this machine had so many."""

    def make(count: int, nccl: bool = True) -> None:
        monkeypatch.setattr(starting, "num_visible", lambda: count)
        monkeypatch.setattr(starting, "has_nccl", lambda: nccl)

    return make


@pytest.mark.parametrize(("options", "count"), [
    ({"ngpu": 8}, 8), ({"ngpu": 2}, 2), ({"ngpu": 32}, 8), ({"ngpu": 4, "device": "cuda:1"}, 1), ({"ngpu": 4, "device": "cpu"}, 4),
    ({"ngpu": 4, "device": "cuda:1", "hosts": "localhost,b"}, 2), ({"ngpu": 16, "hosts": "localhost:8,b"}, 16)])
def test_number_of_processes_on_gpus(gpus, options, count):
    """One for each GPU; where one is named, it has all workers."""
    gpus(8)
    assert starting.num_processes(JobOptions(**options)) == count


@pytest.mark.parametrize(("options", "nccl", "by_mpi"), [
    ({"ngpu": 8}, True, False), ({"ngpu": 32}, True, False), ({"ngpu": 8}, False, True), ({"ngpu": 16, "nproc": 16}, True, True),
    ({"ngpu": 8, "fabric": "mpi"}, True, True), ({"ngpu": 8, "fabric": "gloo"}, True, False),
    ({"ngpu": 8, "hosts": "localhost,b"}, True, True), ({"ngpu": 8, "device": "cpu"}, True, True),
    ({"ngpu": 4, "nproc": 4, "device": "cuda:1"}, True, True)])
def test_who_starts_processes_on_gpus(gpus, options, nccl, by_mpi):
    """Without MPI where each process has a GPU of its own on this machine, whose processes find each other by torch's variables."""
    gpus(8, nccl)
    started = starting.commands(JobOptions(**options), ["train", "store", "exp"])
    assert [command.env.get("RANK") for command in started] == ([None] if by_mpi else [str(rank) for rank in range(8)])
    assert ("mpi4py" in started[0].words) == by_mpi


@pytest.mark.parametrize(("options", "nccl", "sentence"), [
    ({"ngpu": 4, "fabric": "nccl", "device": "cpu"}, True, "NCCL exchanges between GPUs, and --device cpu is the CPU"),
    ({"ngpu": 4, "fabric": "nccl"}, False, "has no NCCL; install a PyTorch that has, or use --fabric mpi or gloo"),
    ({"ngpu": 16, "nproc": 16, "fabric": "nccl"}, True, "16 processes share 8 devices, and NCCL wants one for each process")])
def test_what_is_not_possible_is_said_before_anything_is_started(gpus, options, nccl, sentence):
    gpus(8, nccl)
    with pytest.raises(UserError, match=sentence):
        starting.commands(JobOptions(**options), ["train", "store", "exp"])


def test_without_mpiexec(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="there is no mpiexec"):
        one(cpu(ngpu=2))


def test_without_mpi4py(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package mpi4py.*or use --fabric gloo"):
        one(cpu(ngpu=2))


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """`slurm(body)`: an allocation of two nodes with a fake srun, which has its own options in $options and the command in "$@"."""

    def make(body: str = "") -> None:
        script = ('#!/bin/bash\noptions=()\nwhile [[ $1 == -* ]]; do options+=("$1"); [[ $1 == --ntasks=* ]] && n=${1#*=}; shift; done\n'
                  + body)
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "srun").write_text(script)
        (tmp_path / "bin" / "srun").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "2", "JOB_NODELIST": "node[03-04,7],gpu1"}.items():
            monkeypatch.setenv(f"SLURM_{name}", value)

    return make


def test_srun(slurm, monkeypatch):
    slurm()
    assert starting.num_processes(cpu(ngpu=32)) == 8
    monkeypatch.setenv("SLURM_NTASKS", "6")
    command = one(cpu(ngpu=32))
    assert command.words[:4] == ["srun", "--ntasks=6", "--kill-on-bad-exit=1", "--export=ALL"] and not command.env
    assert command.words[-7:] == ["-m", "mpi4py", "-m", "pykaldist", "train", "store", "exp"]
    assert one(cpu(ngpu=32, fabric="gloo")).env == {"SLURM_MPI_TYPE": "none"}
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert one(cpu(ngpu=32)).words[2] == "--cpus-per-task=8"
    assert "-hosts" in one(cpu(ngpu=4, nproc=4, hosts="a,b")).words  # what the user says comes first
    assert started_by() is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "6")  # one of srun's tasks
    assert started_by() == "srun" and not starting.needs_launcher(cpu(ngpu=32))
    monkeypatch.setenv("MPI_LOCALNRANKS", "3")  # a process of an mpiexec that has used srun
    assert started_by() == "mpi"


def test_one_task_of_slurm_with_several_gpus_starts_its_processes_itself(slurm, monkeypatch):
    """As `sbatch --ntasks=1 --gres=gpu:8` gives them; a task on CPUs, or with one GPU, is one process."""
    slurm()
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setattr(starting, "has_nccl", lambda: True)
    for visible, device, count in ((8, "cuda", 8), (8, "auto", 8), (1, "cuda", 1), (8, "cuda:1", 1), (8, "cpu", 1), (0, "auto", 1)):
        monkeypatch.setattr(starting, "num_visible", lambda visible=visible: visible)
        options = JobOptions(device=device, ngpu=8, strategy="ma")
        assert starting.num_processes(options) == count and starting.needs_launcher(options) == (count > 1)
    monkeypatch.setattr(starting, "num_visible", lambda: 8)
    found = starting.commands(JobOptions(device="cuda", ngpu=8, strategy="ma"), ["train", "store", "exp"])
    assert [command.env["RANK"] for command in found] == list("01234567") and all("srun" not in command.words for command in found)
    monkeypatch.setenv("SLURM_NTASKS", "8")
    assert one(JobOptions(device="cuda", ngpu=8, strategy="ma")).words[:2] == ["srun", "--ntasks=8"]


@pytest.fixture
def store(make_store) -> Path:
    make_store([40] * 10, seed=1, name="train")
    return make_store([40] * 3, seed=2, name="dev").path.parent


@pytest.fixture
def pykaldist(monkeypatch, root):
    """`pykaldist(words)`: what it prints; it has to succeed, without a word of complaint. It is a process of its own, in which the
    deterministic mode comes before the libraries."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(root))

    def run(*words: str | Path) -> str:
        done = subprocess.run([sys.executable, "-m", "pykaldist", *map(str, words)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def expected(store, tmp_path, pykaldist) -> bytes:
    """The network of two virtual workers."""
    assert "2 on 1 process, cpu" in pykaldist(*TRAIN, "--ngpu", "2", "--fabric", "virtual", store, tmp_path / "virtual")
    return (tmp_path / "virtual" / "final.nnet").read_bytes()


def test_a_task_of_srun_takes_part(slurm, store, tmp_path, expected, pykaldist, monkeypatch):
    """With a fake srun, which runs its tasks here."""
    slurm('''echo "${options[@]}" > "$SRUN_OPTIONS"
export SLURM_STEP_NUM_TASKS=$n SLURM_STEP_ID=0
pids=()
for ((i = 0; i < n; i++)); do SLURM_PROCID=$i "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
''')
    monkeypatch.setenv("SRUN_OPTIONS", str(tmp_path / "options"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for fabric in ("mpi", "gloo"):
        out = pykaldist(*TRAIN, "--ngpu", "2", "--nproc", "2", "--fabric", fabric, store, tmp_path / fabric)
        assert f"2 on 2 processes over {fabric}" in out
        assert (tmp_path / fabric / "final.nnet").read_bytes() == expected
        assert "--ntasks=2" in (tmp_path / "options").read_text()


def test_a_process_of_torchrun_takes_part(store, tmp_path, expected, root):
    words = ["--standalone", "--nproc-per-node", "2", "-m", "pykaldist", *TRAIN, "--ngpu", "2", store, tmp_path / "exp"]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", *words], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "2 on 2 processes over gloo" in done.stdout
    assert (tmp_path / "exp" / "final.nnet").read_bytes() == expected


@pytest.mark.parametrize("hosts", ["localhost", "localhost:1,127.0.0.1:3", socket.gethostname()])
def test_hosts_that_are_this_machine_are_none(hosts):
    """Nothing listens beyond loopback then, as hydra would."""
    for fabric in ("mpi", "gloo"):
        named, alone = (starting.commands(cpu(ngpu=4, fabric=fabric, **more), ["train", "store", "exp"]) for more in ({"hosts": hosts}, {}))
        assert [command.words for command in named] == [command.words for command in alone]
        assert [{**command.env, "MASTER_PORT": ""} for command in named] == [{**command.env, "MASTER_PORT": ""} for command in alone]
    assert starting.num_processes(cpu(ngpu=32, hosts="localhost:2")) == 2
    assert starting.several_hosts(cpu(ngpu=4, hosts="localhost,node2")) and starting.several_hosts(cpu(ngpu=4, hosts="node2"))


@pytest.mark.parametrize("fabric", ["mpi", pytest.param("gloo", marks=pytest.mark.slow)])
def test_hosts(store, tmp_path, expected, pykaldist, fabric):
    """Of a hostfile, which names this machine."""
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    out = pykaldist(*TRAIN, "--ngpu", "2", "--hosts", tmp_path / "hosts", "--fabric", fabric, store, tmp_path / "exp")
    assert f"2 on 2 processes over {fabric}" in out
    assert (tmp_path / "exp" / "final.nnet").read_bytes() == expected


def test_pretraining_is_launched_too(store, tmp_path, pykaldist):
    options = ["pretrain-dbn", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--device", "cpu", "--strategy", "ma", "--ngpu", "3"]
    out = pykaldist(*options, "--nproc", "2", store, tmp_path / "exp")
    assert "3 on 2 processes over mpi" in out and "3 workers share them, up to 2 virtual ones in a process" in out
    assert (tmp_path / "exp" / "dbn.pt").is_file()


@pytest.fixture
def launcher(monkeypatch, tmp_path):
    """`launcher(script, options)`: a launcher whose one process is a shell script."""

    def make(script: str, **options: float) -> launch.Launcher:
        monkeypatch.setattr(launch, "commands", lambda options, argv, supervised: [starting.Command(["bash", "-c", script])])
        return launch.Launcher(cpu(ngpu=2, **options), ["train"], tmp_path / "exp")

    return make


def test_processes_that_do_not_meet(launcher, tmp_path, capsys):
    come = f"mkdir -p {tmp_path}/exp/{FOLDER}; printf 'process 1 on b (pid 3)' > {tmp_path}/exp/{FOLDER}/{CAME}1; "
    assert launcher("exec sleep 100", timeout=1.0).run() == DIED
    assert launcher(come + "exec sleep 100", start_timeout=1.0).run() == DIED
    assert launcher(come + come.replace("1; ", "0; ") + "exec sleep 100", start_timeout=1.0).run() == DIED
    nobody, one, both = capsys.readouterr().err.splitlines()
    assert nobody.startswith("pykaldist train: ERROR: process 0, process 1 of 2 processes have not come to meet the others within 1 s; the")
    assert "ERROR: process 0 of 2 processes has not come to meet the others within 1 s; there is process 1 on b (pid 3); the last" in one
    assert "ERROR: the 2 processes have come, and not met within 1 s; the last checkpoint is whole" in both


def test_processes_that_hang_when_nobody_watches_them_any_more(launcher, tmp_path, capsys):
    """One that is stopped when the watches of the others are over; or all have trained, and do not end."""
    folder = f"{tmp_path}/exp/{FOLDER}"
    record = json.dumps({"job": 1, "host": "a", "pid": 7, "beat": 3, "progress": 3, "state": "computing"})
    hangs = f"mkdir -p {folder}; printf '%s' '{record}' > {folder}/0; "
    assert launcher(hangs + "exec sleep 100", timeout=2.0).run() == DIED
    assert launcher(hangs + f"sleep 2; rm {folder}/0; exec sleep 100", timeout=2.0).run() == DIED
    stopped, ended = capsys.readouterr().err.splitlines()
    assert stopped == f"pykaldist train: ERROR: process 0 on a (pid 7) is hung: no sign of life for 3 s; {launch.GO_ON}"
    assert ended == f"pykaldist train: ERROR: the processes have trained, and not ended for 3 s; {launch.GO_ON}"


def test_sigterm_before_they_have_met_ends_them(launcher):
    """There is nothing to keep, and nobody who would hear of it."""
    run = launcher("kill -TERM $PPID; exec sleep 100")
    with pytest.raises(Terminated):
        run.run()
    assert run.children[0].returncode < 0


def test_what_srun_says_of_a_cancelled_job(launcher, capsys):
    """It kills the others when the first has ended by SIGTERM: nothing has died, and no other try is made."""
    for first in ("Terminated", "Exited with exit code 143"):
        with pytest.raises(Terminated):
            launcher(f"echo 'srun: error: n1: task 0: {first}' >&2; echo 'srun: error: n2: tasks 2-3: Killed' >&2; exit 137").run()
    assert capsys.readouterr().err == ""


def test_a_sentence_that_says_to_go_on_is_no_error_of_the_user(launcher, capsys):
    """Whatever status srun makes of it."""
    assert launcher(f"echo 'pykaldist train: ERROR: process 0 on n1: process 3 is missing; {launch.GO_ON}' >&2; exit 137").run() == DIED
    assert "process 3 is missing" in capsys.readouterr().err


def test_what_ended_a_job_is_said_once(launcher, capsys):
    assert launcher("echo fine; echo 'WARNING: odd' >&2; echo 'WARNING: odd' >&2").run() == 0
    assert capsys.readouterr() == ("fine\n", "WARNING: odd\n")
    noise = "echo '[mpiexec@here] no such host' >&2; "
    with pytest.raises(UserError, match=r"^\[mpiexec@here\] no such host\nbash ended with status 143, and no process said why\.$"):
        launcher(noise + "exit 143").run()
    error = "echo 'pykaldist train: ERROR: process {} on here: {}' >&2; "
    said = error.format(0, launch.LOST) + error.format(1, "a full disk.") + error.format(2, "a full disk.") + noise
    with pytest.raises(UserError, match=r"^process 1 on here: a full disk\.$"):
        launcher(said + "echo 'pykaldist train: terminated; and so on' >&2; exit 1").run()
    with pytest.raises(Terminated):
        launcher("echo 'pykaldist train: terminated; run it again.' >&2; " + noise + "exit 143").run()
    assert capsys.readouterr().err == ""
    assert launcher(error.format(0, launch.LOST) + "exit 75").run() == DIED
    assert launcher("echo 'srun: error: node2: task 3: Killed' >&2; exit 137").run() == DIED
    ended = "echo '[0]0:Return code = 0, signaled with Quit' >&2; echo '[0]1:Return code = {}' >&2; "
    assert launcher(ended.format("0, signaled with Killed")).run() == DIED
    assert launcher(ended.format("137") + "exit 137").run() == DIED
    with pytest.raises(UserError, match="ended with status 5"):
        launcher(ended.format("5") + "exit 5").run()
    first, second, *others = capsys.readouterr().err.splitlines()
    assert launch.LOST in first and "process 3 on node2 died (killed)" in second
    killed = f"process 1 on {socket.gethostname()} (pid unknown) was killed by signal 9 (SIGKILL)"
    assert len(others) == 2 and all(killed in one for one in others)


def test_a_process_that_ends_itself_has_died(launcher, monkeypatch, capsys):
    """As NCCL's watchdog ends a process whose exchange has failed, by SIGABRT: another try may help."""
    run = launcher("exec sleep 100")
    run.commands.append(starting.Command(["bash", "-c", "kill -ABRT $$"]))
    assert run.run() == DIED
    assert f"process 1 on {socket.gethostname()} (pid {run.children[1].pid}) was killed by signal 6 (SIGABRT)" in capsys.readouterr().err


def test_last_words_that_mpiexec_has_not_passed_on(launcher, tmp_path, capsys):
    error = "pykaldist train: ERROR: process 1 on here: a fault.\\n"

    def leave(words):
        return f"mkdir -p {tmp_path}/exp/{FOLDER}; printf '{words}' > {tmp_path}/exp/{FOLDER}/said-here-1; "

    for more, err in (("", "Traceback\n"), (f"printf '{error}' >&2; ", "")):  # heard already, it is not said again
        with pytest.raises(UserError, match=r"^process 1 on here: a fault\.$"):
            launcher(leave("Traceback\\n" + error) + more + "exit 1").run()
        assert capsys.readouterr().err == err
    with pytest.raises(Terminated):
        launcher(leave("pykaldist train: terminated; run it again.\\n") + "exit 143").run()
    assert not (tmp_path / "exp" / FOLDER).exists()


def test_a_process_leaves_its_last_words_with_a_launcher(tmp_path, monkeypatch):
    monkeypatch.delenv("PYKALDIST_JOB", raising=False)
    write_last_words("so it is\n", tmp_path / FOLDER)
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("PYKALDIST_JOB", "token")
    write_last_words("so it is\n", tmp_path / FOLDER)
    assert [path.read_text() for path in (tmp_path / FOLDER).glob("said-*")] == ["so it is\n"]


class Two(SingleProcess):
    """As if there were another process."""

    size = 2

    def control(self, values, largest=False):
        return np.array(values)


def watched(exp: Path, other: dict[str, object] | None, timeout: float = 1.0) -> str:
    """What process 0 of two says when it makes no steps in an epoch, while the other's record is `other`, or goes on if that is None."""
    said: list[str] = []
    heard = threading.Event()
    with Watch(Two(), exp, timeout, lambda sentence: (said.append(sentence), heard.set())) as watch, pulse.stepping():
        record = {**watch.record, "host": "node2", "pid": 7, "beat": 1, "progress": 1, "state": WAITING, **(other or {})}
        deadline = time.monotonic() + 3 * timeout
        while time.monotonic() < deadline and not heard.is_set():
            if other is None:
                record["progress"] += 1
            if other is None or "beat" not in other:
                record["beat"] += 1
            path = exp / FOLDER / "1"
            path.with_name(".one").write_text(json.dumps(record))
            os.replace(path.with_name(".one"), path)
            time.sleep(0.05)
        path.unlink()
    return said[0] if said else ""


def test_which_process_is_at_fault(tmp_path):
    assert watched(tmp_path, None) == ""  # somebody does something
    assert watched(tmp_path, {"beat": 3}) == "process 1 on node2 (pid 7) is hung: no sign of life for 1 s, and no progress of any process"
    assert "process 0 on" in watched(tmp_path, {}) and "computing" in watched(tmp_path, {})  # this one does not wait, the other does
    busy = watched(tmp_path, {"state": "computing (pykaldist/x.py:1)"})
    assert busy.startswith("process 0 on") and ", process 1 on node2 (pid 7) are hung: no progress for 1 s, still computing" in busy
    assert not (tmp_path / FOLDER).exists()


def test_what_has_no_steps_is_progress(tmp_path):
    """Outside of an epoch, a process that does not wait for others makes progress by living."""
    said: list[str] = []
    with Watch(Two(), tmp_path, 0.5, said.append):
        time.sleep(1.5)
        assert read_records(tmp_path / FOLDER)[0]["progress"] > 5
    assert not said


def test_an_exchange_is_told_from_computing():
    seen = []

    class Spy(SingleProcess):
        def barrier(self) -> None:
            seen.append(activity(sys._getframe()))
            super().barrier()

        def control(self, values, largest=False):
            seen.append(activity(sys._getframe()))
            return super().control(values, largest)

    Spy().barrier()
    assert seen == ["computing", WAITING]  # called by the test, and by processes.py


NCCL = """epoch 1: rate 0.01
[rank1]:[E1123 04:20:00.000000000 ProcessGroupNCCL.cpp:1537] [PG 1 Rank 1] Process group watchdog thread terminated with exception: {why}
Exception raised from checkForNCCLErrorsInternal at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1723 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in libc10.so)
[rank1]:frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x10c (0x7f in libtorch_cuda.so)
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG 1 Rank 1] Process group watchdog thread terminated with exception: {why}
"""


class FullOnce(io.RawIOBase):
    """A log whose disk is full when the first line is to be written to it."""

    def __init__(self) -> None:
        self.lines = b""
        self.tried = 0

    def writable(self) -> bool:
        return True

    def write(self, content) -> int:
        self.tried += 1
        if self.tried == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.lines += bytes(content)
        return len(content)


def test_output_is_read_on_where_the_log_refuses_it(tmp_path):
    """A job would stop at a full pipe; what the log has refused is written with the next line."""
    launcher, log = launch.Launcher(cpu(ngpu=2), ["train"], tmp_path / "exp"), FullOnce()
    source = io.StringIO("epoch 1\nepoch 2\n")
    launcher._read(source, io.TextIOWrapper(io.BufferedWriter(log)))
    assert source.read() == "" and log.lines == b"epoch 1\nepoch 2\n"


@pytest.mark.parametrize(("why", "said"), [
    ("NCCL error: remote process exited or there was a network error, NCCL version 2.20.5",
     "NCCL error: remote process exited or there was a network error"),
    ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 10008 milliseconds",
     "Watchdog caught collective operation timeout")])
def test_nccls_own_end_is_one_sentence(tmp_path, capsys, why, said):
    """In place of what PyTorch prints when its watchdog ends a process; other lines are passed on."""
    launcher, passed_on = launch.Launcher(cpu(ngpu=2), ["train"], tmp_path / "exp"), io.StringIO()
    launcher._read(io.StringIO(NCCL.format(why=why)), passed_on)
    assert passed_on.getvalue() == "epoch 1: rate 0.01\n"
    assert launcher._verdict(-6) == DIED
    assert capsys.readouterr().err == (
        f"pykaldist train: ERROR: process 1 on {socket.gethostname()} (pid unknown) lost its connection to another process by NCCL "
        f"({said}); the last checkpoint is whole: run the same command again to go on.\n")
