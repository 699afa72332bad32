"""The trainings of a study: those that are missing, several at a time, the most urgent one first.

Each has a folder while it is made, and goes on there after it was ended; its result is a line with the project, and the folder is removed.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.progress import notice
from pykaldist.score.bootstrap import read_counts
from pykaldist.study.claims import Claim
from pykaldist.study.corpora import Prepared
from pykaldist.study.order import in_order
from pykaldist.study.results import Result, Results, Trial
from pykaldist.study.starts import chain_training, training
from pykaldist.study.verbs import VerbError, end_all, run_verbs
from pykaldist.train.history import read_history

DIVERGED = "training diverged"
KEPT = ("options", "ngpu", "versions", "commit")  # of config.json; the frames' checksum is kept beside
TRIES = 2  # of a training that fails, in one call
MOST_IN_A_ROW = 4  # trainings that fail one after the other: then the fault is not theirs, and no more begin


def folder_of(trial: Trial, exp: Path) -> Path:
    """The folder in which a training is made."""
    return exp / f"{trial.corpus}.{zlib.crc32(trial.options.encode()):08x}.{trial.seed}"


def carry_out(trial: Trial, corpus: Prepared, exp: Path) -> Result:
    """Train; decode and score unless it only finds a rate. Goes on where it was ended. Raises VerbError where something fails.

    The seconds of CPU are those of all calls for this training. Those of a call that was killed together with this process are not known.
    """
    folder = folder_of(trial, exp)
    log, decode = exp / "log" / f"{folder.name}.log", folder / "decode"
    ended = log.with_suffix(".cpu_seconds")  # of the calls before
    before, train = (chain_training if corpus.spec.chain else training)(trial, corpus, exp, folder)
    before += float(ended.read_text(encoding="utf-8")) if ended.is_file() else 0.0
    commands = [train]
    if not trial.tuning:
        commands += [["decode", *corpus.spec.decode.split(), "--device", "cpu", corpus.graph, corpus.test, decode],
                     ["score", *corpus.spec.score.split(), corpus.test, corpus.graph, decode]]
    try:
        seconds = before + run_verbs(log, *commands)
    except VerbError as error:
        if DIVERGED not in log.read_text(encoding="utf-8"):
            write_text(ended, f"{before + error.seconds:.1f}\n")
            raise
        result = Result(trial.corpus, trial.options, trial.seed, diverged=True, cpu_seconds=0.0)
    else:
        result = _found(trial, folder, seconds)
    shutil.rmtree(folder)
    ended.unlink(missing_ok=True)
    return result


def _found(trial: Trial, folder: Path, seconds: float) -> Result:
    """The result of a training that came to its end; its config and history are kept unless it only finds a rate."""
    history = read_history(folder)
    last = [line for line in history if line["accepted"]][-1]
    loss, accuracy = (last.get(f"averaged_{name}", last.get(name)) for name in ("cv_loss", "cv_acc"))  # of the model that was written
    result = Result(trial.corpus, trial.options, trial.seed, diverged=False, cpu_seconds=round(seconds, 1), cv_loss=loss, cv_acc=accuracy)
    if trial.tuning:
        return result
    counts = read_counts(folder / "decode" / "scoring_kaldi" / "wer_details" / "per_utt")
    text = (folder / "config.json").read_text(encoding="utf-8")
    config = json.loads(text.replace(f"{folder.parent.resolve()}/", ""))  # what it started from is named as within the study's folder
    kept = {"frames": config["inputs"]["train"].get("feats.bin"), **{name: config[name] for name in KEPT}}
    kept["options"] = {name: value for name, value in kept["options"].items() if value is not None}
    order = np.argsort(counts.utts)
    return dataclasses.replace(result, words=int(counts.words.sum()), errors=counts.errors[order].tolist(), config=kept, history=history)


def run_missing(claims: Sequence[Claim], corpora: Mapping[str, Prepared], results: Results, exp: Path, nj: int, max_minutes: float,
                carry_out: Callable[[Trial, Prepared, Path], Result] = carry_out,
                after: Callable[[], None] = lambda: None) -> dict[Trial, str]:
    """Do what is missing, `nj` at a time, until nothing is, or no more is to begin; returns what failed, and why.

    A training that fails is tried once more when everything else that can be done is done. Where several fail one after the other, no more
    begin. `after` is called after each result.
    """
    end = time.monotonic() + 60 * max_minutes
    failures: dict[Trial, list[str]] = {}
    running: dict[Future[Result], Trial] = {}
    in_a_row = 0
    with ThreadPoolExecutor(nj) as pool:
        while True:
            while len(running) < nj and time.monotonic() < end and in_a_row < MOST_IN_A_ROW:
                trial = _next(in_order(claims, corpora, results), set(running.values()), failures)
                if trial is None:
                    break
                running[pool.submit(carry_out, trial, corpora[trial.corpus], exp)] = trial
            if not running:
                return {trial: messages[-1] for trial, messages in failures.items()}
            try:
                done = wait(running, return_when=FIRST_COMPLETED).done
            except BaseException:  # Ctrl-C, SIGTERM: they go on where they are when the study is run again
                end_all()
                raise
            for future in done:
                trial = running.pop(future)
                try:
                    results.add(future.result())
                except UserError as error:
                    in_a_row += 1
                    failures.setdefault(trial, []).append(str(error))
                    notice(f"failed: {trial.corpus}, seed {trial.seed}, {trial.options}: {error}")
                else:
                    in_a_row = 0
                    after()
                    failures.pop(trial, None)
                    notice(_told(results[trial]))


def _next(trials: Iterable[Trial], running: set[Trial], failures: Mapping[Trial, list[str]]) -> Trial | None:
    """The first training that neither runs nor has failed; where there is none, one that has tries left; else None."""
    again = None
    for trial in trials:
        if trial not in running:
            if trial not in failures:
                return trial
            if again is None and len(failures[trial]) < TRIES:
                again = trial
    return again


def _told(result: Result) -> str:
    """A line on a result."""
    wer = "" if result.wer is None else f", WER {result.wer:.2f} %"
    what = "diverged" if result.diverged else f"held-out loss {result.loss:.4f}{wer}; {result.cpu_seconds:.0f} s of CPU"
    return f"{result.corpus}, seed {result.seed}, {result.options}: {what}"
