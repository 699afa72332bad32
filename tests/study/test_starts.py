"""What the training of a cell starts from: made once a seed and shape, and named in the command that trains."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.study import starts
from pykaldist.study.claims import read_claims
from pykaldist.study.corpora import Corpus, Prepared
from pykaldist.study.order import options_at
from pykaldist.study.results import Trial

SEQUENCE = "--objective smbr {lattices} --hid-layers 2 --hid-dim 8 --splice 1 --learn-rate 0.1"


class Made:
    """Notes the verbs and scripts that are called in place of running them, and writes what they leave behind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[list[str]] = []
        monkeypatch.setattr(starts, "run_verbs", self.verbs)
        monkeypatch.setattr(starts, "run_script", self.script)

    def verbs(self, log: Path, *commands: Sequence[object], folder: Path | None = None) -> float:
        self.folder = folder
        for command in commands:
            words = [str(word) for word in command]
            self.calls.append(words)
            out = Path(words[-1])
            out.mkdir(parents=True, exist_ok=True)
            if words[0] == "pack-lattices":
                (out / "manifest.json").write_text("{}")
            if words[0] == "prepare-chain":
                (out / "train_options").write_text("--objective\nchain\n--learn-rate\n0.1\n")
        return 3.0

    def script(self, log: Path, recipe: Path, *command: object) -> float:
        self.calls.append([str(recipe), *map(str, command)])
        return 1.0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def corpus(tmp_path: Path, **changes: str) -> Prepared:
    spec = Corpus("", "data/train", "data/test", "exp/ali", "exp/graph", "", "", lang="data/lang", **changes)
    return Prepared(spec, tmp_path / "recipe", tmp_path / "store", tmp_path / "test", tmp_path / "graph")


def test_cells_of_a_seed_share_a_network_and_its_lattices(tmp_path: Path, made: Made) -> None:
    ready = corpus(tmp_path)
    for seed, calls in ((0, 4), (0, 4), (1, 8)):
        _, command = starts.training(Trial("toy", SEQUENCE, seed), ready, tmp_path / "exp", tmp_path / "exp" / "folder")
        assert len(made.calls) == calls
    xent, ali, denlats, store = made.calls[-4:]
    assert xent[0] == "train" and xent[-2] == str(tmp_path / "store") and " ".join(xent[:-2]).endswith(
        f"--hid-layers 2 --hid-dim 8 --splice 1 {starts.XENT}")
    assert ali[:2] == [str(tmp_path / "recipe"), "steps/nnet/align.sh"] and ali[-2] == denlats[-2] == xent[-1]
    assert store == ["pack-lattices", str(tmp_path / "recipe/data/lang"), ali[-1], denlats[-1], store[-1]]
    words = " ".join(map(str, command))
    assert f"--nnet-init {xent[-1]}/final.nnet" in words and f"--denlats {store[-1]} --hid-layers 2" in words and "{" not in words


def test_sequence_training_needs_a_language(tmp_path: Path, made: Made) -> None:
    ready = corpus(tmp_path)
    ready = Prepared(Corpus("", "data/train", "data/test", "exp/ali", "exp/graph", "", ""), ready.source, ready.store, ready.test,
                     ready.graph)
    with pytest.raises(UserError, match=r"toy names no lang in corpora\.json"):
        starts.training(Trial("toy", SEQUENCE, 0), ready, tmp_path / "exp", tmp_path / "exp" / "folder")


def test_a_chain_model_is_prepared_in_its_own_folder(tmp_path: Path, made: Made) -> None:
    ready = corpus(tmp_path, tree="exp/tree", configs="exp/configs", chain="--chain.xent-regularize 0.1")
    (tmp_path / "recipe/exp/configs").mkdir(parents=True)
    (tmp_path / "recipe/exp/configs/network.xconfig").write_text("input\n")
    folder = tmp_path / "exp" / "folder"
    seconds, command = starts.chain_training(Trial("toy", "--trainer.num-epochs 2", 7), ready, tmp_path / "exp", folder)
    assert seconds == 3.0 and (folder / "configs/network.xconfig").is_file()
    assert command == ["train", "--objective", "chain", "--learn-rate", "0.1", folder / "store", folder]
    words = " ".join(made.calls[0])
    assert made.folder == tmp_path / "recipe"  # from which paths in configs go
    assert words.startswith("prepare-chain train ") and "--chain.xent-regularize 0.1 --trainer.num-epochs 2 --trainer.srand 7" in words


def test_starts_of_two_seeds_are_made_at_a_time_and_those_of_one_seed_one_after_the_other(tmp_path: Path,
                                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    both, making = threading.Barrier(2, timeout=30), threading.Lock()

    def make(shape: Sequence[str], trial: Trial, corpus: Prepared, exp: Path) -> str:
        assert trial.seed < 2 or making.acquire(blocking=False)
        if trial.seed < 2:
            both.wait()
        else:
            threading.Event().wait(0.05)
            making.release()
        return "--denlats store"

    monkeypatch.setattr(starts, "_lattices", make)
    for seeds in ((0, 1), (2, 2)):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda seed: starts.training(Trial("toy", SEQUENCE, seed), corpus(tmp_path), tmp_path, tmp_path / "t"), seeds))


def test_the_network_before_sequence_training_is_a_cell_of_the_study(root: Path) -> None:
    claims = {claim.name: claim for claim in read_claims(root / "egs/study/claims")}
    expected = [*starts.XENT.split(), "--hid-layers", "2", "--hid-dim", "128", "--splice", "5", "--objective", "xent"]
    for name in ("11-sequence-training", "14-sequence-training-weak"):
        assert sorted(options_at(claims[name].cells["cross-entropy"], 1.0).split()) == sorted(expected)


def test_every_corpus_of_a_claim_is_known(root: Path) -> None:
    known = json.loads((root / "egs/study/corpora.json").read_text())
    assert {name for claim in read_claims(root / "egs/study/claims") for name in claim.corpora} == set(known)
