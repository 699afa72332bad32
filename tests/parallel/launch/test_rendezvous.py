"""The rendezvous of a SLURM step's processes: who meets, who is kept out, who is missing, and MPI by way of it. There is no SLURM here."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from typing import IO

import pytest

from pykaldist.errors import missing_sentence
from pykaldist.parallel.launch.rendezvous_server import CONTROL, Server, process_mapping, proof

STEP = "rendezvous-7.0.0"  # the file of job 7's step 0
PROCESS = """
import sys, time
from pathlib import Path
from pykaldist.errors import NotMetError
from pykaldist.parallel.launch.rendezvous import Rendezvous

try:
    with Rendezvous(Path(sys.argv[1]), float(sys.argv[2])) as rendezvous:
        hosts = {card["host"] for card in rendezvous.meet()}
        {BETWEEN}
        print(len(hosts), rendezvous.gather(10 * rendezvous.rank, last=True))
except NotMetError as error:
    print(error)
"""
MPI = """rendezvous.start_mpi()
        import mpi4py
        mpi4py.rc(initialize=False, finalize=True)
        from mpi4py import MPI
        MPI.Init_thread()
        sent = bytes(5000)  # long enough for a protocol of its own
        print(len(b"".join(MPI.COMM_WORLD.allgather(sent))), MPI.COMM_WORLD.allreduce(rendezvous.rank))"""


@pytest.fixture
def process(root, tmp_path):
    """`process(rank, size, seconds, between)`: starts a process of a step, which does `between` after the first round."""
    running = []

    def start(rank: int, size: int, seconds: float = 60.0, between: str = "pass") -> subprocess.Popen[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PMI"))}
        env = {**own, "PYTHONPATH": str(root), "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_JOB_ID": "7",
               "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"}
        command = [sys.executable, "-c", PROCESS.replace("{BETWEEN}", between), str(tmp_path / "ranks"), str(seconds)]
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.communicate()


def said(*processes: subprocess.Popen[str]) -> list[str]:
    return [one.communicate(timeout=240)[0].strip() for one in processes]


def test_they_meet_and_strangers_do_not(process, tmp_path):
    first = process(0, 3)
    path = tmp_path / "ranks" / STEP
    while not path.exists():
        assert first.poll() is None
        time.sleep(0.05)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    port = json.loads(path.read_text())["port"]
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for n, stranger in enumerate(strangers):
        hello = {"kind": "control", "rank": n % 3, "name": "a stranger", "drawn": "0", "proof": "0" * 64}
        stranger.sendall([b"", b"\x00\xff" * 1000, b"cmd=init\n", json.dumps(hello).encode() + b"\n"][n % 4])
    assert said(first, process(1, 3), process(2, 3)) == ["1 [0, 10, 20]"] * 3
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    for stranger in strangers:
        stranger.close()


@pytest.fixture
def connect():
    """`connect(ranks)`: connections of these processes to a server of three, which runs in a thread here, with a limit of one second."""
    listener, key = socket.create_server(("127.0.0.1", 0)), b"the key"
    port = listener.getsockname()[1]
    thread = threading.Thread(target=lambda: asyncio.run(Server(3, 1.0, key).serve(listener)))
    connections: list[socket.socket] = []

    def greet(rank: int, stream: IO[bytes]) -> None:
        drawn = stream.readline().decode().strip()
        hello = {"kind": CONTROL, "rank": rank, "name": f"process {rank} on a", "drawn": "1", "proof": proof(key, drawn, CONTROL, rank)}
        stream.write(json.dumps(hello).encode() + b"\n")
        assert stream.readline().decode().strip() == proof(key, "server", "1")

    def all_of(*ranks: int) -> list[IO[bytes]]:
        """They are connected before the server begins to count."""
        connections.extend(socket.create_connection(("127.0.0.1", port), timeout=60.0) for _ in ranks)
        streams = [one.makefile("rwb", buffering=0) for one in connections]
        thread.start()
        for rank, stream in zip(ranks, streams, strict=True):
            greet(rank, stream)
        return streams

    yield all_of
    for one in connections:
        one.close()
    thread.join(60.0)
    assert not thread.is_alive()  # the server ends with its last connection


def say(stream: IO[bytes]) -> None:
    stream.write(json.dumps({"says": {"machine": "a"}, "last": False}).encode() + b"\n")


def heard(stream: IO[bytes]) -> dict[str, object]:
    return json.loads(stream.readline())


def test_who_is_missing(connect):
    both = connect(0, 1)
    for one in both:
        say(one)
    said = "process 2 of 3 processes has not come to meet the others within 1 s; there are process 0 on a, process 1 on a"
    assert [heard(one) for one in both] == [{"error": said}] * 2


def test_who_says_nothing_more(connect):
    three = connect(0, 1, 2)
    for one in three:
        say(one)
    assert [len(heard(one)["all"]) for one in three] == [3] * 3
    say(three[0])
    said = "process 1 on a, process 2 on a of 3 processes came and then said nothing for 1 s, while all were to meet"
    assert heard(three[0]) == {"error": said}


def test_without_the_first(process):
    [word] = said(process(1, 2, 0.5))
    assert word.startswith("process 0 of 2 processes has not come to meet the others within 0.5 s; there is process 1 on ")


def test_who_ends_on_the_way(process):
    """After the first round: the others need not wait."""
    late = process(1, 2, between="import os; os._exit(3)")
    [word] = said(process(0, 2))
    assert word == f"process 1 on {socket.gethostname()} (pid {late.pid}) of 2 processes has ended before all had met"


def test_mpi_starts_by_it(process):
    pytest.importorskip("mpi4py")
    assert said(*(process(rank, 3, between=MPI) for rank in range(3))) == ["15000 3\n1 [0, 10, 20]"] * 3


def test_every_job_of_mpi_has_a_name_of_its_own():
    """MPICH names its shared memory after it: with that of a killed job the next one would hang."""
    names = {Server(2, 1.0, b"")._answer({"cmd": "get_my_kvsname"}) for _ in range(9)}
    assert len(names) == 9 and all(name.startswith("cmd=my_kvsname rc=0 kvsname=pykaldist-") for name in names)


def test_a_sentence_names_no_more_than_eight():
    names = ", ".join(f"process {rank}" for rank in range(1, 9))
    assert missing_sentence(64, range(1, 64), {0: "process 0 on a"}, 60.0) == (
        f"{names} and 55 more of 64 processes have not come to meet the others within 60 s; there is process 0 on a")


@pytest.mark.parametrize(("machines", "mapping"), [
    (["a", "a", "b", "b"], "(vector,(0,1,2),(1,1,2))"), (["a"], "(vector,(0,1,1))"), (["b", "a", "b"], "(vector,(0,1,1),(1,1,1),(0,1,1))")])
def test_which_processes_share_a_machine(machines, mapping):
    assert process_mapping(machines) == mapping
