"""The fuzzer finds what only guidance by coverage can find."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import fuzz
import test_damage
from campaign import main as campaign
from faults import read
from inputs import content_of


def planted(path: Path, gates: int) -> test_damage.Sample:
    """A reader that fails where so many bytes in a row have certain bits, and has a line for each."""
    lines = [f"{' ' * k}if content[{k}] & 15 == 9:" for k in range(1, gates + 1)]
    source = "\n".join(["def read():", " content = path.read_bytes().ljust(64)", *lines, f"{' ' * (gates + 1)}raise KeyError"])
    names = {"path": path}
    exec(compile(source, f"{fuzz.PACKAGE}planted.py", "exec"), names)
    path.write_bytes(bytes(40))
    return test_damage.Sample(path, names["read"])


def test_a_fault_behind_six_conditions_is_found(tmp_path):
    """16 million damages in one would have it by chance."""
    sample, corpus = planted(tmp_path / "file", 6), tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "000000").write_bytes(bytes(40))
    trials = itertools.islice(fuzz.explored("planted", sample, corpus, content_of(sample.read()), 1, time.monotonic() + 600), 40_000)
    found = next(trial for trial in trials if trial.outcome == "traceback")
    assert "KeyError" in found.said
    assert len(list(corpus.iterdir())) > 6  # one at least for each condition
    assert all(byte & 15 == 9 for byte in sample.path.read_bytes()[1:7])


def test_every_binary_format_is_fuzzed(tmp_path, monkeypatch, capsys):
    """A trial of each at least; nothing is found there."""
    words = ["run.sh", "--groups", "fuzz", "--minutes", "0.02", "--dir", str(tmp_path), "--out", str(tmp_path / "out.jsonl")]
    monkeypatch.setattr("sys.argv", words)
    assert campaign() == 0, capsys.readouterr().out
    formats = {"final.mdl binary", "HCLG const", "lattices compact", "nnet1 binary", "final.pt", "wav", "flac", "sph", "words.ctm",
               "u1.TextGrid", "posteriors", "store/offsets.npy", *(f"matrices, compression {method}" for method in (0, 1, 2, 3, 5))}
    assert formats <= {trial.case for trial in read(tmp_path / "out.jsonl")}
    assert not (tmp_path / "out.cases").exists()
