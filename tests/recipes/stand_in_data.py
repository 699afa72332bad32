"""Our own small recipes (stand_ins/), and their data: speech that mini_recipe.py makes, laid out as a recipe of each kind has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import soundfile
from foreign_recipes import ROOT, around
from mini_recipe import LEXICON, RATE, write_corpus

from pykaldist.lm.arpa import write_arpa
from pykaldist.lm.smoothing import estimate

SPH2PIPE = "tools/sph2pipe_v2.5/sph2pipe"
CONF = {"mfcc.conf": f"--sample-frequency={RATE}\n--use-energy=false\n", "decode.config": "beam=11.0 # of decoding\nfirst_beam=8.0\n",
        "decode_dnn.config": "beam=13.0\nlattice_beam=8.0\n"}


def make(name: str, root: Path) -> Path:
    """The recipe stand_ins/`name`.sh as egs/`name`_like/s5 of `root`, with its data; returns its folder."""
    around(root)
    recipe = root / "egs" / f"{name}_like" / "s5"
    source = ROOT / "tests/recipes/stand_ins"
    write_corpus(recipe)
    shutil.copy(source / f"{name}.sh", recipe / "run.sh")
    for shared in ("cmd.sh", "path.sh"):
        shutil.copy(source / shared, recipe)
    for link in ("steps", "utils"):
        (recipe / link).symlink_to(f"../../wsj/s5/{link}")
    for file, text in CONF.items():
        (recipe / "conf").mkdir(exist_ok=True)
        (recipe / "conf" / file).write_text(text)
    (recipe / "data/local/lm").mkdir(parents=True)
    (recipe / "data/dict").rename(recipe / "data/local/dict")
    (recipe / "data/local/dict/extra_questions.txt").touch()
    sentences = [line.split()[1:] for line in (recipe / "data/train/text").read_text().splitlines()]
    for size, order in (("small", 1), ("medium", 2), ("large", 3)):
        write_arpa(estimate(sentences, LEXICON, order), recipe / f"data/local/lm/lm_{size}.arpa.gz")
    for part in ("train", "test"):
        {"an4": sphere, "swbd": conversations}.get(name, lambda data, root: None)(recipe / "data" / part, root)
    return recipe


def rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def sphere(data: Path, root: Path) -> None:
    """Audio in sphere files, which sph2pipe reads."""
    table = []
    for utt, path in rows(data / "wav.scp"):
        samples, rate = soundfile.read(path, dtype="int16")
        soundfile.write(path.replace(".wav", ".sph"), samples, rate, "PCM_16", format="NIST")
        table.append(f"{utt} {root}/{SPH2PIPE} -f wav -p -c 1 {path.replace('.wav', '.sph')} |\n")
    (data / "wav.scp").write_text("".join(table))


def conversations(data: Path, root: Path) -> None:
    """The two speakers as the two channels of one mu-law sphere file; utterances are its segments."""
    text = dict(line.split(maxsplit=1) for line in (data / "text").read_text().splitlines())
    sides: dict[str, list[np.ndarray]] = {"A": [], "B": []}
    rng = np.random.default_rng(7)
    tables: dict[str, list[str]] = {"segments": [], "text": [], "utt2spk": []}
    for utt, path in rows(data / "wav.scp"):
        side = "AB"[int(utt[1])]
        begin = sum(map(len, sides[side])) / RATE
        sides[side] += [soundfile.read(path)[0], rng.uniform(-0.02, 0.02, 400)]
        end = begin + len(sides[side][-2]) / RATE
        name = f"sw02001-{side}_{round(100 * begin):06d}-{round(100 * end):06d}"
        for table, value in (("segments", f"sw02001-{side} {begin:.2f} {end:.2f}"), ("text", text[utt]), ("utt2spk", f"sw02001-{side}")):
            tables[table].append(f"{name} {value}\n")
    tables["wav.scp"] = [f"sw02001-{side} {root}/{SPH2PIPE} -f wav -p -c {channel} {data}/sw02001.sph |\n"
                         for side, channel in (("A", 1), ("B", 2))]
    tables["reco2file_and_channel"] = [f"sw02001-{side} sw02001 {side}\n" for side in "AB"]
    own = {side: sorted(row.split()[0] for row in tables["utt2spk"] if row[8] == side) for side in "AB"}
    tables["spk2utt"] = [f"sw02001-{side} {' '.join(own[side])}\n" for side in "AB"]
    for table, lines in tables.items():
        (data / table).write_text("".join(sorted(lines)))
    channels = [np.concatenate(sides[side]) for side in "AB"]
    longest = max(map(len, channels))
    whole = [np.concatenate([channel, rng.uniform(-0.02, 0.02, longest - len(channel))]) for channel in channels]
    soundfile.write(data / "sw02001.sph", np.stack(whole, 1), RATE, "ULAW", format="NIST")
