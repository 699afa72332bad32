"""A training's curves for other programs, written while it runs: TensorBoard, MLflow and Weights & Biases (`--log-to tensorboard,mlflow`).

All get the numbers of each line of `history.jsonl` when its epoch is over, under the names that they have there (`cv_loss`,
`seconds/compute`), at the step `epoch`. A run that resumes goes on in what it has written: TensorBoard is told to forget later steps,
MLflow and Weights & Biases get the run whose name stands in `<exp>/mlflow_run` and `<exp>/wandb_run`. The packages are not among those
that the toolkit needs. Nothing leaves the machine unless the user's own environment says so (MLFLOW_TRACKING_URI, WANDB_MODE=online).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text

RUN, WANDB_RUN = "mlflow_run", "wandb_run"  # files of an experiment with their names of its run


class Writer(Protocol):
    """Gets the lines of a history, one after the other."""

    def write(self, line: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of the history, those of `seconds` as `seconds/<name>`; without the epoch, counts of staleness and the like."""
    found = {name: value for name, value in line.items() if name != "epoch"}
    found |= {f"seconds/{name}": value for name, value in found.pop("seconds", {}).items()}
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}


class TensorBoard:
    """Event files in `<exp>/tensorboard`; `tensorboard --logdir exp` shows them."""

    def __init__(self, exp: Path, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._events = SummaryWriter(str(exp / "tensorboard"), purge_step=done + 1)

    def write(self, line: dict[str, Any]) -> None:
        for name, value in numbers(line).items():
            self._events.add_scalar(name, value, line["epoch"])
        self._events.flush()

    def close(self) -> None:
        self._events.close()


class MlFlow:
    """A run of MLflow, in the store that MLFLOW_TRACKING_URI names, else in `<exp>/mlflow.db`."""

    def __init__(self, exp: Path, done: int) -> None:
        from mlflow.tracking import MlflowClient

        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(exp / 'mlflow.db').resolve()}"
        self._client, name = MlflowClient(where), exp / RUN
        if done and name.is_file():
            self._run = name.read_text(encoding="utf-8").strip()
            return
        experiment = self._client.get_experiment_by_name("pykaldist")
        number = experiment.experiment_id if experiment else self._client.create_experiment("pykaldist")
        self._run = self._client.create_run(number, run_name=str(exp)).info.run_id
        write_text(name, self._run + "\n")

    def write(self, line: dict[str, Any]) -> None:
        for name, value in numbers(line).items():
            self._client.log_metric(self._run, name, value, step=line["epoch"])

    def close(self) -> None:
        self._client.set_terminated(self._run)


class WeightsAndBiases:
    """A run of Weights & Biases in `<exp>/wandb`, offline unless WANDB_MODE says otherwise; `wandb sync` sends it."""

    def __init__(self, exp: Path, done: int) -> None:
        import wandb

        name = exp / WANDB_RUN
        if not (done and name.is_file()):
            write_text(name, secrets.token_hex(4) + "\n")
        number = name.read_text(encoding="utf-8").strip()
        self._run = wandb.init(project="pykaldist", name=str(exp), dir=str(exp), id=number, resume="allow",
                               mode=os.environ.get("WANDB_MODE", "offline"), settings=wandb.Settings(silent=True, console="off"))

    def write(self, line: dict[str, Any]) -> None:
        self._run.log(numbers(line), step=line["epoch"])

    def close(self) -> None:
        self._run.finish()


WRITERS: dict[str, tuple[Callable[[Path, int], Writer], str]] = {  # what makes one, and its package
    "tensorboard": (TensorBoard, "tensorboard"), "mlflow": (MlFlow, "mlflow"),
    "wandb": (WeightsAndBiases, "wandb")}


def names_in(log_to: str) -> list[str]:
    """The writers that `--log-to` names; raises UserError for one that is unknown."""
    names = [name for name in log_to.split(",") if name]
    if unknown := [name for name in names if name not in WRITERS]:
        raise UserError(f"--log-to {log_to}: there is no writer {unknown[0]}; known are {', '.join(WRITERS)}, with commas between.")
    return names


def open_writers(log_to: str, exp: Path, done: int) -> list[Writer]:
    """The writers that `--log-to` names, for an experiment of which `done` epochs are over; raises UserError where a package is missing."""
    found = []
    for name in names_in(log_to):
        make, package = WRITERS[name]
        try:
            found.append(make(exp, done))
        except ImportError as error:
            raise UserError(f"--log-to {name} takes the package {package}; install it with pip install {package}.") from error
    return found
