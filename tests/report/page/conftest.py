"""An experiment to report: Kaldi's lattices of 43 utterances of AN4, scored twice, and the histories of two trainings."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.pairs import record_decoding
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import SymbolTable
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.init import INITS
from pykaldist.optim.registry import OPTIMIZERS, SCHEDULES
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.strategies.base.registry import strategy_options
from pykaldist.score.score_dir import ScoreOptions, score_dir
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.experiment import ExperimentOptions

RATE = 8000


def write_training(folder: Path, ngpu: int, strategy: str = "local", epochs: int = 3, **changed: object) -> None:
    """config.json and history.jsonl of a training; workers share the frames, and take a tenth of the time for exchanges."""
    parts = (ExperimentOptions(init="nnet1"), strategy_options(strategy)(), DnnOptions(), INITS["nnet1"](), OPTIMIZERS["sgd"][0](),
             SCHEDULES["newbob"][0](), DivergenceOptions())
    options = {**JobOptions(strategy=strategy).result_options(), "nnet": "dnn"}
    for part in parts:
        options.update(dataclasses.asdict(part))
    assert changed.keys() <= options.keys()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps({
        "format": 1, "options": {**options, **changed}, "ngpu": ngpu, "inputs": {}, "device": "cpu", "versions": {"pykaldist": "0.1.0"},
        "checkpoints": {}, "store": "exp/store", "host": "here", "commit": None, "started": "2026-11-25T08:00:00+0000"}))
    lines = [{"epoch": epoch, "updates": 100 * epoch, "frames": 50_000, "learn_rate": 0.5**epoch, "train_loss": 3.0 / epoch,
              "train_acc": 0.2 * epoch, "cv_loss": 3.2 / epoch, "cv_acc": 0.18 * epoch, "accepted": epoch != 2,
              "seconds": {"compute": 8.0 / ngpu, "exchange": 1.0 * (ngpu > 1), "wait": 0.5 * (ngpu > 1), "load": 0.5, "total": 20.0 / ngpu},
              "time": "measured", "disagreement": 0.1 / epoch * (ngpu > 1), **({"staleness": {"0": 30, "2": 10}} if ngpu > 1 else {})}
             for epoch in range(1, epochs + 1)]
    write_text(folder / "history.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="session")
def experiment(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """exp/{wide,narrow} with decode directories of the same lattices, data/test with noise for audio, exp/{wide,narrow} trained."""
    an4, recipe = golden / "an4_kaldi", tmp_path_factory.mktemp("recipe")
    utts = [utt for utt, _ in read_lattices(an4 / "decode_dnn/lat.gz")]
    known, generator = DataDir(an4 / "data/test"), np.random.default_rng(0)
    audio = {}
    for number, utt in enumerate(sorted(utts)):
        audio[utt] = str(recipe / f"wav/{number}.wav")
        Path(audio[utt]).parent.mkdir(exist_ok=True)
        soundfile.write(audio[utt], 0.1 * generator.standard_normal(RATE // 4), RATE)
    data = write_datadir(recipe / "data/test", audio, {utt: " ".join(known.text[utt]) for utt in audio},
                         {utt: known.utt2spk[utt] for utt in audio})
    write_text(data.path / "spk2gender", "".join(f"{speaker} {speaker[0]}\n" for speaker in sorted(data.spk2utt)))
    write_text(data.path / "utt2dur", "".join(f"{utt} 0.25\n" for utt in sorted(audio)))
    for name, ngpu, options in (("wide", 1, ScoreOptions(min_lmwt=4, max_lmwt=15)), ("narrow", 4, ScoreOptions(min_lmwt=1, max_lmwt=2))):
        model, decode = recipe / "exp" / name, recipe / "exp" / name / "decode"
        decode.mkdir(parents=True)
        shutil.copy(an4 / "tri3_ali/final.mdl", model)
        shutil.copy(an4 / "decode_dnn/lat.gz", decode / "lat.1.gz")
        record_decoding(decode, an4 / "lang", model / "final.mdl")
        score_dir(data, SymbolTable.read(an4 / "lang/words.txt"), decode, options)
        write_training(model, ngpu, "local" if ngpu == 1 else "ma", learn_rate=0.008 * ngpu)
    return recipe
