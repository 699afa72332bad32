"""A Python process that has imported and compiled everything, and forks for whoever asks: `zygote.py SOCKET SHIM`.

A start of Python with PyTorch takes a second or more, a fork some hundredths. client.c, which stands in for the interpreter, sends
arguments, environment, folder and open files; the fork takes them over, arms the shim (shim.c) and runs them as the interpreter would.
Where the environment has FAULTS_WARM, it is this process itself that runs them: so the forks have its compiled kernels and its modules.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import NoReturn

MOST = 200  # files of a client
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
BEHIND = 700  # numbers of files that nobody asks for


@dataclass
class Request:
    """What a client asks for."""

    folder: str
    numbers: list[int]  # its open files ...
    files: list[int]  # ... as they are numbered here
    argv: list[str]
    env: dict[str, str]


def receive(connection: socket.socket) -> Request:
    fds = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(MOST * fds.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if len(head) < 4:
        raise EOFError
    size, content = struct.unpack("=I", head)[0], bytearray()
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    words = [os.fsdecode(word) for word in bytes(content).split(b"\0")[:-1]]
    folder, count = words[0], int(words[1])
    numbers, words = [int(n) for n in words[2 : 2 + count]], words[2 + count :]
    argc = int(words[0])
    env = dict(word.partition("=")[::2] for word in words[1 + argc :])
    return Request(folder, numbers, list(fds), words[1 : 1 + argc], env)


def run(argv: list[str]) -> int:
    """What `python ARGV` does; the exit status."""
    try:
        if argv[0] == "-m":
            while argv[:3] == ["-m", "mpi4py", "-m"]:  # ends a job for an exception, which no verb of a job lets out
                argv = argv[2:]
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        elif argv[0] == "-c":
            sys.argv = ["-c", *argv[2:]]
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = argv
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def become(request: Request) -> None:
    """Take over files, folder and environment. For a fork: what else is open is closed."""
    high = [os.dup2(fd, BEHIND + i, inheritable=False) for i, fd in enumerate(request.files)]
    os.closerange(0, BEHIND)
    for number, fd in zip(request.numbers, high, strict=True):
        os.dup2(fd, number)
    os.closerange(BEHIND, BEHIND + MOST)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.env)


def fork(request: Request, shim: ctypes.CDLL) -> int:
    """Fork; the fork's pid. It never comes back from here."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(OSError):
            os.setsid()
        become(request)
        if network := request.env.get("FAULTS_NETWORK"):
            with open(network, "rb") as stream:
                ctypes.CDLL(None).setns(stream.fileno(), 0)
        random.seed()
        if "PYTHONUNBUFFERED" in request.env:
            sys.stdout.reconfigure(write_through=True)
        if "FAULTS_CONTROL" in request.env:
            shim.faults_attach(os.fsencode(request.env["FAULTS_CONTROL"]))
        status = run(request.argv)
    except BaseException:
        traceback.print_exc()
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End as the interpreter does, without clearing up memory: the sockets of `serve` have numbers that are other files' now."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # waits for threads
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: <stdout>\n{type(error).__name__}: {error}", file=sys.stderr)
        status = status or 120
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    if "mpi4py.MPI" in sys.modules and (mpi := sys.modules["mpi4py.MPI"]).Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    os._exit(status)


def warm(request: Request) -> int:
    """Run a request here; the exit status."""
    kept = [os.dup(fd) for fd in range(3)]
    before = dict(os.environ), os.getcwd(), {number: signal.getsignal(number) for number in HANDLED}
    for number, fd in zip(request.numbers, request.files, strict=True):
        if number < 3:
            os.dup2(fd, number)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update({name: value for name, value in request.env.items() if name != "PYKALDIST_PROGRESS_FD"})  # a file it was not given
    status = run(request.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ.clear()
    os.environ.update(before[0])
    os.chdir(before[1])
    for number, handler in before[2].items():
        signal.signal(number, handler)
    for fd, number in zip(kept, range(3), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    return status


def serve(path: str, library: str) -> None:
    shim = ctypes.CDLL(library)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    # Beside sys.executable is mpiexec; the processes that a verb starts are forks too.
    sys.executable = os.path.join(os.path.dirname(os.path.abspath(path)), "python")
    children: dict[int, tuple[int, socket.socket]] = {}  # file that tells of a fork's end -> its pid and its client
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)  # whoever started this holds the other end
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                return
            if fd == listener.fileno():
                connection, _ = listener.accept()
                try:
                    request = receive(connection)
                except (EOFError, OSError):
                    connection.close()
                    continue
                if "FAULTS_WARM" in request.env:
                    connection.sendall(struct.pack("=i", warm(request) << 8))
                    connection.close()
                    gc.collect()
                    gc.freeze()
                else:
                    pid = fork(request, shim)
                    ended = os.pidfd_open(pid)
                    children[ended] = pid, connection
                    poll.register(ended, select.POLLIN)
                    poll.register(connection, select.POLLIN)
                for one in request.files:
                    os.close(one)
            elif fd in children:
                pid, connection = children.pop(fd)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):
                    connection.sendall(struct.pack("=i", status))
                for one in (fd, connection):
                    poll.unregister(one)
                os.close(fd)
                connection.close()
            else:
                found = next(((pid, connection) for pid, connection in children.values() if connection.fileno() == fd), None)
                if found is None:
                    continue
                try:
                    numbers = found[1].recv(64)
                except OSError:
                    numbers = b""
                for number in numbers or bytes([signal.SIGKILL]):  # a client that is gone was killed
                    os.kill(found[0], number)
                if not numbers:
                    poll.unregister(fd)
                    poll.register(fd, 0)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
