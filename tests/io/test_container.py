"""Our own binary files: what is in them comes back, and nothing in them is run."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.io import container
from pykaldist.io.magic import CONTAINER

STATE = {"params": torch.arange(5.0), "deep": {"list": [1, 2.5, None, "x"], "bf16": torch.ones(3, dtype=torch.bfloat16)}, 7: float("inf")}


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def write(path: Path, payload: bytes) -> None:
    """A file with a checksum that fits."""
    path.write_bytes(CONTAINER + hashlib.blake2b(payload, digest_size=16).digest() + payload)


def saved(state: object, **options: object) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream, **options)
    return stream.getvalue()


def rezipped(payload: bytes, extra: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as old, zipfile.ZipFile(stream, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        for name, content in extra.items():
            new.writestr(f"{old.namelist()[0].split('/')[0]}/{name}", content)
    return stream.getvalue()


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    container.save(tmp_path / "a", STATE)
    found = container.load(tmp_path / "a")
    assert torch.equal(found["params"], STATE["params"]) and found["deep"]["list"] == [1, 2.5, None, "x"]
    assert found["deep"]["bf16"].dtype == torch.bfloat16 and found[7] == float("inf")  # type: ignore[call-overload]  # any key is kept
    write(tmp_path / "b", rezipped(saved(STATE), {}))
    assert torch.equal(container.load(tmp_path / "b")["params"], STATE["params"])


PAYLOADS = {
    "pickle": pickle.dumps(Harmful()),
    "an object": saved({"x": Harmful()}),
    "an object, the old form": saved({"x": Harmful()}, _use_new_zipfile_serialization=False),
    "tensors, the old form": saved(STATE, _use_new_zipfile_serialization=False),
    "TorchScript": rezipped(saved(STATE), {container.TORCHSCRIPT: b"\x80\x02)."}),
    "a bomb": rezipped(saved(STATE), {"data/99": bytes(1 << 20)}, zipfile.ZIP_DEFLATED),
    "no dict": saved([1, 2]),
    "a module": saved({"x": torch.nn.Linear(2, 2)}),
    "nothing": b"",
    "no pickle in it": rezipped(saved(STATE), {})[:0] + b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("kind", PAYLOADS)
def test_what_is_no_state_is_refused_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a", PAYLOADS[kind])
    with pytest.raises(UserError, match="holds something else than tensors and plain values"):
        container.load(tmp_path / "a")
    assert not (tmp_path / "harmed").exists()


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    container.save(tmp_path / "a", STATE)
    content = bytearray((tmp_path / "a").read_bytes())
    content[-100] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match="its checksum does not match"):
        container.load(tmp_path / "a")
    for foreign in (b"", content[1:]):
        (tmp_path / "a").write_bytes(foreign)
        with pytest.raises(UserError, match="is no pykaldist file"):
            container.load(tmp_path / "a")
