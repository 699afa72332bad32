"""Checksums of stores that are compared while training goes on: what is found ends it, and nothing is read again without a reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.train import verification
from pykaldist.train.verification import FILE, Verification

OPTIONS = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "16", "--num-threads", "1", "--device", "cpu"]
VERBS = {"train": ["train", *OPTIONS, "--schedule", "fixed", "--learn-rates", "0.01,0.01"],
         "pretrain-dbn": ["pretrain-dbn", *OPTIONS, "--rbm-iter", "1", "--gauss-minibatch-size", "16"]}


@pytest.fixture
def store(make_store, monkeypatch) -> Path:
    make_store([50, 60, 40], name="dev", seed=2)
    monkeypatch.setattr(verification, "AT_ONCE", 0)
    return make_store([50, 60, 70, 80], name="train", seed=1).path.parent


def damage(path: Path) -> None:
    state = path.stat()
    with open(path, "r+b") as stream:
        stream.write(b"\1\1\1")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("verb", VERBS)
def test_damage_that_is_found_beside_training_leaves_no_result(store, tmp_path, capsys, verb):
    damage(store / "train" / "targets.bin")
    assert main([*VERBS[verb], str(store), str(tmp_path / "exp")]) == 1
    said = capsys.readouterr()
    assert "targets.bin does not match its checksum" in said.err
    assert not (tmp_path / "exp" / "final.pt").exists() and not (tmp_path / "exp" / "dbn.pt").exists()


def test_what_was_compared_is_compared_again_only_where_its_files_are_others(store, tmp_path, monkeypatch):
    assert main([*VERBS["train"], str(store), str(tmp_path / "exp")]) == 0
    compared = []
    monkeypatch.setattr(FrameStore, "verify", lambda self: compared.append(self.path.name))

    def again() -> list[str]:
        compared.clear()
        found = Verification([FrameStore(store / "train"), FrameStore(store / "dev")], tmp_path / "exp" / FILE)
        found.start()
        found.finish()
        return list(compared)

    assert again() == []
    os.utime(store / "dev" / "feats.bin")
    assert again() == ["train", "dev"] and again() == []
    (tmp_path / "exp" / FILE).write_text("[]")
    assert again() == ["train", "dev"] and again() == []


def test_what_was_found_is_raised_once_it_is_known_and_at_the_end(store):
    damage(store / "train" / "feats.bin")
    found = Verification([FrameStore(store / "train")])
    found.start()
    with pytest.raises(Exception, match=r"feats\.bin does not match"):
        found.finish()
    with pytest.raises(Exception, match=r"feats\.bin does not match"):
        found.check()
