"""A job over two hosts: network namespaces with a link between them, each with a host name of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import torch

from pykaldist.io import container

OPTIONS = ["--hid-layers", "1", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "16", "--num-threads", "1", "--device", "cpu",
           "--schedule", "fixed", "--learn-rates", "0.02,0.01", "--ngpu", "4", "--deterministic", "true"]


def ip(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def hosts():
    """Names of two namespaces that reach each other as 10.77.0.1 and 10.77.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2, which this machine does not give")
    names = [f"pykaldist-{uuid.uuid4().hex[:6]}-{n}" for n in (1, 2)]
    links = [f"pk{name[10:14]}{n}" for n, name in zip((1, 2), names, strict=True)]
    made = [ip("netns", "add", name) for name in names]
    made.append(ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1]))
    for n, (name, link) in enumerate(zip(names, links, strict=True), 1):
        made += [ip("-n", name, "addr", "add", f"10.77.0.{n}/24", "dev", link), ip("-n", name, "link", "set", link, "up"),
                 ip("-n", name, "link", "set", "lo", "up")]
    refused = [one.stderr.strip() for one in made if one.returncode]
    if not refused:
        yield names, links
    for name in names:
        ip("netns", "del", name)
    if refused:
        pytest.skip(f"this machine makes no network namespaces: {refused[0]}")


def on_host(name: str, number: int, *command: str) -> list[str]:
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname node{number}; exec "$@"', "sh", *command]


APART = """set -e
mount --make-rprivate /
mkdir "$1.node$3" && mount -t tmpfs node "$1.node$3"
mkdir -p "$1.node$3/${2#/tmp/}" "$1.node$3/${1#/tmp/}"
mount --bind "$1" "$1.node$3/${1#/tmp/}"
cp -r "$2/." "$1.node$3/${2#/tmp/}"
mount --move "$1.node$3" /tmp
mount -t tmpfs shm /dev/shm
hostname "node$3"; shift 3
exec "$@"
"""


def on_host_apart(name: str, number: int, shared: Path, store: Path, *command: str) -> list[str]:
    """A command on a host with /tmp and /dev/shm of its own; of others' files there is the folder `shared`, and a copy of the store."""
    return ["ip", "netns", "exec", name, "unshare", "--uts", "--mount", "sh", "-c", APART, "sh", str(shared), str(store), str(number),
            *command]


def train(store: Path, exp: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "pykaldist", "train", *OPTIONS, *options, str(store), str(exp)]


def params(exp: Path) -> torch.Tensor:
    return container.load(exp / "final.pt")["params"]


@pytest.fixture
def store(make_store):
    make_store([200, 350, 150], seed=1, name="train")
    return make_store([60], seed=2, name="dev").path.parent


def over_mpi(hosts, store: Path, exp: Path, root: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """mpiexec on the first host, with this in place of ssh."""
    names, _ = hosts
    shell = folder / "ssh"
    shell.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
number=${{1##*.}}; shift
case $number in 1) name={names[0]} ;; *) name={names[1]} ;; esac
exec ip netns exec $name unshare --uts sh -c "hostname node$number; exec $*"
""")
    shell.chmod(0o755)
    env = {**os.environ, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(shell), "PYTHONPATH": str(root)}
    return subprocess.run(on_host(names[0], 1, *train(store, exp, "--hosts", "10.77.0.1,10.77.0.2", "--nproc", "2", *options)), env=env,
                          capture_output=True, text=True, timeout=120, check=False)


def test_mpi_over_two_hosts_equals_virtual_workers(hosts, store, tmp_path, root):
    result = over_mpi(hosts, store, tmp_path / "mpi", root, tmp_path, "--strategy", "ma", "--average-period", "2")
    assert result.returncode == 0, result.stderr
    assert "2 processes on 2 hosts over mpi" in result.stdout
    subprocess.run(train(store, tmp_path / "virtual", "--fabric", "virtual", "--strategy", "ma", "--average-period", "2"), check=True,
                   capture_output=True, env={**os.environ, "PYTHONPATH": str(root)})
    assert torch.equal(params(tmp_path / "mpi"), params(tmp_path / "virtual"))


def test_asynchronous_workers_find_each_other_over_two_hosts(hosts, store, tmp_path, root):
    """By TCP, at the address at which they reach each other: they share no memory."""
    result = over_mpi(hosts, store, tmp_path / "exp", root, tmp_path, "--strategy", "hadpsgd", "--deterministic", "false")
    assert result.returncode == 0, result.stderr
    assert "2 processes on 2 hosts over mpi" in result.stdout and params(tmp_path / "exp").isfinite().all()
    lines = [json.loads(line) for line in (tmp_path / "exp" / "history.jsonl").read_text().splitlines()]
    assert all(sum(line["staleness"].values()) > 0 for line in lines)  # two groups of one: each host is a node


def test_gloo_over_two_hosts_equals_virtual_workers(hosts, store, tmp_path, root):
    names, links = hosts
    running = []
    for rank, name in enumerate(names):
        env = {**os.environ, "PYTHONPATH": str(root), "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1",
               "MASTER_PORT": "29511", "GLOO_SOCKET_IFNAME": links[rank]}
        command = on_host(name, rank + 1, *train(store, tmp_path / "gloo", "--fabric", "gloo", "--strategy", "ssgd"))
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    assert "2 processes on 2 hosts over gloo" in outputs[0][0]
    subprocess.run(train(store, tmp_path / "virtual", "--fabric", "virtual", "--strategy", "ssgd"), check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(root)})
    assert torch.equal(params(tmp_path / "gloo"), params(tmp_path / "virtual"))


def test_a_slow_link_takes_longer_and_changes_nothing(hosts, store, tmp_path, root):
    names, links = hosts
    netem = ["netns", "exec", names[0], "tc", "qdisc", "add", "dev", links[0], "root", "netem", "delay", "20ms", "rate", "100mbit"]
    refused = ip(*netem)
    if refused.returncode:
        pytest.skip(f"this kernel delays no links: {refused.stderr.strip()}")
    try:
        result = over_mpi(hosts, store, tmp_path / "slow", root, tmp_path, "--strategy", "ma", "--average-period", "2")
    finally:
        ip("netns", "exec", names[0], "tc", "qdisc", "del", "dev", links[0], "root")
    assert result.returncode == 0, result.stderr
    subprocess.run(train(store, tmp_path / "virtual", "--fabric", "virtual", "--strategy", "ma", "--average-period", "2"), check=True,
                   capture_output=True, env={**os.environ, "PYTHONPATH": str(root)})
    assert torch.equal(params(tmp_path / "slow"), params(tmp_path / "virtual"))


PAIR = """
import sys
from pykaldist.parallel.fabric.torch_distributed import TorchDistributed
from pykaldist.parallel.transport import sockets
sockets.SILENCE_S = 8
from pykaldist.parallel.transport.transport import Transport

heard, lost = [], []
transport = Transport(TorchDistributed(), lambda *message: heard.append(message), lost.append, sys.argv[1])
transport.start()
with transport.changed:
    transport.send(1 - transport.rank, 10, [1.0])
    transport.wait(lambda: heard)
    print(transport._sockets.incoming.last_endpoint.decode(), flush=True)
    sys.stdin.readline()
    if transport.rank:
        transport.send(0, 10, [2.0])
    transport.wait(lambda: lost)
    print(lost, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_machine_that_is_gone(hosts, root, named):
    """Whether something had been sent to it or not; and each listens at the interface that faces the other, named or not, alone."""
    names, links = hosts
    running = []
    for rank, name in enumerate(names):
        env = {**os.environ, "PYTHONPATH": str(root), "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1",
               "MASTER_PORT": "29513", "GLOO_SOCKET_IFNAME": links[rank]}
        command = on_host(name, rank + 1, sys.executable, "-c", PAIR, links[rank] if named else "")
        running.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    listening = [process.stdout.readline() for process in running]
    assert all(line.startswith(f"tcp://10.77.0.{n}:") for n, line in enumerate(listening, 1))
    try:
        assert not ip("-n", names[0], "link", "set", links[0], "down").returncode
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        assert [process.communicate(timeout=60)[0] for process in running] == ["[1]\n", "[0]\n"]
    finally:
        ip("-n", names[0], "link", "set", links[0], "up")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The one folder that hosts with file systems of their own have in common."""
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("tests' folders are not in /tmp, which hosts replace by their own")
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["gloo", "mpi"])
def test_two_hosts_of_two_tasks_share_the_experiment_alone(hosts, store, tmp_path, shared, root, fabric):
    """Four processes on two hosts, each with its own file systems, end with the model of virtual workers."""
    names, links = hosts
    options = ["--strategy", "bmuf", "--average-period", "2"]
    env = {**os.environ, "PYTHONPATH": str(root)}
    if fabric == "mpi":
        shell = shared / "ssh"
        words = [on_host_apart(name, n, shared, store) for n, name in enumerate(names, 1)]
        shell.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
number=${{1##*.}}; shift
case $number in 1) {shlex.join([*on_host(names[0], 1), "sh", "-c"])} "$*" ;; *) {shlex.join([*words[1], "sh", "-c"])} "$*" ;; esac
""")
        shell.chmod(0o755)
        env.update(HYDRA_LAUNCHER="ssh", HYDRA_LAUNCHER_EXEC=str(shell))
        commands = [[*words[0], *train(store, shared / "exp", *options, "--hosts", "10.77.0.1:2,10.77.0.2:2")]]
        own: list[dict[str, str]] = [{}]
    else:
        commands = [on_host_apart(name, n + 1, shared, store, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2",
                                  "--nproc-per-node", "2", "--node-rank", str(n), "--master-addr", "10.77.0.1", "--master-port", "29512",
                                  *train(store, shared / "exp", *options, "--fabric", "gloo")[1:]) for n, name in enumerate(names)]
        own = [{"GLOO_SOCKET_IFNAME": link} for link in links]
    running = [subprocess.Popen(command, env={**env, **mine}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for command, mine in zip(commands, own, strict=True)]
    outputs = [process.communicate(timeout=180) for process in running]
    assert not any(process.returncode for process in running), outputs
    assert f"4 processes on 2 hosts over {fabric}" in outputs[0][0]
    subprocess.run(train(store, tmp_path / "virtual", "--fabric", "virtual", *options), check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(root)})
    assert torch.equal(params(shared / "exp"), params(tmp_path / "virtual"))
