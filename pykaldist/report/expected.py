"""What the commands of a recipe are expected to take, for its --dry-run.

A stage that has run here says in its logs what it took (`stages.py`). The training of a network on a frame store is predicted by the
planner (`train/plan.py`), which measures this machine for it: so many epochs, those by one worker first where there are some. Of others
nothing is known, and nothing is said.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.optim.registry import SCHEDULES
from pykaldist.report.stages import Stage, stages

BETWEEN = "\x1f"  # the words of a command, as utils/shared/dry_run.sh writes them
TRAINING = "steps/nnet/train.sh"
PLANNED = {"strategy": str, "average_period": str, "optimizer": str, "device": str, "hid_layers": int, "hid_dim": int, "splice": int,
           "minibatch_size": int, "num_threads": int}  # of the training's options, those that the planner has, too
VERBS = {  # of scripts that are not named as their verbs
    "make_mfcc.sh": ("make-feats",), "make_fbank.sh": ("make-feats",), "make_plp.sh": ("make-feats",),
    "compute_cmvn_stats.sh": ("make-cmvn",), "score_kaldi.sh": ("score",), "align.sh": ("align-nnet",),
    "decode_fmllr.sh": ("decode", "est-fmllr", "rescore-lattices")}


@dataclass
class Expected:
    """A command, the seconds that it is expected to take (None where nothing is known), and what is said of it."""

    command: str
    seconds: float | None = None
    remarks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"  {self.command}" + (f"   # {', '.join(self.remarks)}" if self.remarks else "")


def expected(words: list[str]) -> Expected:
    """What is expected of a command of a recipe, in its folder; a command whose last argument, which it makes, is there is marked."""
    found = Expected(shlex.join(words))
    made = Path(words[-1])
    there = len(words) > 1 and "/" in words[-1] and made.exists()
    if there:
        found.remarks.append(f"{made} is there")
    before = took_before(words)
    if before is not None and (there or words[0] != TRAINING):
        found.seconds = before
        found.remarks.append(f"took {_clock(before)}")
    elif words[0] == TRAINING:
        found.seconds, remark = predicted(words)
        found.remarks.append(remark)
    return found


def took_before(words: list[str]) -> float | None:
    """The seconds that a stage took when it was run last: those of its longest process of each kind, added up."""
    name = Path(words[0]).name
    verbs = VERBS.get(name, (name.removesuffix(".sh").replace("_", "-"),))
    took: dict[str, float] = {}
    for word in reversed(words[1:]):
        folder = Path(word)
        if "/" in word and not took and folder.is_dir():
            for path in (folder, *(folder.parent / f"{folder.name}.si",) * (name == "decode_fmllr.sh")):
                for stage in _own(path):
                    verb = stage.name.rpartition(": ")[2]
                    if verb in verbs:
                        took[verb] = took.get(verb, 0.0) + stage.wall
    return sum(took.values()) if took else None


def _own(folder: Path) -> list[Stage]:
    """The stages whose logs are a folder's own, not those of folders in it."""
    return [stage for stage in stages(folder) if stage.name.startswith(".: ")] if folder.is_dir() else []


def predicted(words: list[str]) -> tuple[float | None, str]:
    """The seconds of a training on a frame store, and what the prediction is; None, and why, where there is none."""
    from pykaldist.train.plan import PlanOptions, make_plan

    given = options_of(words)
    store = words[-2]
    if not Path(store).is_dir():
        return None, f"predicted when {store} is there"
    if given.get("nnet", "dnn") != "dnn" or given.get("objective", "xent") != "xent":
        return None, "pykaldist predict says what this network takes"
    ngpu = int(given.get("ngpu", 1))
    chosen = {name: kind(given[name]) for name, kind in PLANNED.items() if name in given}
    if ngpu == 1:
        chosen = {name: value for name, value in chosen.items() if name not in ("strategy", "average_period")}
    print("measuring this machine, to predict the training", file=sys.stderr, flush=True)
    try:
        plan = make_plan(PlanOptions(ngpu=f"1,{ngpu}", store=store, **{"strategy": "ma", "average_period": "10", **chosen}))
    except UserError as error:
        return None, f"not predicted: {error}"
    epochs = int(given.get("num_epochs") or SCHEDULES[given.get("schedule", "newbob")][0]().num_epochs)
    alone = min(epochs, float(given.get("serial_warmup", 0))) if ngpu > 1 else 0
    by_number = {one.ngpu: one.total for one in plan.predictions}
    seconds = alone * by_number[1] + (epochs - alone) * by_number[ngpu]
    return seconds, f"{_clock(seconds)} predicted for {epochs} epochs, {_clock(by_number[ngpu])} each"


def options_of(words: list[str]) -> dict[str, str]:
    """The options of a command, `--name value` or `--name=value`; the last of a name counts."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else following
    return found


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def annotated(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a dry run with what each command is expected to take, and a line that adds it up."""
    known, unknown = 0.0, 0
    for line in lines:
        text = line.rstrip("\n")
        if BETWEEN not in text:
            yield text
            continue
        one = expected(text.split(BETWEEN)[:-1])
        known, unknown = known + (one.seconds or 0.0), unknown + (one.seconds is None)
        yield str(one)
    if known:
        yield f"About {_clock(known)} in all" + (f", and what {unknown} commands take that have not run here" if unknown else "") + "."
