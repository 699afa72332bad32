"""What an nnet3 experiment came to, in a line and in pictures: Kaldi's steps/info/*_dir_info.pl and steps/nnet3/report/generate_plots.py.

Both read `history.jsonl` and `final.mdl`, no logs. Kaldi's numbers are log-probabilities of a frame; so are these, minus the losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.schema import read_json
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.report.figures import pyplot, save
from pykaldist.train.folder import Config
from pykaldist.train.history import read_history

PARTS = {"train": "training", "cv": "held out"}


def _history(exp: Path) -> list[dict[str, Any]]:
    """The epochs of an experiment; raises UserError where there is none."""
    lines = read_history(exp) if (exp / "history.jsonl").is_file() else []
    if not lines:
        raise UserError(f"{exp} has no history.jsonl with a finished epoch; train it (steps/nnet3/chain/train.py or train_dnn.py).")
    return lines


def described(exp: Path) -> str:
    """An experiment in a line: epochs, workers, parameters, dimensions, log-probabilities at two thirds of the training and at its end."""
    lines, config = _history(exp), read_json(exp / "config.json", Config, "train it again (steps/nnet3/chain/train.py)")
    final = len(lines)
    text = f"{exp}: num-epochs={final} nj={config.options.get('initial_workers') or config.ngpu}..{config.ngpu}"
    if (exp / "final.mdl").is_file():
        nnet = Nnet3Model.read(exp / "final.mdl").nnet
        ivector = f"+{nnet.dim('ivector')}" if "ivector" in nnet.nodes else ""
        text += f" num-params={nnet.num_params / 1e6:.1f}M dim={nnet.dim('input')}{ivector}->{nnet.dim('output')}"
    chosen = sorted({max(1, round(final * 2 / 3)), final})
    places = ",".join("final" if number == final else str(number) for number in chosen)
    for name, title in (("loss", "logprob"), ("xent", "xent"), ("acc", "accuracy")):
        if f"train_{name}" in lines[-1]:
            sign = 1 if name == "acc" else -1
            values = "/".join(",".join(f"{sign * lines[number - 1][f'{part}_{name}']:.3f}" for number in chosen) for part in PARTS)
            text += f" {title}:train/valid[{places}]=({values})"
    return text


def draw(exps: Sequence[Path], folder: Path) -> list[Path]:
    """Draw the course of each measure of experiments, one picture a measure, in `folder`; returns the files."""
    histories = {exp: _history(exp) for exp in exps}
    names = [name.removeprefix("train_") for name in next(iter(histories.values()))[0] if name.startswith("train_")]
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        path = folder / f"{name}.png"
        plt = pyplot(path)
        figure, axes = plt.subplots(figsize=(8, 5))
        for exp, lines in histories.items():
            for part, style in zip(PARTS, ("-", "--"), strict=True):
                points = [(line["epoch"], line[f"{part}_{name}"]) for line in lines if f"{part}_{name}" in line]
                axes.plot(*zip(*points, strict=True), style, label=f"{exp}, {PARTS[part]}")
        axes.set_xlabel("epoch")
        axes.set_ylabel(name)
        axes.legend()
        save(plt, figure, path)
        made.append(path)
    return made
