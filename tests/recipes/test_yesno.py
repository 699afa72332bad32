"""The smoke recipe, whole, as a user runs it; interrupted and run again; and what it says of a bad corpus."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile


def test_whole_recipe(make_recipe, shared, recording_python, monkeypatch):
    folder, run = make_recipe("yesno")
    python, not_compiled = recording_python
    monkeypatch.setenv("PYKALDIST_PYTHON", str(python))
    corpus = os.path.relpath(shared / "data" / "yesno", folder.parent.parent)  # relative to the caller's folder, as a user may give it
    done = run("--corpus", corpus)
    assert done.returncode == 0, done.stderr
    for stage in range(9):
        assert f"== stage {stage}: " in done.stdout
    rows = re.findall(r"\| (\w+)/decode +\| +([\d.]+) +\|", done.stdout)
    assert {name for name, _ in rows} == {"mono", "dnn"}
    assert all(float(wer) <= 3.0 for _, wer in rows), rows
    history = [json.loads(line) for line in (folder / "exp" / "dnn" / "history.jsonl").read_text().splitlines()]
    assert history[0]["train_loss"] > history[-1]["train_loss"]
    for made in ("final.mdl", "tree", "final.pt", "ali_train_pdf.counts", "config.json", "decode/best_wer", "decode/lat.1.gz"):
        assert (folder / "exp" / "dnn" / made).is_file()
    assert json.loads((folder / "exp" / "dnn" / "config.json").read_text())["inputs"]["dbn"]
    # What a newcomer sees: the seconds of each step, no bar, and three commands to try next, of which one takes any recording.
    assert re.search(r"^ +\d+\.\d s  train_mono\.sh: +11 pdfs, ", done.stdout, re.MULTILINE)
    assert "it/s" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr
    next_commands = re.findall(r"^  (\./run\.sh .*?|\S*pykaldist transcribe .*?)(?:  +#.*)?$", done.stdout, re.MULTILINE)
    assert next_commands[:2] == ["./run.sh --stage 5 --ngpu 32", "./run.sh --stage 5 --ngpu 4 --strategy easgd"]
    said = subprocess.run(next_commands[-1], shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    utt = os.path.basename(said[0]).split(".")[0]
    assert f"{utt} {' '.join(said[1:])}" in (folder / "data" / "test" / "text").read_text().splitlines()
    # `pykaldist compile`, which the recipe runs beside its first stages, has compiled every kernel for these types.
    assert not_compiled() == set()
    monkeypatch.undo()
    # A stage run again gives the same model; training that is finished is not done again.
    model = (folder / "exp" / "mono" / "final.mdl").read_bytes()
    again = run("--stage", "2", "--stop-stage", "5")
    assert again.returncode == 0 and (folder / "exp" / "mono" / "final.mdl").read_bytes() == model
    assert "== stage 1" not in again.stdout and "== stage 6" not in again.stdout
    assert "nothing to do" in (folder / "exp" / "dnn" / "log" / "train.log").read_text()
    interrupted_training_goes_on(folder, run)
    # Alignments can come from elsewhere, in place of the GMM; the decoding graph is then of their system.
    imported = run("--stage", "2", "--stop-stage", "3", "--ali-dir", folder / "exp" / "mono_ali")
    assert imported.returncode == 0, imported.stderr
    assert re.search(r"import_ali\.sh: +31 of 31 utterances have an alignment", imported.stdout)
    assert (folder / "exp" / "ali" / "graph" / "HCLG.fst").is_file()
    provenance = json.loads((folder / "exp" / "dnn" / "store" / "train" / "manifest.json").read_text())["provenance"]
    assert provenance["ali"] == "exp/ali" and provenance["alignment"]["format"] == "Kaldi alignment directory"


def interrupted_training_goes_on(folder: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Train the network once more: interrupted after a checkpoint, and run again."""
    dnn = folder / "exp" / "dnn"
    for path in dnn.iterdir():
        if path.name != "store":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    process = subprocess.Popen([folder / "run.sh", "--stage", "5", "--stop-stage", "5"], start_new_session=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.monotonic() + 120
    while not list((dnn / "ckpt").glob("*.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    interrupted = process.returncode != 0  # it may have been quicker than the signal
    assert run("--stage", "5", "--stop-stage", "5").returncode == 0
    assert ("resuming at epoch" if interrupted else "nothing to do") in (dnn / "log" / "train.log").read_text()
    assert (dnn / "final.pt").is_file()


def test_missing_corpus_is_said_in_words(make_recipe, tmp_path):
    _, run = make_recipe("yesno")
    (tmp_path / "empty").mkdir()
    for corpus in (tmp_path / "empty", tmp_path / "nowhere"):
        done = run("--corpus", corpus, "--stop-stage", "0")
        assert done.returncode != 0
        assert "ERROR: " in done.stderr and corpus.name in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("damage", "words"), [("rate", "8000"), ("truncated", "audio")])
def test_bad_audio_stops_the_recipe_in_words(make_recipe, tmp_path, damage, words):
    corpus = tmp_path / "corpus" / "waves_yesno"
    corpus.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("0_0_1_1_0_0_1_1", "1_1_0_0_1_1_0_0", "0_1_0_1_0_1_0_1", "1_0_1_0_1_0_1_0"):
        soundfile.write(corpus / f"{name}.wav", rng.normal(0, 0.1, 16000), 16000 if damage == "rate" else 8000)
    if damage == "truncated":
        for path in corpus.iterdir():
            path.write_bytes(path.read_bytes()[:5000])
    folder, run = make_recipe("yesno")
    done = run("--corpus", tmp_path / "corpus", "--stop-stage", "1")
    assert done.returncode != 0
    assert "ERROR: " in done.stderr and words in done.stderr and "Traceback" not in done.stderr + done.stdout
    assert not (folder / "data" / "train" / "feats.scp").exists()
