"""Trainings below a folder: their options, those that differ from defaults first, their data, and what happened in each epoch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.nnet.init import INITS
from pykaldist.nnet.kinds import KINDS, default_init
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.registry import OPTIMIZERS, SCHEDULES
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.strategies.base.registry import strategies, strategy_options
from pykaldist.report.table import System, scored
from pykaldist.train.chain_experiment import ChainExperimentOptions
from pykaldist.train.dbn import DbnOptions
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.experiment import ExperimentOptions
from pykaldist.train.folder import Config, read_config
from pykaldist.train.history import FILE, read_history

CHAIN = "chain"


@dataclass
class Option:
    """An option of a training; `default` is None where it has none that is known."""

    name: str
    value: Any
    default: Any
    help: str

    @property
    def changed(self) -> bool:
        """Whether the value is not the default."""
        return self.value != self.default


@dataclass
class Run:
    """A training: its folder, and what `config.json` and `history.jsonl` there say. A history that is alone has no config."""

    name: str
    path: Path
    config: Config | None
    history: list[dict[str, Any]]
    options: list[Option] = field(default_factory=list)

    @property
    def workers(self) -> int:
        return self.config.ngpu if self.config else 1

    def option(self, name: str) -> Any:
        """The value of an option, None where the training has no such option."""
        return self.config.options.get(name) if self.config else None

    @property
    def objective(self) -> str:
        """What is trained for: the objective, or the likelihood of RBMs."""
        return self.option("objective") or "RBM"

    @property
    def seconds(self) -> float:
        """The seconds of all epochs."""
        return float(sum(line["seconds"]["total"] for line in self.history))

    @property
    def frames_per_second(self) -> float:
        """The frames that all workers together trained on in a second."""
        return sum(line["frames"] for line in self.history) / self.seconds if self.seconds else 0.0

    @property
    def simulated(self) -> bool:
        """Whether some of its times are simulated."""
        return any(line["time"] == "simulated" for line in self.history)


def named_folders(roots: Sequence[Path], found: Iterable[Path]) -> dict[str, Path]:
    """Names of folders below the roots: relative to the only root that there is, or to what all roots have in common."""
    base = roots[0] if len(roots) == 1 else Path(os.path.commonpath([os.path.abspath(root) for root in roots]))
    if len(roots) == 1:
        return {str(path.relative_to(base)) if path != base else base.resolve().name: path for path in found}
    return {os.path.relpath(path, base): path for path in found}


def named_systems(roots: Sequence[Path]) -> list[System]:
    """The scored systems below folders, with names as `named_folders` gives them."""
    found = [system for root in roots for system in scored(root)]
    for system, name in zip(found, named_folders(roots, [system.decode_dir for system in found]), strict=True):
        system.name = name
    return found


def runs(roots: Sequence[Path]) -> list[Run]:
    """Find every training below the folders; raises UserError for a folder that does not exist, or a record that is damaged."""
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no folder; name a recipe's exp, or an experiment in it.")
    folders = {path.parent for root in roots for path in root.glob(f"**/{FILE}") if not _part_of_another(path.parent)}
    named = named_folders(roots, sorted(folders))
    return [_run(name, path) for name, path in named.items()]


def _part_of_another(folder: Path) -> bool:
    """Whether a folder's history is of a stage within another training: a layer, or a serial warm-up."""
    return not (folder / "config.json").is_file() and any((above / "config.json").is_file() for above in list(folder.parents)[:2])


def _run(name: str, path: Path) -> Run:
    config = read_config(path) if (path / "config.json").is_file() else None
    return Run(name, path, config, read_history(path), described_options(config.options) if config else [])


def described_options(options: dict[str, Any]) -> list[Option]:
    """The options of a training with their defaults and help, those that differ from their defaults first."""
    known = {f.name: f for cls in _classes(options) for f in dataclasses.fields(cls)}
    found = []
    for name, value in options.items():
        help_text = str(known[name].metadata.get("help", "")) if name in known else ""
        found.append(Option(name, value, _default(name, known, options), help_text))
    return sorted(found, key=lambda one: not one.changed)


def _default(name: str, known: dict[str, Any], options: dict[str, Any]) -> Any:
    """The default of an option as a run of these options has it."""
    if name == "nnet":
        return "dnn"
    if name == "init" and options.get("nnet") in KINDS:
        return default_init(KINDS[options["nnet"]].options(**{f.name: options[f.name]
                                                              for f in dataclasses.fields(KINDS[options["nnet"]].options)
                                                              if f.name in options}))
    default = known[name].default if name in known else None
    return None if default is dataclasses.MISSING else default


def _classes(options: dict[str, Any]) -> list[type]:
    """The option classes of a training, by the names that its own options choose."""
    chosen: list[type] = [JobOptions, DivergenceOptions]
    if options.get("strategy") in strategies():
        chosen.append(strategy_options(options["strategy"]))
    if "rbm_lrate" in options:
        return [*chosen, DbnOptions]
    chosen.append(ExperimentOptions)
    chosen += [ChainExperimentOptions] if options.get("objective") == CHAIN else []
    tables: dict[str, dict[str, Any]] = {
        "objective": {name: objective.options_class for name, objective in OBJECTIVES.items()},
        "nnet": {name: kind.options for name, kind in KINDS.items()}, "init": dict(INITS),
        "optimizer": {name: one for name, (one, _) in OPTIMIZERS.items()}, "schedule": {name: one for name, (one, _) in SCHEDULES.items()}}
    return chosen + [table[options[name]] for name, table in tables.items() if options.get(name) in table]


def differing_options(found: Sequence[Run]) -> list[tuple[str, list[Any]]]:
    """The options, and the number of workers, in which trainings differ: (name, the value of each; None where it has no such option).

    An option that only some have counts where one of these has not left it at its default.
    """
    rows: list[tuple[str, list[Any]]] = [("ngpu", [run.workers for run in found])] if len({run.workers for run in found}) > 1 else []
    changed = {one.name for run in found for one in run.options if one.changed}
    for name in dict.fromkeys(one.name for run in found for one in run.options):
        having = [run.option(name) for run in found if run.config and name in run.config.options]
        if any(value != having[0] for value in having) or (len(having) < len(found) and name in changed):
            rows.append((name, [run.option(name) for run in found]))
    return rows
