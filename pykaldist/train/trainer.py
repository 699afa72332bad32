"""The trainer, which runs the epochs for the workers of one process of a job.

It does the schedule, cross-validation, history, checkpoints and resume.

    for each epoch:  strategy.epoch(worker, fabric) for every worker;  cross-validate;  the schedule accepts or rejects the model;
                     a line of history.jsonl

Every process runs it in the same way. Process 0 writes the files and messages. At an epoch's end all workers have the same model. A
checkpoint holds the workers (parameters, optimiser, place in the epoch), strategies, schedule, the last accepted parameters and the history
so far. So a resumed run writes what a run without interruption would have written: train(2k) = train(k) + resume(k), bit for bit on one
device type. A job with another number of workers goes on from the mean of the models, at the beginning of the epoch. So does a job with all
its workers after a run in which some have died and the others have gone on.

When training diverges in an epoch (`train/divergence.py`), the run ends, or the epoch begins again from the last accepted model with a
lower rate.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from pykaldist.errors import FEATURES, Abandoned, Terminated, UserError, out_of_memory_sentence
from pykaldist.frames.outliers import outlier
from pykaldist.frames.sampler import Sampler
from pykaldist.io.entries import reason
from pykaldist.io.schema import Misfit, same_form
from pykaldist.optim.schedules import Schedule
from pykaldist.options import option
from pykaldist.parallel.engines.host import CHECKPOINT, GIVE_UP, GO_ON, STOP, Host
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.watch import pulse
from pykaldist.parallel.strategies.base.strategy import Strategy
from pykaldist.progress import Progress
from pykaldist.train.averages import MovingAverages
from pykaldist.train.best import BestModel
from pykaldist.train.checkpoints import TRAINER, Checkpoints, copied
from pykaldist.train.combine import LastModels
from pykaldist.train.divergence import EPOCH, Detector, Diverged, DivergenceOptions, remedy
from pykaldist.train.evaluate import evaluate
from pykaldist.train.history import write_history
from pykaldist.train.writers import Writer, names_in, open_writers
from pykaldist.usage import heard

LOSS_CHECK_INTERVAL = 50  # minibatches between two readings of the loss; each reading waits for the device
TIMES = ("compute", "exchange", "wait", "load")


@dataclass
class TrainerOptions:
    """Checkpoints, and who else gets the curves."""

    checkpoint_minutes: float = option(5.0, "minutes between checkpoints within an epoch")
    keep_checkpoints: int = option(2, "checkpoints kept")
    ema_decay: float = option(0.0, "decay an update of a moving average of the model, which is the result; 0.999 has the last thousand or "
                                   "so (0: the last model is)")
    measure_updates: bool = option(False, "of an epoch's last average (ma, bmuf): the cosine between workers' updates, and how the "
                                          "held-out loss bends along their mean, which takes two more passes over the held-out data")
    log_to: str = option("", "programs that get the curves too: tensorboard, mlflow and wandb, with commas between; their packages are not "
                             "installed by default")

    def __post_init__(self) -> None:
        names_in(self.log_to)
        if not 0.0 <= self.ema_decay < 1.0:
            raise UserError(f"--ema-decay {self.ema_decay:g} is outside [0, 1).")
        if self.checkpoint_minutes < 0 or self.keep_checkpoints < 1:
            raise UserError(f"--checkpoint-minutes {self.checkpoint_minutes:g} --keep-checkpoints {self.keep_checkpoints}: expected no "
                            "less than 0 minutes and 1 checkpoint.")


def described(metrics: dict[str, float]) -> str:
    """Metrics in words; frame accuracies and word error rates in per cent."""
    in_percent = {"acc": "frame accuracy", "wer": "WER on lattices"}
    return ", ".join(f"{in_percent[name]} {100 * value:.2f} %" if name in in_percent else f"{name.replace('_', ' ')} {value:.4f}"
                     for name, value in metrics.items())


def _asynchrony(notes: dict[str, Any]) -> str:
    """The staleness of the updates and the load of the parameter servers, in words."""
    late = {int(steps): count for steps, count in notes.get("staleness", {}).items()}
    mean = sum(steps * count for steps, count in late.items()) / max(sum(late.values()), 1)
    return f", staleness {mean:.2f}" * bool(late) + f", server busy {100 * notes.get('server_load', 0):.0f} %" * ("server_load" in notes)


class Trainer:
    """Trains the `workers` of a host, each with its strategy, in folder `exp`. `run` resumes from the newest checkpoint there.

    `rate_factor` multiplies the schedule's rates for the workers. With `ramp` it rises from 1 during the first epoch (Goyal et al., 2017;
    Zhang et al., 2019). `stack`: where the workers compute together. `combine`: the last models of which the best mean is taken at the end.
    `ema_decay`: of the moving average that is the result; 0: there is none.
    """

    def __init__(self, host: Host, workers: list[Worker], strategies: list[Strategy], schedule: Schedule, cv: Sampler, exp: Path,
                 options: TrainerOptions, divergence: DivergenceOptions, log: Callable[[str], None] = print,
                 rate_factor: float = 1.0, ramp: bool = False, stack: Stack | None = None, combine: int = 1,
                 ema_decay: float = 0.0) -> None:
        self.host, self.workers, self.strategies, self.schedule, self.cv = host, workers, strategies, schedule, cv
        self.exp, self.options, self.divergence, self.rate_factor, self.ramp = exp, options, divergence, rate_factor, ramp
        self.detector, self.stack = Detector(workers[0].learner.steady), stack
        self.first = host.processes.rank == 0
        self.log = log if self.first else lambda line: None
        self.learner = workers[0].learner
        for worker in workers:
            worker.num_epochs = schedule.num_epochs
        for worker in workers:  # while steps are recorded as CUDA graphs, and after that, no buffer may move
            worker.learner.reserve(max(worker.sampler.training_capacity, cv.capacity))
        self.checkpoints = Checkpoints(exp / "ckpt", options.keep_checkpoints)
        for fabric in host.fabrics:
            fabric.measures_updates = options.measure_updates
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.accepted = workers[0].params.clone()
        self.best = BestModel(self.accepted, self.learner.patience)
        self.last = LastModels(combine)
        self.averages = MovingAverages(ema_decay, self.accepted, len(workers))
        self.seconds_before = 0.0  # spent on this epoch before it was resumed
        self._last_checkpoint = time.perf_counter()
        self._done = self._saved = (-1, 0)  # what was done at the last checkpoint, and that checkpoint's moment
        self._bar: Progress | None = None
        self._writers: list[Writer] = []
        self.check_stores: Callable[[], None] = lambda: None  # called every few minibatches; what it raises ends the run
        self._losses: dict[int, float] = {}  # a frame, of the epoch so far, by worker, as they were last read
        self._stop = self._enters = False  # whether this process comes into an epoch that has begun

    def run(self) -> None:
        """Train to the schedule's end, from the newest checkpoint if there is one. The workers then have the last accepted model.

        After SIGTERM to any process, all processes write a checkpoint and raise Terminated.
        """
        before = signal.signal(signal.SIGTERM, self._terminate)
        try:
            self._run()
        except Terminated:
            before = signal.SIG_IGN  # ignore further ones
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
            self.checkpoints.wait()
            self._let_go()

    def _let_go(self) -> None:
        """Take this trainer out of its workers and its host, so that the memory of both is free when nobody else needs them."""
        for worker in self.workers:
            worker.on_step = lambda: None
            worker.draw_from(iter(()))
        pulse.tell = lambda: None
        for writer in self._writers:
            writer.close()
        self.host.forget()

    def _run(self) -> None:
        self._enters = self.host.guest
        if self._enters:
            self._enter()
        elif not self._resume():
            self.accepted.copy_(self.workers[0].params)
            self._set_model(self.accepted)
            self.averages.start(self.accepted)
            cv = evaluate(self.learner, self.cv, self.host.processes)
            priors = evaluate(self.learner, self.cv, self.host.processes, self.learner.score_priors)["loss"]
            if not math.isfinite(cv["loss"]):
                raise UserError(f"the cross-validation loss is {cv['loss']} before training; "
                                f"{self._unsound() or 'check the start and the features'}.")
            self.schedule.start(cv)
            self.detector.start(priors, cv["loss"])
            self.best.start(cv["loss"], self.accepted, cv.get("wer"))
            self.log(f"before training: cv {described(cv)}; loss of the priors alone {priors:.4f}")
        self._write_history()
        if self.first:
            self._writers = open_writers(self.options.log_to, self.exp, len(self.history))
        for rank, worker in zip(self.host.ranks, self.workers, strict=True):
            worker.on_step = partial(self._on_step, rank, worker)
        pulse.tell = self._told
        self.host.wish, self.host.on_safe_point, self.host.log = self._wish, self._on_safe_point, self.log
        self.host.workers, self.host.cv_frames = self.workers, self.cv.frames
        self.host.state_of, self.host.join, self.host.job_state = self._state_of, self._join, self._job_state
        self.host.stack_workers(self.stack)
        while not self.schedule.finished(self.epoch) and not self.best.ended:
            try:
                self._train_epoch()
            except Diverged as diverged:
                self._go_back(diverged)
        if not any(line["accepted"] for line in self.history):
            raise UserError(f"no epoch made the cross-validation loss fall (it was {self.history[-1]['cv_loss']:.3g} at the end); lower "
                            f"{self.learner.rate_option} (was {self.history[0]['learn_rate']:g}).")
        if self.best.ended and self.best.params is not None:
            self.log(f"WARNING: {self.best.described(self.learner.rate_option)}")
            self.accepted.copy_(self.best.params)
        if self.best.forgets:
            self.log(f"WARNING: {self.best.forgotten(self.learner.rate_option)}")
        bounds = self.detector.bounds
        if bounds.best > bounds.priors:
            self.log(f"WARNING: the cross-validation loss, {bounds.best:.3g}, is still above that of the priors alone, {bounds.priors:.3g}")
        if self.last.count > 1:
            self._combine()
        elif self.averages and not self.best.ended:
            self.accepted.copy_(self.averages.accepted)
        self._set_model(self.accepted)

    def _combine(self) -> None:
        """Take the best mean of the last models in place of the last one."""
        def loss(params: torch.Tensor) -> float:
            self._set_model(params)
            return evaluate(self.learner, self.cv, self.host.processes)["loss"]

        number, least, params = self.last.best_mean(loss)
        self.accepted.copy_(params)
        self.log(f"the mean of the last {number} models: cv loss {least:.4f}")

    def _train_epoch(self) -> None:
        """Train one epoch, cross-validate, and let the schedule accept or reject the model."""
        host, schedule, epoch = self.host, self.schedule, self.epoch
        if not self._enters:
            self._agree()  # a resumed run may already have found divergence in this epoch
        self._enters = False
        self._losses.clear()
        for worker in self.workers:
            worker.begin_epoch(epoch, self._rate(), self._rate_within())
        host.begin_epoch()
        # Frames of this epoch before it was resumed.
        frames_before = 0 if host.keeps_time else sum(worker.frames for worker in self._living())
        with Progress(f"epoch {epoch + 1}", sum(worker.sampler.frames for worker in self.workers), "frames") as self._bar:
            if not self.first:
                self._bar.close()
                self._bar = None
            self._show()
            with contextlib.suppress(Abandoned), pulse.stepping():
                host.run([strategy.epoch(worker, fabric)
                          for strategy, worker, fabric in zip(self.strategies, self.workers, host.fabrics, strict=True)])
                for rank, worker in zip(host.living_here(), self._living(), strict=True):
                    self.detector.look(rank, worker, worker.totals.tolist())
        self._agree()
        living = self._living()
        totals = [sum(column) for column in zip(*host.by_rank([worker.totals for worker in living]), strict=True)]
        train = self.learner.metrics(totals)
        frames, new_frames, *spent = host.total([sum(w.frames for w in living), sum(w.frames for w in living) - frames_before,
                                                   *host.spent()])
        heard(sum(w.frames for w in living) - frames_before)
        updates = int(host.largest([float(worker.updates) for worker in self.workers]))
        self.detector.check(EPOCH, train["loss"], updates, int(frames))
        cv = evaluate(self.learner, self.cv, host.processes)
        self.detector.check_held_out(cv["loss"], updates, self.cv.frames, bool(self.workers[0].statistics))
        along = self._along_move(cv["loss"])
        self._average_matrices()
        rate = self._rate(self._end()) * self.workers[0].share
        accepted = schedule.end_epoch(epoch, cv)
        if accepted:
            self.accepted.copy_(self.workers[0].params)
            self.detector.accept(train["loss"], cv["loss"])
            self.best.note(epoch + 1, cv["loss"], self.accepted, cv.get("wer"))
            self.last.note(self.accepted)
            self.averages.accept([rank - host.ranks.start for rank in host.living_here()], host.processes)
        else:
            self._set_model(self.accepted)
            self.averages.go_back()
            for strategy in self.strategies:
                strategy.rejected()
        averaged = self._evaluate_average()
        total = host.elapsed()
        seconds = {name: value / host.processes.size for name, value in zip(TIMES, spent, strict=True)}
        notes = {**host.notes(), **({"backed_off": self.detector.backed_off} if self.detector.backed_off else {})}
        self.history.append({
            "epoch": epoch + 1, "updates": updates, "frames": int(frames), "learn_rate": rate,
            **{f"train_{name}": value for name, value in train.items()}, **{f"cv_{name}": value for name, value in cv.items()},
            **{f"averaged_cv_{name}": value for name, value in averaged.items()}, "accepted": accepted,
            "seconds": {**seconds, "total": total + self.seconds_before},
            "time": host.time, "disagreement": host.disagreement,
            **({} if host.update_cosine is None else {"update_cosine": host.update_cosine}), **along, **notes})
        self._write_history()
        for writer in self._writers:
            writer.write(self.history[-1])
        verdict = "" if accepted else " (rejected)"
        shares = {"compute": "computing", "exchange": "exchanging", "wait": "waiting", "load": "loading"}
        of_average = f", of the moving average {described(averaged)}" if averaged else ""
        several = "" if host.size == 1 else f"; disagreement {host.disagreement:.2g}{_asynchrony(notes)}"
        self.log(f"epoch {epoch + 1}: rate {rate:.3g}, {int(frames)} frames, {described(train)}; cv {described(cv)}{of_average}{verdict}; "
                 f"{total:.1f} s {host.time}, {new_frames / total:.0f} frames/s, "
                 + ", ".join(f"{word} {100 * seconds[name] / total:.0f} %" for name, word in shares.items()
                             if host.size > 1 or name in ("compute", "load")) + several)
        self.epoch += 1
        self.seconds_before = 0.0
        self.detector.forget_epoch()
        self.detector.backed_off = []
        self._on_safe_point(STOP if host.largest([float(self._stop)]) else CHECKPOINT)

    def _along_move(self, loss: float) -> dict[str, float]:
        """The held-out loss L on both sides of the model w, along the move d that the mean made in the epoch's last average.

        Under ma d is the way from w - d to w; under bmuf the filter has moved w further.
        `cv_loss_behind` is L(w - d), `cv_loss_ahead` L(w + d), `move` the length of d, and `sharpness` the second difference of L over its
        square: a mean that lies in a valley between its workers has it large. Empty where there is no such move, or nobody has asked.
        """
        move = self.host.last_move
        if move is None:
            return {}
        model, length = self.workers[0].params.clone(), float(torch.linalg.vector_norm(move))
        losses = []
        for sign in (-1.0, 1.0):
            self._set_model(torch.add(model, move, alpha=sign))
            losses.append(evaluate(self.learner, self.cv, self.host.processes)["loss"])
        self._set_model(model)
        self.host.last_move = None
        return {"cv_loss_behind": losses[0], "cv_loss_ahead": losses[1], "move": length,
                "sharpness": (losses[0] + losses[1] - 2 * loss) / length**2 if length else 0.0}

    def _evaluate_average(self) -> dict[str, float]:
        """The metrics on the held-out data of the moving average; none where there is no average."""
        if not self.averages:
            return {}
        self._set_model(self.averages.accepted)
        found = evaluate(self.learner, self.cv, self.host.processes)
        self._set_model(self.accepted)
        return found

    def _rate(self, fraction: float = 0.0) -> float:
        """The workers' learning rate when this fraction of the epoch is done."""
        factor = 1.0 + (self.rate_factor - 1.0) * fraction if self.ramp and self.epoch == 0 else self.rate_factor
        return factor * self.divergence.back_off_factor**self.detector.tries * self.schedule.learn_rate(self.epoch, fraction)

    def _end(self) -> float:
        """The fraction of the epoch that is done before its last minibatch."""
        return 1.0 - 1.0 / self.workers[0].sampler.minibatches

    def _agree(self) -> None:
        """Raise Diverged in all processes where one has found divergence."""
        self.detector.agree(self.host.processes)

    def _go_back(self, diverged: Diverged) -> None:
        """Go back to the beginning of the epoch and the last accepted model, with a lower rate; or end the run."""
        detector, host, how = self.detector, self.host, self.divergence
        what = detector.described(diverged.finding, self.epoch, host.size)
        if not math.isfinite(diverged.finding.loss) and (unsound := self._unsound()):
            raise UserError(f"{what}; {unsound}.")
        if how.on_divergence == "stop" or detector.tries == how.back_off_tries:
            again = f", for {detector.tries} lower rates too" * bool(detector.tries)
            rate, others = self.schedule.learn_rate(self.epoch, self._end()), self.strategies[0].remedies()
            raise UserError(f"{what}{again}; {remedy(self.learner.rate_option, rate, self.rate_factor, others)}.")
        detector.tries += 1
        detector.forget_epoch()
        host.abandon()
        rate = self._rate(self._end())
        detector.backed_off.append({"why": what, "learn_rate": rate})
        self._set_model(self.accepted)
        self.averages.go_back()
        for worker in self.workers:
            worker.restart()
        self.strategies = [type(strategy)(strategy.options) for strategy in self.strategies]
        self.seconds_before = 0.0
        self.log(f"WARNING: {what}; beginning it again from the last accepted model, with {how.back_off_factor:g} times the rate: "
                 f"{rate:.3g} (try {detector.tries} of {how.back_off_tries})")
        self._done = (-1, 0)
        self._on_safe_point(STOP if host.largest([float(self._stop)]) else CHECKPOINT)

    def _unsound(self) -> str:
        """An utterance that may be why a loss is no number, in words, and what to do about it."""
        found = outlier(self.workers[0].sampler.partition.store) or outlier(self.cv.partition.store)
        return found and f"{found}; look at its audio and make its features again ({FEATURES}), or leave it out"

    def _living(self) -> list[Worker]:
        """This process's workers that have not died."""
        return [self.workers[rank - self.host.ranks.start] for rank in self.host.living_here()]

    def _average_matrices(self) -> None:
        """Average over workers what their optimisers share (NG-SGD's Fisher matrices, where the user asks for it)."""
        for own in zip(*(worker.optimizer.shared_matrices() for worker in self._living()), strict=True):
            total = sum(shared.matrix() for shared in own)
            flat = torch.cat([total.flatten(), total.new_tensor([len(own)])])
            self.host.processes.sum(flat, 1.0)
            for shared in own:
                shared.set_matrix((flat[:-1] / flat[-1]).view_as(total))

    def _set_model(self, params: torch.Tensor) -> None:
        """Set the parameters of all workers of this process."""
        for worker in self.workers:
            worker.params.copy_(params)

    def _on_step(self, rank: int, worker: Worker) -> None:
        """Count a step of a worker, and read its loss from time to time."""
        pulse.steps += 1
        self.averages.follow(rank - self.host.ranks.start, worker.params, worker.updates)
        if worker.index % LOSS_CHECK_INTERVAL == 0:
            self.check_stores()
            totals = worker.totals.tolist()
            self.detector.look(rank, worker, totals)
            self._losses[rank] = loss = worker.learner.metrics(totals)["loss"]
            self._show(f"loss {loss:.3f}")

    def _told(self) -> dict[str, Any]:
        """How far the workers of this process are, for its record; the watch's thread asks for it. Nothing is read from a device."""
        names = range(self.host.ranks.start, self.host.ranks.start + len(self.workers))
        losses = [self._losses.get(rank) for rank in names]
        return {"first": names.start, "epoch": self.epoch + 1, "epochs": self.schedule.num_epochs,
                "minibatches": [worker.index for worker in self.workers],
                "of": [worker.index + worker.remaining for worker in self.workers],
                "losses": [loss if loss is not None and math.isfinite(loss) else None for loss in losses],
                "frames": sum(worker.frames for worker in self.workers), "time": self.host.time, "elapsed": self.host.now(),
                "at": time.monotonic(),
                "seconds": dict(zip(TIMES, self.host.spent_so_far(), strict=True))}

    def _show(self, note: str = "") -> None:
        """Update the progress bar."""
        if self._bar is not None:
            self._bar.update(sum(worker.frames for worker in self.workers) - self._bar.count, note)

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        """Note that SIGTERM has come."""
        self._stop = pulse.terminating = True

    def _wish(self) -> int:
        """What this process wants at the next safe point."""
        if self._stop:
            return STOP
        if self.detector.found:
            return GIVE_UP
        return CHECKPOINT if time.perf_counter() - self._last_checkpoint > 60.0 * self.options.checkpoint_minutes else GO_ON

    def _on_safe_point(self, wish: int) -> None:
        """Do what is wanted, when all workers of the job are at a safe point and some process wants more than to go on."""
        if wish == GIVE_UP:
            raise Abandoned
        within = any(worker.epoch == self.epoch and worker.index for worker in self.workers)
        self._save(self.seconds_before + self.host.elapsed() if within and not self.host.keeps_time else 0.0)
        if wish == STOP:
            self.checkpoints.wait()
            self.host.processes.barrier()
            raise Terminated

    def _save(self, seconds: float) -> None:
        """Write a checkpoint, unless nothing was done since the last one."""
        done = int(self.host.largest([float(worker.updates) for worker in self._living()])), self.epoch
        self._last_checkpoint = time.perf_counter()
        if done == self._done:
            return  # nothing was done since then: asynchronous workers may rest twice at the same update of the fastest one
        self._done = done
        # Later than the last checkpoint, also when the fastest worker has died.
        self._saved = moment = max(done[0], self._saved[0] + 1), self.epoch
        parts = {rank: {**self._state_of(rank), "detector": self.detector.worker_state(rank)} for rank in self.host.living_here()}
        if self.first:
            parts[TRAINER] = self.state_dict(seconds)
        self.checkpoints.save(moment, parts, len(self.host.living))

    def _state_of(self, rank: int) -> dict[str, Any]:
        """The states of a worker of this process, and of its strategy."""
        index = rank - self.host.ranks.start
        return {"worker": self.workers[index].state_dict(), "strategy": self.strategies[index].state_dict(),
                **self.averages.state_of(index)}

    def _join(self, rank: int, state: dict[str, Any]) -> Coroutine[Any, Any, None]:
        """Make a worker of this process join an elastic job within an epoch, with the states of another worker; its work in the epoch."""
        index = rank - self.host.ranks.start
        worker, strategy, state = self.workers[index], self.strategies[index], copied(state)
        worker.join(state["worker"])
        strategy.join(state["strategy"])
        self.detector.forget_worker(rank)
        self.averages.load(index, {"average": self.averages.accepted})
        worker.begin_epoch(self.epoch, self._rate(), self._rate_within())
        return strategy.epoch(worker, self.host.fabrics[index])

    def _job_state(self) -> dict[str, Any]:
        """What a process has to know to come into an elastic job, beside the states of a worker and its strategy."""
        return {"trainer": self.state_dict(), "checkpoints": [self._done, self._saved]}

    def _enter(self) -> None:
        """Come into an elastic job, in the place of a process that has died."""
        state = self.host.enter()
        self.load_state_dict(state["trainer"])
        self.host.load_state_dict(state["trainer"]["host"])
        self._done, self._saved = ((moment[0], moment[1]) for moment in state["checkpoints"])
        for worker, strategy in zip(self.workers, self.strategies, strict=True):
            worker.join(state["worker"])
            strategy.join(copied(state["strategy"]))

    def _rate_within(self) -> Callable[[float], float] | None:
        """The rate by the fraction of this epoch that is done, where it moves within it."""
        return self._rate if self.schedule.moves_within(self.epoch) or (self.ramp and self.epoch == 0) else None

    def _resume(self) -> bool:
        """Load the newest checkpoint that is complete for all processes. Returns False where there is none."""
        candidates = sorted(self.checkpoints.files())
        while True:
            proposal = (candidates.pop() if candidates else (-1, 0)) if self.first else (0, 0)
            updates, epoch = (int(value) for value in self.host.processes.control(proposal))
            moment = updates, epoch
            if moment[0] < 0:
                return False
            state = self.checkpoints.load(moment, TRAINER)
            living = state["living"] if state is not None else []
            rejoin = self.host.elastic is not None and not self.host.keeps_dead  # the dead ones are replaced
            same = state is not None and state["workers"] == self.host.size and (len(living) == self.host.size or self.host.keeps_dead
                                                                                  or rejoin)
            wanted = [rank for rank in living if rank in self.host.ranks or not same]
            if same and rejoin and not wanted:
                wanted = living[:1]
            parts = [part for part in (self.checkpoints.load(moment, rank) for rank in wanted) if part is not None]
            whole = state is not None and len(parts) == len(wanted)
            if self.host.processes.control([float(whole)])[0] == self.host.processes.size:
                assert state is not None
                if self.first:
                    self.checkpoints.forget_after(moment)
                self._saved = moment
                path = self.checkpoints.file(moment, TRAINER)
                try:
                    self._go_on_at(state, dict(zip(wanted, parts, strict=True)), same)
                except (KeyError, TypeError, AttributeError, ValueError, RuntimeError, Misfit) as error:
                    if isinstance(error, RuntimeError) and out_of_memory_sentence(error):
                        raise
                    raise UserError(f"{path} does not fit this training ({reason(error)}); remove {path.parent} to begin again.") from error
                return True

    def _go_on_at(self, state: dict[str, Any], parts: dict[int, dict[str, Any]], same: bool) -> None:
        """Take over a checkpoint: the trainer's state, and those of workers, by rank; `same`: of as many workers as there are now."""
        same_form(state["schedule"], self.schedule.state_dict(), "the schedule")
        self.load_state_dict(state)
        if not same:
            self._go_on_from([part["worker"] for part in parts.values()])
            return
        for rank, worker, strategy in zip(self.host.ranks, self.workers, self.strategies, strict=True):
            if rank in parts:
                worker.load_state_dict(parts[rank]["worker"])
                strategy.load_state_dict(parts[rank]["strategy"])
                self.detector.load_worker_state(rank, parts[rank]["detector"])
                self.averages.load(rank - self.host.ranks.start, parts[rank])
            elif not self.host.keeps_dead:
                some = next(iter(parts.values()))
                worker.join(some["worker"])
                strategy.join(copied(some["strategy"]))
        self.host.load_state_dict(state["host"])
        self.log(f"resuming at epoch {self.epoch + 1}, update {self.workers[0].updates}")

    def _go_on_from(self, saved: list[dict[str, Any]]) -> None:
        """Go on from a checkpoint with another number of workers: from the mean of their models; all their other state is reset."""
        weights = [max(state["frames"], 1) for state in saved]
        mean = sum(state["params"].double() * (weight / sum(weights)) for state, weight in zip(saved, weights, strict=True))
        self._set_model(mean.to(self.accepted.dtype).to(self.accepted.device))
        for worker in self.workers:
            worker.updates = max(state["updates"] for state in saved)
        self.seconds_before = 0.0
        self.log(f"resuming at the beginning of epoch {self.epoch + 1} with {self.host.size} workers from the mean of {len(saved)} "
                 "workers' models; reset: the place in the epoch, momentum, Fisher matrices, the strategy's state")

    def _write_history(self) -> None:
        if self.first:
            write_history(self.exp, self.history)

    def state_dict(self, seconds: float = 0.0) -> dict[str, Any]:
        """What a checkpoint has to hold of the trainer. `seconds`: the time spent on this epoch."""
        return {"workers": self.host.size, "living": list(self.host.living), "epoch": self.epoch, "history": json.dumps(self.history),
                "accepted": self.accepted, "seconds": seconds, "schedule": self.schedule.state_dict(), "host": self.host.state_dict(),
                "divergence": self.detector.state_dict(), "best": self.best.state_dict(), "last": self.last.state_dict(),
                "average": self.averages.accepted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.history, self.seconds_before = state["epoch"], json.loads(state["history"]), state["seconds"]
        self.accepted.copy_(state["accepted"])
        self.schedule.load_state_dict(state["schedule"])
        self.detector.load_state_dict(state["divergence"])
        self.best.load_state_dict(state["best"])
        self.last.load_state_dict(state["last"])
        self.averages.start(state["average"])
