"""A real Grid Engine on this machine: sge_qmaster and sge_execd with files and ports of their own. It needs root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("sge_qmaster", "sge_execd", "qconf", "qsub", "qstat", "qdel")
DEBIANS = Path("/usr/lib/gridengine"), Path("/usr/share/gridengine"), Path("/var/lib/gridengine")
PATIENCE_S = 120.0
SLOTS = 2
BOOTSTRAP = """Version: 6.2
admin_user none
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params {folder}/spool/db
binary_path /usr/sbin
qmaster_spool_dir {folder}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
CONFIGURATION = {"execd_spool_dir": "{folder}/spool/execd", "min_uid": "0", "min_gid": "0", "gid_range": "65400-65500"}
SCHEDULER = {"schedule_interval": "0:0:2", "flush_submit_sec": "1", "flush_finish_sec": "1"}
QUEUE = {"qname": "all.q", "hostlist": "localhost", "slots": str(SLOTS), "pe_list": "smp", "load_thresholds": "NONE"}
ENVIRONMENT = """pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves FALSE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
RAM_FREE = "ram_free ram_free MEMORY <= YES YES 1G 0"  # which Kaldi's configuration of queue.pl asks for


def lacking() -> str:
    """Why there can be no Grid Engine here; empty where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing or not all(path.is_dir() for path in DEBIANS):
        return f"no {', '.join(missing) or 'Debian packages of Grid Engine'} here; apt-get install gridengine-master gridengine-exec"
    return "" if os.geteuid() == 0 else "sge_execd has to run as root"


def _changed(text: str, values: dict[str, str]) -> str:
    """A file of Grid Engine, a name and a value a line, with other values."""
    lines = [line for line in text.splitlines() if line.split(None, 1)[:1] and line.split(None, 1)[0] not in values]
    return "\n".join([*lines, *(f"{name} {value}" for name, value in values.items())]) + "\n"


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def grid_engine() -> Iterator[dict[str, str]]:
    """The environment in which qsub and the others use a Grid Engine of one host with two slots."""
    programs, shared, root = DEBIANS
    folder = Path(tempfile.mkdtemp(prefix="pykaldist-sge-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        master, execution = (str(one.getsockname()[1]) for one in sockets)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SGE", "PYKALDIST_"))}
    env = {**own, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "SGE_ROOT": str(folder), "SGE_CELL": "default",
           "SGE_QMASTER_PORT": master, "SGE_EXECD_PORT": execution}

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def configure(option: str, text: str) -> None:
        (folder / "asked").write_text(text)
        run("qconf", option, folder / "asked")

    def answers(*words: str) -> bool:
        return subprocess.run(words, env=env, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0

    def wait_for(*words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(*words):
            assert time.monotonic() < deadline, words
            time.sleep(0.2)

    for name in ("bin", "lib", "util", "utilbin"):
        (folder / name).symlink_to(root / name)
    for name in ("default/common", "spool/qmaster/job_scripts", "spool/db", "spool/execd"):
        (folder / name).mkdir(parents=True)
    common = folder / "default" / "common"
    (common / "bootstrap").write_text(BOOTSTRAP.format(folder=folder))
    (common / "act_qmaster").write_text("localhost\n")
    (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
    values = {name: value.format(folder=folder) for name, value in CONFIGURATION.items()}
    (folder / "configuration").write_text(_changed((shared / "default-configuration").read_text(), values))
    try:
        run(programs / "spoolinit", "berkeleydb", "libspoolb", folder / "spool/db", "init")
        for kind, what in (("configuration", folder / "configuration"), ("complexes", shared / "util/resources/centry"),
                           ("usersets", shared / "util/resources/usersets"), ("managers", "root")):
            run(programs / "spooldefaults", kind, what)
        run("sge_qmaster")
        wait_for("qconf", "-sconf")
        run("qconf", "-as", "localhost")
        run("sge_execd")
        wait_for("qconf", "-se", "localhost")
        configure("-Mc", run("qconf", "-sc") + RAM_FREE + "\n")
        configure("-Msconf", _changed(run("qconf", "-ssconf"), SCHEDULER))
        run("qconf", "-rattr", "exechost", "complex_values", "ram_free=8G", "localhost")
        configure("-Ap", ENVIRONMENT)
        configure("-Aq", _changed(run("qconf", "-sq"), QUEUE))
        yield env
        answers("qdel", "-f", "-u", "root")
    finally:
        for path in (folder / "spool/execd").glob("*/execd.pid"), (folder / "spool/qmaster").glob("qmaster.pid"):
            for one in path:
                with contextlib.suppress(OSError, ValueError):
                    pid = int(one.read_text())
                    os.kill(pid, signal.SIGTERM)
                    deadline = time.monotonic() + 20
                    while _alive(pid) and time.monotonic() < deadline:
                        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
