"""The networks beside the DNN, as a user runs them after run.sh, on a few speakers of each corpus."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def an4(source: Path, corpus: Path) -> None:
    """Ten speakers of 120 for training, five utterances for testing; the audio is linked."""
    shutil.copytree(source / "etc", corpus / "etc")
    (corpus / "wav").symlink_to(source / "wav")
    for part, count in (("train", 120), ("test", 5)):
        path = corpus / f"etc/an4_{part}.transcription"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))


def speechocean762(source: Path, corpus: Path) -> None:
    """Twelve adults, of whom one is for testing."""
    (corpus / "train").mkdir(parents=True)
    for part in ("WAVE", "resource"):
        (corpus / part).symlink_to(source / part)
    speakers = (source / "train/spk2age").read_text().splitlines()[:12]
    (corpus / "train/spk2age").write_text("\n".join(speakers) + "\n")
    chosen = {line.split()[0] for line in speakers}
    utts = [line for line in (source / "train/utt2spk").read_text().splitlines() if line.split()[1] in chosen]
    (corpus / "train/utt2spk").write_text("\n".join(utts) + "\n")
    shutil.copy(source / "train/text", corpus / "train/text")


@pytest.mark.parametrize("make_corpus", [an4, speechocean762], ids=lambda f: f.__name__)
def test_networks_run_after_run_sh(make_recipe, shared, tmp_path, make_corpus):
    name, corpus = make_corpus.__name__, tmp_path / "corpus"
    make_corpus(shared / "data" / name, corpus)
    folder, run = make_recipe(name)
    done = run("--corpus", corpus, "--stop-stage", "3", "--nj", "1")
    assert done.returncode == 0, done.stderr
    subprocess.run([folder / "local/run_cnn.sh", "--nj", "1", "--stop-stage", "0"], cwd=tmp_path, check=True, timeout=900)
    assert (folder / "data-fbank/test/feats.scp").is_file() and not (folder / "exp/cnn").exists()
    for network in ("lstm", "blstm", "cnn"):
        done = subprocess.run([folder / f"local/run_{network}.sh", "--nj", "1", "--train-opts", "--num-epochs 1 --num-threads 1"],
                              cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode == 0, (network, done.stderr)
        exp = folder / "exp" / network
        epoch, = (json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines())
        assert epoch["train_loss"] < math.log(json.loads((folder / "exp/dnn/store/train/manifest.json").read_text())["num_pdfs"])
        assert (exp / "decode/best_wer").is_file()
