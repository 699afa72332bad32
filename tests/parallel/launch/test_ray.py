"""Jobs on a Ray cluster of this machine give the models of other launchers, bit for bit; and what `--launcher ray` refuses.

Ray is not among the requirements: `pip install ray`, into a venv of its own, say, and run these tests with that Python.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.frames.store import FrameStore
from pykaldist.io import container
from pykaldist.parallel.launch import commands as starting
from pykaldist.parallel.launch import on_ray
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.transport.addresses import LOOPBACK

HAS_RAY = importlib.util.find_spec("ray") is not None
TRAIN = ["train", "--hid-layers", "1", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1", "--device",
         "cpu", "--schedule", "fixed", "--learn-rates", "0.01,0.005", "--ngpu", "4", "--fabric", "gloo"]


@pytest.mark.parametrize(("options", "what"), [({"fabric": "mpi"}, "--fabric mpi"), ({"hosts": "a,b"}, "--hosts"),
                                               ({"elastic": True}, "--elastic true"), ({"fabric": "virtual"}, "--fabric virtual")])
def test_what_ray_does_not_start(options: dict[str, str], what: str) -> None:
    with pytest.raises(UserError, match=f"--launcher ray {what}"):
        JobOptions(launcher="ray", **options)


@pytest.mark.parametrize(("device", "has", "needs"), [
    ("cpu", {"CPU": 4, "GPU": 4}, {"CPU": 1}), ("cuda", {"CPU": 4, "GPU": 4}, {"CPU": 1, "GPU": 1}),
    ("auto", {"CPU": 4, "GPU": 4}, {"CPU": 1, "GPU": 1}), ("auto", {"CPU": 4, "GPU": 1}, {"CPU": 1}), ("auto", {"CPU": 9}, {"CPU": 1})])
def test_what_a_process_holds(device: str, has: dict[str, float], needs: dict[str, int]) -> None:
    assert on_ray.needed(4, device, has) == needs
    with pytest.raises(UserError, match=r"the job wants 10 CPUs of Ray, whose cluster has \d; use fewer processes"):
        on_ray.needed(10, device, has)


def test_too_few_gpus_are_a_sentence() -> None:
    with pytest.raises(UserError, match="the job wants 4 GPUs of Ray, whose cluster has 0"):
        on_ray.needed(4, "cuda", {"CPU": 8})


@pytest.mark.parametrize(("options", "kind"), [
    ({"device": "cuda"}, "cuda"), ({"device": "cuda:1"}, "cuda"), ({"device": "cpu"}, "cpu"), ({}, "auto"), ({"fabric": "nccl"}, "cuda")])
def test_the_fabric_is_that_of_the_devices_which_processes_get(options: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find it out where they are, as under torchrun: nccl between GPUs."""
    monkeypatch.setattr(starting, "load_ray", lambda: None)
    job = JobOptions(launcher="ray", ngpu=4, strategy="ma", **options)
    (command,) = starting.commands(job, ["train", "store", "exp"])
    assert command.words[2:5] == ["pykaldist.parallel.launch.on_ray", "4", kind] and job.fabric == options.get("fabric")


def test_ranks_go_from_machine_to_machine() -> None:
    found = on_ray.placed([("a", "10.0.0.1", 7), ("b", "10.0.0.2", 8), ("a", "10.0.0.1", 9)])
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [tuple(one[name] for name in names) for one in found] == [("0", "0", "2"), ("2", "0", "1"), ("1", "1", "2")]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"], one["WORLD_SIZE"]) for one in found} == {("10.0.0.1", "7", "3")}
    assert on_ray.placed([("a", "10.0.0.1", 7)])[0]["MASTER_ADDR"] == LOOPBACK


@pytest.mark.skipif(HAS_RAY, reason="ray is here")
def test_without_ray_one_sentence_says_how_to_get_it() -> None:
    with pytest.raises(UserError, match=r"pip install ray"):
        starting.commands(JobOptions(launcher="ray", ngpu=4), ["train", "store", "exp"])


@pytest.fixture
def store(make_store: Callable[..., FrameStore]) -> Path:
    make_store([200] * 10, seed=1, name="train")
    return make_store([60], seed=2, name="dev").path.parent


def model(exp: Path) -> bytes:
    return container.load(exp / "final.pt")["params"].numpy().tobytes()


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which a Ray of four CPUs is found; skips where Ray is not installed."""
    if not HAS_RAY:
        pytest.skip("ray is not installed: pip install ray")
    code = ("import ray, sys; made = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False); "
            "print('ADDRESS', made.address_info['gcs_address'], flush=True); sys.stdin.read()")
    env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdin is not None and held.stdout is not None
        address = next(line.split()[1] for line in held.stdout if line.startswith("ADDRESS"))
        yield {**env, "RAY_ADDRESS": address}
        held.stdin.close()


def train(cluster: dict[str, str], store: Path, exp: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pykaldist", *TRAIN, *options, str(store), str(exp)], capture_output=True, text=True,
                          check=False, env=cluster)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ma", "bmuf", "ssgd"])
def test_a_local_ray_of_four_workers(cluster: dict[str, str], store: Path, tmp_path: Path, strategy: str) -> None:
    options = ["--strategy", strategy, "--deterministic", "true"]
    said = train(cluster, store, tmp_path / "ray", *options, "--launcher", "ray")
    assert said.returncode == 0, said.stdout + said.stderr
    assert " 4 processes" in said.stdout and "epoch 2" in said.stdout
    own = train(cluster, store, tmp_path / "own", *options, "--nproc", "2")
    assert own.returncode == 0 and model(tmp_path / "ray") == model(tmp_path / "own")


@pytest.mark.slow
def test_asynchronous_workers_on_ray(cluster: dict[str, str], store: Path, tmp_path: Path) -> None:
    said = train(cluster, store, tmp_path / "ray", "--strategy", "adpsgd", "--launcher", "ray")
    assert said.returncode == 0 and "epoch 2" in said.stdout, said.stdout + said.stderr


@pytest.mark.slow
def test_errors_are_one_sentence(cluster: dict[str, str], store: Path, tmp_path: Path) -> None:
    more = train(cluster, store, tmp_path / "more", "--strategy", "ma", "--ngpu", "5", "--launcher", "ray")
    assert more.returncode == 1 and "the job wants 5 CPUs of Ray, whose cluster has 4" in more.stderr.splitlines()[-1]
    (store / "train" / "manifest.json").unlink()
    lost = train(cluster, store, tmp_path / "lost", "--strategy", "ma", "--launcher", "ray")
    *_, last, example = lost.stderr.splitlines()
    assert lost.returncode == 1 and "manifest.json" in last and example.startswith("  e.g.: ") and "Traceback" not in lost.stderr
