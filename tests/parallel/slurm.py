"""A real SLURM on this machine, of two nodes: munged, slurmctld and two slurmd with files and ports of their own. It needs root."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel", "scontrol", "squeue")
KILL_WAIT_S = 15
PATIENCE_S = 300.0
CONF = """ClusterName=pykaldist
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait={kill_wait}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus} RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus} RealMemory=1000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverTimeLimit=0
"""


def lacking() -> str:
    """Why there can be no SLURM here; empty where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        return f"no {', '.join(missing)} here; apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "slurmd has to run as root"


@contextlib.contextmanager
def slurm(cpus: int = 2) -> Iterator[dict[str, str]]:
    """The environment in which srun and the others use a SLURM of two nodes, n1 and n2, of `cpus` cores each."""
    folder = Path(tempfile.mkdtemp(prefix="pykaldist-slurm-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [one.getsockname()[1] for one in sockets]
    host = socket.gethostname().partition(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, host=host, ports=ports, kill_wait=KILL_WAIT_S, cpus=cpus))
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o400)
    key.write_bytes(secrets.token_bytes(128))
    munged = ["munged", "--force", f"--key-file={key}", *(f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")),
              f"--socket={folder}/munge.socket", "--num-threads=2"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SALLOC", "PMI", "PYKALDIST_"))}
    env = {**own, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "SLURM_CONF": str(conf)}
    try:
        for command in (munged, ["slurmctld", "-c", "-f", str(conf)], *(["slurmd", "-N", node, "-f", str(conf)] for node in ("n1", "n2"))):
            subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run(["srun", "-N2", "-n2", "--immediate=5", "true"], env=env, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()
            time.sleep(0.5)
        yield env
        subprocess.run(["scancel", "--user=root"], env=env, capture_output=True, check=False)
    finally:
        for name in ("slurmd-n1.pid", "slurmd-n2.pid", "slurmctld.pid", "munge.pid"):
            with contextlib.suppress(OSError, ValueError):
                pid = int((folder / name).read_text())
                os.kill(pid, 15)
                for _ in range(200):
                    if not Path(f"/proc/{pid}").exists():
                        break
                    time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)
