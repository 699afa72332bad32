"""The network of a preset (`nnet/nnet3/presets.py`) for the chunks of a folder: what --nnet tdnnf stands for.

    <exp>/configs/network.xconfig     the preset's lines, for the features, i-vectors and pdfs of the folder
    <exp>/configs/*.config, vars      made of it
    <exp>/0.raw                       the network before training
"""

from __future__ import annotations

from pathlib import Path

import torch

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.store import FrameStore
from pykaldist.io.atomic import write_text
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.presets import PresetOptions, Sides, preset
from pykaldist.nnet.nnet3.xconfig.convert import write_configs

START = "0.raw"


def write_preset_network(name: str, options: PresetOptions, store: Path, exp: Path, seed: int) -> Path:
    """Write a preset's network for the chunks in `store` to `exp`; returns its file. Files that are there with the same content stay."""
    frames = FrameStore(store / "train")
    chunks = ChunkStore(store / "train_chunks", frames).manifest
    configs = exp / "configs"
    lines = preset(name, Sides(frames.manifest.dim, chunks.ivector_dim, chunks.num_pdfs, str(configs / "idct.mat")), options)
    text = f"# --nnet {name}, seed {seed}\n{lines}"
    xconfig, start = configs / "network.xconfig", exp / START
    if not start.is_file() or not xconfig.is_file() or xconfig.read_text(encoding="utf-8") != text:
        start.unlink(missing_ok=True)
        configs.mkdir(parents=True, exist_ok=True)
        write_text(xconfig, text)
        write_configs(xconfig, configs)
        config = (configs / "final.config").read_text(encoding="utf-8").splitlines()
        initialised(config, torch.Generator().manual_seed(seed), ".", str(configs / "final.config")).write(start)
    return start


def preset_network_of(name: str, exp: Path) -> Path:
    """The network that `write_preset_network` has made, in a process of a job beside others; raises UserError where there is none."""
    if not (exp / START).is_file():
        raise UserError(f"--nnet {name}: {exp / START} does not exist; let pykaldist start the job's processes itself, or make the network "
                        "first and give it as --initial-model.")
    return exp / START
