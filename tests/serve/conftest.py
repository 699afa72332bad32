"""A recipe with Kaldi's chain model of AN4, and two recordings."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.pairs import record_decoding
from pykaldist.io.audio import read_audio
from pykaldist.io.datadir import DataDir

RATE = 16000
SAID = ["RUBOUT G M E F THIRTY NINE", "ERASE C Q Q F SEVEN"]  # what the model makes of them
UTTS = ("fcaw-an406-fcaw-b", "fcaw-an407-fcaw-b")


@pytest.fixture(scope="session")
def recipe(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kaldi's chain model of AN4 as a recipe has it: its graph in another directory, which only a decoding's record leads to."""
    folder, chain, kaldis = tmp_path_factory.mktemp("my s5"), golden / "chain_an4", golden / "an4_kaldi"
    model, graph = folder / "exp/chain/tdnn", folder / "exp/trees/words"
    (graph / "phones").mkdir(parents=True)
    (folder / "conf").mkdir()
    (model / "decode").mkdir(parents=True)
    shutil.copyfile(chain / "final_global_mean.mdl", model / "final.mdl")
    (model / "frame_subsampling_factor").write_text("3\n")
    shutil.copyfile(chain / "HCLG.fst", graph / "HCLG.fst")
    for name in ("words.txt", "phones.txt"):
        shutil.copyfile(kaldis / "lang" / name, graph / name)
    for name in ("silence.csl", "align_lexicon.int", "word_boundary.int"):
        shutil.copyfile(kaldis / "lang/phones" / name, graph / "phones" / name)
    (folder / "conf/mfcc.conf").write_text("--use-energy=false\n")
    shutil.copyfile(chain / "mfcc_hires.conf", folder / "conf/mfcc_hires.conf")
    record_decoding(model / "decode", graph, model / "final.mdl")
    return folder


@pytest.fixture(scope="session")
def audio(golden: Path, shared: Path) -> list[np.ndarray]:
    test = DataDir(golden / "an4_kaldi/data/test")
    return [read_audio(str(shared / test.wav_scp[utt]))[0] for utt in UTTS]
