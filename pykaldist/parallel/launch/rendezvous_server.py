"""The rendezvous server: a process beside process 0 of a SLURM step, through which the processes of the step meet, and MPI starts.

    python -m pykaldist.parallel.launch.rendezvous_server SIZE SECONDS FD     (the key of the step on stdin; FD listens)

Each process connects, and both sides prove that they know the key (HMAC-SHA256 of a number that the other side has drawn). Nobody else gets
in, and the key is never sent. Then the processes meet in rounds. In a round each process says one JSON value, and gets the list of all
values. SECONDS without a new word in a round end the start: all who are there are told who is missing. So does the end of a process.

MPI. MPICH asks whoever has started it for the addresses of the other processes, by the PMI-1 protocol: lines of words key=value over the
file descriptor PMI_FD. SLURM's own answer (srun --mpi=pmi2) cannot be used: it tells MPICH that a value may have 1024 bytes, but reads a
request with one read() of at most 1024 bytes (src/plugins/mpi/pmi2/pmi1.c, handle_pmi1_cmd, in 22.05 as in the sources of August 2026).
MPICH puts long addresses, those of nodes with several network interfaces, in pieces of 1022 bytes. They are cut there, and the rest is
taken for another request. The processes then hang, or end in MPI_Init. So each process makes a second connection to this server, and gives
it to MPICH as PMI_FD.

The server runs in a process of its own, as MPI_Init holds Python's lock for as long as it waits. After the start nobody can connect any
more. The server ends with the last connection. It imports nothing that takes long to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pykaldist.errors import missing_sentence

GREETING_S = 5.0  # in which who connects has to prove that it knows the key
MOST_GREETINGS = 512  # connections at a time that have not done so yet
LONGEST_LINE = 1 << 16
CONTROL, PMI = "control", "pmi"  # kinds of connections
MAXES = "kvsname_max=256 keylen_max=64 vallen_max=1024"  # as hydra has them
STREAM_ERRORS = (OSError, ValueError, KeyError, TypeError, asyncio.TimeoutError, asyncio.IncompleteReadError)


def proof(key: bytes, *words: object) -> str:
    """What shows that one knows the key: a code over these words."""
    return hmac.new(key, " ".join(map(str, words)).encode(), "sha256").hexdigest()


def process_mapping(machines: Sequence[str]) -> str:
    """MPICH's PMI_process_mapping of processes on these machines: which processes share memory."""
    number = {name: n for n, name in enumerate(dict.fromkeys(machines))}
    runs = [(number[name], len(list(run))) for name, run in groupby(machines)]
    return f"(vector,{','.join(f'({node},1,{count})' for node, count in runs)})"


class Server:
    """The server of a step of `size` processes, of which one has to say something new within `seconds`."""

    def __init__(self, size: int, seconds: float, key: bytes) -> None:
        self.size, self.seconds, self.key = size, seconds, key
        self.known: dict[int, str] = {}  # the processes that have come, in words
        self._control: dict[int, asyncio.StreamWriter] = {}
        self._pmi: dict[int, asyncio.StreamWriter] = {}
        self._said: dict[int, Any] = {}  # in the round under way
        self._values: dict[str, str] = {}  # MPI's
        self._job = f"pykaldist-{secrets.token_hex(8)}"  # MPICH names its shared memory after it; that of a killed job may still be there
        self._at_barrier: set[int] = set()
        self._word = asyncio.Event()
        self._done = asyncio.Event()  # all have met, or will not
        self._greetings = asyncio.Semaphore(MOST_GREETINGS)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the last connection has ended."""
        server = await asyncio.start_server(self._connection, sock=listener, limit=LONGEST_LINE, backlog=2 * self.size + MOST_GREETINGS)
        try:
            await self._watch()
        finally:
            server.close()
        while self._control or self._pmi:
            await asyncio.wait(self._tasks)

    async def _watch(self) -> None:
        """Wait until all have met. Where nobody says a word in time, say who is missing."""
        while not self._done.is_set():
            self._word.clear()
            try:
                await asyncio.wait_for(self._word.wait(), self.seconds)
            except asyncio.TimeoutError:
                missing = [rank for rank in range(self.size) if rank not in self._said]
                await self._fail(missing_sentence(self.size, missing, self.known, self.seconds))

    async def _fail(self, sentence: str) -> None:
        """End the start: tell all, and close MPI's connections, so that who waits in MPI_Init ends."""
        self._done.set()
        self._word.set()
        for writer in list(self._control.values()):
            with contextlib.suppress(*STREAM_ERRORS):
                writer.write(json.dumps({"error": sentence}).encode() + b"\n")
                await asyncio.wait_for(writer.drain(), 1.0)
        for writer in [*self._control.values(), *self._pmi.values()]:
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async with self._greetings:
                hello = await asyncio.wait_for(self._greet(reader, writer), GREETING_S)
        except STREAM_ERRORS:
            hello = None  # a stranger
        try:
            if hello is not None:
                rank = hello["rank"]
                if hello["kind"] == PMI:
                    await self._serve_mpi(rank, reader, writer)
                else:
                    self.known[rank] = hello["name"]
                    await self._serve_control(rank, reader, writer)
        except STREAM_ERRORS:
            pass  # it has ended
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        """Exchange proofs with who has connected. Returns what it is; None for a stranger."""
        drawn = secrets.token_hex(16)
        writer.write(f"{drawn}\n".encode())
        hello: dict[str, Any] = json.loads(await reader.readline())
        rank, kind = int(hello["rank"]), str(hello["kind"])
        if not hmac.compare_digest(str(hello["proof"]), proof(self.key, drawn, kind, rank)) or not 0 <= rank < self.size:
            return None
        writer.write(f"{proof(self.key, 'server', hello['drawn'])}\n".encode())
        return hello

    async def _serve_control(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take what a process says in each round."""
        self._control[rank] = writer
        try:
            while line := await reader.readline():
                word = json.loads(line)
                self._said[rank] = word["says"]
                self._word.set()
                if len(self._said) == self.size:
                    self._end_round(bool(word["last"]))
        finally:
            del self._control[rank]
            if not self._done.is_set():
                await self._fail(f"{self.known[rank]} of {self.size} processes has ended before all had met")

    def _end_round(self, last: bool) -> None:
        """Tell all what all have said."""
        values = [self._said[rank] for rank in range(self.size)]
        self._said.clear()
        if not self._values:
            self._values["PMI_process_mapping"] = process_mapping([str(value["machine"]) for value in values])
        if last:
            self._done.set()
        for writer in self._control.values():
            writer.write(json.dumps({"all": values}).encode() + b"\n")

    async def _serve_mpi(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a process's MPI."""
        self._pmi[rank] = writer
        try:
            while line := await reader.readline():
                words = dict(word.partition("=")[::2] for word in line.decode().split())
                if words["cmd"] == "barrier_in":
                    self._at_barrier.add(rank)
                    if len(self._at_barrier) == self.size:
                        self._at_barrier.clear()
                        for one in self._pmi.values():
                            one.write(b"cmd=barrier_out rc=0\n")
                elif words["cmd"] == "abort":
                    _end_step()
                else:
                    writer.write(f"{self._answer(words)}\n".encode())
        finally:
            del self._pmi[rank]

    def _answer(self, words: dict[str, str]) -> str:
        """The answer to a request of MPI."""
        cmd = words["cmd"]
        if cmd == "put":
            self._values[words["key"]] = words["value"]
        if cmd == "get":
            value = self._values.get(words["key"])
            return f"cmd=get_result rc=0 msg=success value={value}" if value else "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return {"init": "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1", "get_maxes": f"cmd=maxes rc=0 {MAXES}",
                "get_appnum": "cmd=appnum rc=0 appnum=0", "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self._job}",
                "get_universe_size": f"cmd=universe_size rc=0 size={self.size}", "put": "cmd=put_result rc=0 msg=success",
                "finalize": "cmd=finalize_ack rc=0"}.get(cmd, f"cmd={cmd}_result rc=-1 msg=unknown")


def _end_step() -> None:
    """End this step of SLURM: one of its processes has called MPI_Abort. Where `pykaldist` has started the step, srun ends it."""
    step = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
    if "PYKALDIST_JOB" not in os.environ and shutil.which("scancel") is not None:
        subprocess.Popen(["scancel", "--signal=KILL", step], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _main(size: int, seconds: float, listener: socket.socket, key: bytes) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # SLURM sends them to whatever process 0 has started; who has to end is process 0
    await Server(size, seconds, key).serve(listener)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]), socket.socket(fileno=int(sys.argv[3])), bytes.fromhex(sys.stdin.readline())))
