"""Fixtures that all tests share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in path.sh, and before numpy is loaded

import emulated_cuda
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from pykaldist import progress
from pykaldist.frames.lattice_store import pack_lattices
from pykaldist.frames.lattices import Lattices
from pykaldist.frames.store import Extras, FrameStore, pack
from pykaldist.io.posteriors import Posterior

ROOT = Path(__file__).resolve().parent.parent
os.environ["PYKALDIST_TOLD"] = "true"  # scripts need not say first what they do
# No property fails for the time that a busy machine takes, and folders of a test may have what the example before has left.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.load_profile("busy machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole recipes come first: their files take minutes, and at the end one core would wait for another's."""
    items.sort(key=lambda item: "recipes" not in item.path.parts)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test leaves in the environment (a verb's deterministic mode, say), or among blocked signals, is no other test's."""
    before, blocked = dict(os.environ), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    os.environ.clear()
    os.environ.update(before)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@pytest.fixture(autouse=True)
def cuda(request: pytest.FixtureRequest) -> Iterator[emulated_cuda.EmulatedCuda | None]:
    """The emulated CUDA device that a test which is marked gpu runs on; None where the machine has a real one.

    `@pytest.mark.gpu(devices=2)` asks for several; other arguments are `EmulatedCuda`'s as well.
    """
    marker = request.node.get_closest_marker("gpu")
    if marker is None or torch.cuda.is_available():
        if marker is not None and torch.cuda.device_count() < marker.kwargs.get("devices", 1):
            pytest.skip(f"this machine has {torch.cuda.device_count()} CUDA devices; the test takes {marker.kwargs['devices']}")
        yield None
        return
    if emulated_cuda.missing:
        pytest.skip(emulated_cuda.missing)
    with emulated_cuda.EmulatedCuda(**marker.kwargs) as device:
        yield device


@pytest.fixture
def emulated(cuda: emulated_cuda.EmulatedCuda | None) -> emulated_cuda.EmulatedCuda:
    """The emulated device, for a test of its memory: the most that a real device's allocator has is more than what tensors take."""
    if cuda is None:
        pytest.skip("a real device's allocator has more than living tensors; `tests/run.sh --gpu memory` looks at it")
    return cuda


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real speech and golden numbers: $PYKALDIST_SHARED, else ../shared beside the project."""
    path = Path(os.environ.get("PYKALDIST_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no real speech or golden numbers at {path} (set PYKALDIST_SHARED)")
    return path


@pytest.fixture(scope="session")
def kaldi_egs() -> Path:
    """Kaldi's own recipes: $KALDI_EGS."""
    if not os.environ.get("KALDI_EGS"):
        pytest.skip("KALDI_EGS does not name the folder with Kaldi's egs")
    return Path(os.environ["KALDI_EGS"])


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    """The numbers recorded from Kaldi."""
    return shared / "golden"


@pytest.fixture(scope="session")
def rehearsed() -> dict[str, list[str]]:
    """The types that `pykaldist compile` has compiled each kernel for; it is run first, which in a fresh clone takes its time."""
    from pykaldist.io.fst import _scan

    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "pykaldist", "compile"], env=env, check=True, capture_output=True)
    return json.loads((Path(_scan.dispatcher._cache.cache_path) / "kernels.json").read_text())["kernels"]


@pytest.fixture
def recording_python(tmp_path: Path, rehearsed: dict[str, list[str]]) -> tuple[Path, Callable[[], set[str]]]:
    """An interpreter for PYKALDIST_PYTHON, and what kernels have been called with under it that `pykaldist compile` has not compiled."""
    used = tmp_path / "used_kernels"
    used.mkdir()
    python = tmp_path / "recording_python"
    python.write_text("#!/usr/bin/env bash\n"
                      f'[ "$1 $2" != "-m pykaldist" ] || exec {sys.executable} {ROOT}/tests/record_kernels.py {used} "${{@:3}}"\n'
                      f'exec {sys.executable} "$@"\n')
    python.chmod(0o755)

    def not_compiled() -> set[str]:
        lines = {line for path in used.iterdir() for line in path.read_text().splitlines()}
        assert lines
        return {line for line in lines if line.split("\t")[1] not in rehearsed[line.split("\t")[0]]}

    return python, not_compiled


@pytest.fixture
def make_denlats() -> Callable[..., Path]:
    """`make_denlats(path, *stores)`: a lattice store of the utterances of frame stores, of pdfs up to 5.

    Every five frames a path goes on by one of three arcs, of which one has the reference, the store's targets. Transition-id i is of pdf
    i - 1 and of phone i; phone 1 is silence.
    """

    def make(path: Path, *stores: FrameStore, seed: int = 0) -> Path:
        rng, ids = np.random.default_rng(seed), np.arange(6, dtype=np.int32)

        def lattice(reference: np.ndarray) -> Lattices:
            frames = len(reference)
            bounds = np.unique(np.append(np.arange(0, frames, 5), frames))
            source = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), 3)
            length = np.diff(bounds)[source]
            runs = [np.where(rng.random(n) < i / 2, rng.integers(1, 6, n), reference[first : first + n])
                    for first, n in zip(bounds[:-1], np.diff(bounds), strict=True) for i in range(3)]
            frame = np.concatenate([np.arange(bounds[s], bounds[s + 1]) for s in source])
            cells, entry = np.unique(frame * 6 + np.concatenate(runs), return_inverse=True)
            graph = rng.random(len(source)).astype(np.float32)
            sizes = (np.array([0, n]) for n in (len(bounds), len(source), len(cells), frames))
            return Lattices(*sizes, source, source + np.int32(1), graph,
                            np.zeros_like(graph), np.concatenate([[0], np.cumsum(length)]), entry.astype(np.int32),
                            (cells // 6).astype(np.int32), (cells % 6).astype(np.int32))

        found = {utt: store.targets[first:last] + 1 for store in stores
                 for utt, first, last in zip(store.utts, store.offsets[:-1], store.offsets[1:], strict=True)}
        pack_lattices(((utt, lattice(ids), ids) for utt, ids in found.items()), np.maximum(ids - 1, 0), ids, [1], {}, path)
        return path

    return make


@pytest.fixture
def all_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress without a terminal has a line for all that is counted, not one in ten seconds."""
    monkeypatch.delenv("PYKALDIST_PROGRESS_FD", raising=False)
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., FrameStore]:
    """`make_store(lengths, dim, num_pdfs, seed, name, extras, utt)`: a frame store of random features whose pdf shows in them.

    `utt` is the beginning of the utterances' names.

    `extras` names what it holds beside: weights (0 to 2), posteriors (the pdf with 0.75, the next one with the rest), target_feats (3),
    labels (pdfs that follow each other, from 1 up).
    """

    def make(lengths: Sequence[int], dim: int = 4, num_pdfs: int = 5, seed: int = 0, name: str = "train",
             extras: Sequence[str] = (), utt: str = "utt") -> FrameStore:
        rng = np.random.default_rng(seed)
        means = np.random.default_rng(99).normal(size=(num_pdfs, dim))
        pdfs = {f"{utt}{i:03d}": rng.integers(0, num_pdfs, n) for i, n in enumerate(lengths)}
        feats = {u: (means[p] + 0.5 * rng.normal(size=(len(p), dim))).astype(np.float32) for u, p in pdfs.items()}
        held = Extras()
        if "weights" in extras:
            held.frame_weights = {u: rng.integers(0, 3, len(p)).astype(np.float32) for u, p in pdfs.items()}
        if "posteriors" in extras:
            held.posteriors = {u: Posterior(2 * np.arange(len(p) + 1), np.stack([(p + 1) % num_pdfs, p], 1).ravel().astype(np.int32),
                                            np.tile(np.float32([0.25, 0.75]), len(p))) for u, p in pdfs.items()}
        if "target_feats" in extras:
            held.target_feats = {u: means[p, :3].astype(np.float32) for u, p in pdfs.items()}
        if "labels" in extras:
            held.labels = {u: p[np.concatenate([[True], p[1:] != p[:-1]])] + 1 for u, p in pdfs.items()}
            held.num_tokens = num_pdfs + 1
        pack(pdfs, feats.__getitem__, pdfs.get, num_pdfs, tmp_path / "store" / name, extras=held)
        return FrameStore(tmp_path / "store" / name)

    return make
