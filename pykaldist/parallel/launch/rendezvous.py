"""The rendezvous of the processes of a SLURM step: how they find each other, whoever has made the step (`pykaldist`, or an srun of yours).

SLURM says to each process which one it is (SLURM_PROCID) and how many there are. Process 0 starts a server (`rendezvous_server.py`), and
writes its addresses, its port and a key that it has drawn to <exp>/.ranks/rendezvous-<step>, which only the user can read. The others look
there, try the addresses until they find the server, and prove that they know the key. So nothing depends on the names of nodes, on free
ports, or on SLURM's plugins for MPI; the experiment's folder has to be on a file system that all share, as always.

The processes then tell each other in rounds (`gather`) what they need to open MPI or torch.distributed. Each round has a time limit, and
its error names the processes that are missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pykaldist
from pykaldist.errors import NotMetError, missing_sentence
from pykaldist.parallel.launch.rendezvous_server import CONTROL, LONGEST_LINE, PMI, proof
from pykaldist.parallel.transport.addresses import LOOPBACK, facing, interfaces, machine_card

CONNECT_S = 3.0  # to one address
PAUSE_S = 0.1  # between two looks for the server
SERVER = "pykaldist.parallel.launch.rendezvous_server"
OTHERS_OWN = ("PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMI_JOBID")  # SLURM's words to MPICH, which do not hold here


def host_name() -> str:
    """The name of this process's node: that of SLURM, by which the user knows it, else that of the system."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


class Rendezvous:
    """The rendezvous of this process with the others of its SLURM step, whose files are in folder `folder` (<exp>/.ranks).

    `seconds` is the time limit of a round; `interface` the network interface at which process 0 listens, if the user has named one. It is a
    context: at its end the connection is closed, and MPI keeps its own. Raises NotMetError, here and in `gather`, where processes are
    missing.
    """

    def __init__(self, folder: Path, seconds: float, interface: str = "") -> None:
        environ = os.environ
        self.rank, self.size, self.seconds = int(environ["SLURM_PROCID"]), int(environ["SLURM_STEP_NUM_TASKS"]), seconds
        step = ".".join(environ.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT"))
        self.name = f"process {self.rank} on {host_name()} (pid {os.getpid()})"
        self._path = folder / f"rendezvous-{step}"
        self._key, self._address = b"", ("", 0)
        if self.rank == 0:
            self._start_server(interface)
        self._control = self._connect(CONTROL)
        self._lines = self._control.makefile("rb")

    def _start_server(self, interface: str) -> None:
        """Start the server, and tell the others where it is."""
        self._key = secrets.token_bytes(32)
        addresses = [LOOPBACK]
        if os.environ.get("SLURM_STEP_NUM_NODES") != "1":
            addresses = [facing(interfaces(), [], interface)] if interface else [*(str(one.ip) for one in interfaces().values()), LOOPBACK]
        listener = socket.create_server((addresses[0] if len(addresses) == 1 else "", 0), backlog=2 * self.size + 100)
        with listener:
            self._address = (addresses[-1], listener.getsockname()[1])
            root = str(Path(pykaldist.__file__).resolve().parent.parent)
            command = [sys.executable, "-m", SERVER, str(self.size), f"{self.seconds:g}", str(listener.fileno())]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])})
            assert server.stdin is not None
            with server.stdin as stdin:
                stdin.write(self._key.hex().encode() + b"\n")
        _write_secret(self._path, {"key": self._key.hex(), "addresses": addresses, "port": self._address[1]})

    def _find(self) -> Iterator[tuple[str, int]]:
        """The addresses at which the server may be, the key being set; none while process 0 has not written them."""
        if self._address[1]:
            yield self._address
            return
        with contextlib.suppress(OSError, ValueError):
            os.listdir(self._path.parent)  # has NFS look anew
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._key = bytes.fromhex(found["key"])
            yield from ((str(address), int(found["port"])) for address in found["addresses"])

    def _connect(self, kind: str) -> socket.socket:
        """Connect to the server, within the time limit."""
        start, seen = time.monotonic(), False
        while True:
            for address in self._find():
                seen = True
                with contextlib.suppress(OSError, ValueError):
                    connection = self._greet(address, kind)
                    if connection is not None:
                        self._address = address
                        return connection
            if time.monotonic() > start + self.seconds:
                if seen:
                    raise NotMetError(f"{self.name} does not reach process 0 within {self.seconds:g} s, by the addresses and the port in "
                                      f"{self._path}; --interface names the network interface by which the hosts reach each other")
                raise NotMetError(missing_sentence(self.size, [0], {self.rank: self.name}, self.seconds))
            time.sleep(PAUSE_S)

    def _greet(self, address: tuple[str, int], kind: str) -> socket.socket | None:
        """A connection with the server at this address; None where somebody else listens there."""
        connection = socket.create_connection(address, CONNECT_S)
        try:
            lines = connection.makefile("rb", buffering=0)
            theirs, drawn = lines.readline(256).decode().strip(), secrets.token_hex(16)
            hello = {"kind": kind, "rank": self.rank, "name": self.name, "drawn": drawn, "proof": proof(self._key, theirs, kind, self.rank)}
            connection.sendall(json.dumps(hello).encode() + b"\n")
            if lines.readline(256).decode().strip() == proof(self._key, "server", drawn):
                connection.settimeout(None)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                kept, connection = connection, socket.socket()
                return kept
            return None
        finally:
            connection.close()

    def gather(self, word: Any, last: bool = False) -> list[Any]:
        """What each process has said in this round, by rank. `last`: this round ends the start, and with it the watch over who is missing.
        """
        try:
            self._control.sendall(json.dumps({"says": word, "last": last}).encode() + b"\n")
            answer = json.loads(self._lines.readline(LONGEST_LINE * self.size) or "{}")
        except OSError as error:
            raise NotMetError(f"{self.name} has lost its connection to process 0 before all had met ({error.strerror})") from error
        if "all" in answer:
            return list(answer["all"])
        raise NotMetError(answer.get("error", f"process 0 of {self.size} processes has ended before all had met"))

    def meet(self) -> list[dict[str, Any]]:
        """The first round: the card of each process's machine (`machine_card`), by rank."""
        return self.gather(machine_card())

    def start_mpi(self) -> None:
        """Let MPICH ask the server, when it starts in this process, for the addresses of the others. To be called before MPI starts."""
        for name in OTHERS_OWN:
            os.environ.pop(name, None)
        connection = self._connect(PMI)
        os.environ.update(PMI_FD=str(connection.detach()), PMI_RANK=str(self.rank), PMI_SIZE=str(self.size), MPIR_CVAR_PMI_VERSION="1")

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lines.close()
        self._control.close()
        if self.rank == 0:
            self._path.unlink(missing_ok=True)


def _write_secret(path: Path, thing: Any) -> None:
    """Write a JSON file that only the user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "w", encoding="utf-8", opener=_private) as stream:
        json.dump(thing, stream)
    os.replace(temporary, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)

