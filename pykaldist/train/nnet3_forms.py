"""The command lines of Kaldi's scripts that train nnet3 networks, in our words: what all have, and train_dnn.py, train_rnn.py.

Jobs are workers, as `chain_forms.py` says. Of these an epoch has every frame once, as one of the trainer has. Defaults are Kaldi's.
What the trainer has no meaning for raises UserError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.io.datadir import DataDir
from pykaldist.io.durations import utt2num_frames
from pykaldist.nnet.nnet3_learner import parse_dropout_schedule
from pykaldist.optim.nnet3 import Nnet3Options
from pykaldist.options import boolean
from pykaldist.parallel.launch.job import LR_SCALES
from pykaldist.parallel.strategies.base.growth import growing
from pykaldist.parallel.strategies.base.registry import make_strategy
from pykaldist.train.kaldi_forms import Words, embedded, split

# About examples on disk, models on the way and mails, none of which are here, and steps of the script.
NEEDLESS = (
    "cmd", "stage", "exit_stage", "cleanup", "cleanup.remove_egs", "cleanup.preserve_model_interval", "reporting.email",
    "reporting.interval", "egs.cmd", "egs.nj", "egs.stage", "chain.left_deriv_truncate", "trainer.shuffle_buffer_size",
    "trainer.lda.rand_prune", "trainer.lda.max_lda_jobs",
    "trainer.presoftmax_prior_scale_power", "trainer.compute_per_dim_accuracy", "trainer.optimization.shrink_saturation_threshold",
    "trainer.optimization.max_objective_evaluations",
    "trainer.optimization.combine_sum_to_one_penalty", "trainer.optimization.num_jobs_step",
    "trainer.optimization.backstitch_training_interval")
GPU = {"yes": "auto", "true": "auto", "wait": "auto", "no": "cpu", "false": "cpu"}
COMBINED_SHARE = 0.25  # of an average run's epochs, at most, of which models are combined
MEMORY = "--optimization.memory-compression-level"

EDGES = ("chunk_left_context_initial", "chunk_right_context_final")
FRAMES, CHUNKS = "train_dnn", "train_rnn"  # the scripts of cross-entropy
OF_CHUNKS = {"egs.chunk_left_context": "40", "trainer.deriv_truncate_margin": "8", "trainer.optimization.momentum": "0.5",
             "trainer.optimization.shrink_value": "0.99"}  # defaults of train_rnn.py
FOLDERS = ("feat_dir", "ali_dir", "lang", "dir")


def real(given: Words, name: str, default: str) -> float:
    """Take an option that is a number."""
    text = given.take(name, default)
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"--{name.replace('_', '-')} {text}: expected a number.") from error


def take_common(given: Words, options: Mapping[str, str]) -> None:
    """Take the options that change nothing here; raises UserError for those of all scripts that have no meaning."""
    for name in NEEDLESS:
        given.take(name)
    given.refuse("egs.dir", "chunks are cut from the frame store, and there are no examples on disk; leave it out.")
    given.refuse("trainer.optimization.backstitch_training_scale", "backstitch is not here; leave it at 0.", ("", "0", "0.0"))
    if not given.take("trainer.add_option", MEMORY).startswith(MEMORY):
        raise UserError(f"--trainer.add-option {options['trainer.add_option']} has no meaning here; leave it out.")


def frames_of(data: Path) -> int:
    """How many frames the utterances of a data directory have."""
    return sum(utt2num_frames(DataDir(data)).values())


def archive_frames(frames: int, most: int, shifts: int = 1) -> int:
    """The frames of one of Kaldi's archives, of `most` of them: all have as many, and there is one more than are full.

    `shifts`: of the frames of an example, an iteration takes one.
    """
    return max(1, frames // (shifts * (frames // (shifts * most) + 1)))


def common_job(given: Words, epochs: int, frames: int, notes: list[str], archive: Callable[[], int],
               most: Callable[[], int] | None = None) -> dict[str, str]:
    """The options of `pykaldist train` that all scripts have; what is not just as in Kaldi goes to `notes`.

    `frames`: those of a worker between two averages of models; `archive` counts those of one of Kaldi's iterations, which are fewer where
    the data do not fill its archives. `most` counts the jobs that the data is enough for; where --ngpu
    or --strategy says that this is not Kaldi's schedule, there is no such bound.
    """
    if not (own := given.rest.get("ngpu") or "1").isdecimal():
        raise UserError(f"--ngpu {own}: expected a whole number.")
    workers = int(given.rest.get("ngpu") or given.number("trainer.optimization.num_jobs_final", "8"))
    first = given.number("trainer.optimization.num_jobs_initial", "1")
    given.take("trainer.optimization.num_jobs_final")
    bound = most() if most is not None and not given.rest.keys() & {"ngpu", "strategy"} else workers
    if bound < workers:
        notes.append(f"--trainer.optimization.num-jobs-final {workers}: {bound} workers train, as the data, in all its frame shifts, makes "
                     f"{bound} archives of up to {frames} frames (--trainer.frames-per-iter); --ngpu {workers} trains with as many all the "
                     "same")
        workers, first = bound, min(first, bound)
    strategy = given.rest.get("strategy", "ma" if workers > 1 else "local")
    gpu = given.take("use_gpu", "yes")
    if gpu not in GPU:
        raise UserError(f"--use-gpu {gpu}: expected {', '.join(GPU)}.")
    combined = min(given.number("trainer.optimization.max_models_combine", "20"), max(1, round(COMBINED_SHARE * epochs)))
    if not boolean(given.take("trainer.optimization.do_final_combination", "true")):
        combined = 1
    job = {"optimizer": "nnet3", "schedule": "exponential", "decay-within": "true", "ngpu": str(workers), "strategy": strategy,
           "device": GPU[gpu], "num-epochs": str(epochs), "combine-models": str(combined),
           "momentum": given.take("trainer.optimization.momentum", "0.0"),
           "max-param-change": given.take("trainer.max_param_change", "2.0"), **_recurrent(given, notes)}
    if schedule := given.take("trainer.dropout_schedule"):
        parse_dropout_schedule(schedule)  # before data is prepared
        job["dropout-schedule"] = schedule
    if strategy in ("ma", "kaldi"):
        period = {} if "average_period" in given.rest else {"average-frames": str(frames)}
        job |= {**period, "l2-regularize-factor": repr(1.0 / workers)}
    if shrink := real(given, "trainer.optimization.proportional_shrink", "0"):
        job |= {"proportional-shrink": repr(shrink), "shrink-frames": str(archive())}
    if strategy in ("ma", "kaldi") and 0 < first < workers:
        job["initial-workers"] = str(first)
    elif first != workers > 1:
        notes.append(f"--trainer.optimization.num-jobs-initial {first}: all {workers} workers train from the beginning")
    return job


def check_shrink(job: Mapping[str, str]) -> None:
    """Check, before data is prepared, that parameters do not shrink too much at the highest learning rate of a run.

    Raises UserError where they do, as Kaldi does when it has come to that rate.
    """
    if "proportional-shrink" not in job:
        return
    given, workers = Words("train.py", dict(job)), int(job["ngpu"])
    shrink, first, last = (real(given, name, "0") for name in ("proportional-shrink", "learn-rate", "final-learn-rate"))
    scale = LR_SCALES.get(job.get("lr-scale") or make_strategy(job["strategy"]).lr_scale, float)(workers)
    initial = int(job.get("initial-workers", "0"))
    done = np.linspace(0.0, 1.0, 101)
    training = np.array([growing(initial, workers, share) if initial else scale for share in done.tolist()])
    Nnet3Options(proportional_shrink=shrink).check_shrink(float(np.max(training * first**(1.0 - done) * last**done)))


def _recurrent(given: Words, notes: list[str]) -> dict[str, str]:
    """The options of recurrent networks: what they go through around a chunk, how far derivatives go."""
    job = {name.replace("_", "-"): value for name in ("chunk_left_context", "chunk_right_context", *EDGES)
           if (value := given.take(f"egs.{name}"))}
    if margin := given.take("trainer.deriv_truncate_margin"):
        job["deriv-truncate-margin"] = margin
    if (value := given.take("trainer.optimization.shrink_value", "1.0")) not in ("1", "1.0"):
        notes.append(f"--trainer.optimization.shrink-value {value}: parameters are not shrunk where gates are saturated; their units are "
                     "repaired alone")
    return job


@dataclass
class FrameForm:
    """A command line of train_dnn.py or train_rnn.py in the project's words: options of `pykaldist pack` and `pykaldist train`, by name.

    `cv_utts`: utterances that are held out, about; 0 for as many as by default. `notes`: what is not just as in Kaldi.
    """

    data: Path
    ali: Path
    lang: Path
    exp: Path
    srand: int
    cv_utts: int
    pack: dict[str, str]
    job: dict[str, str]
    notes: list[str] = field(default_factory=list)


def read_frame_form(words: Sequence[str], script: str = FRAMES, frames: Callable[[Path], int] = frames_of) -> FrameForm:
    """Read the command line of steps/nnet3/train_dnn.py or train_rnn.py.

    `frames`: of --feat-dir, where somebody asks for them.
    """
    options, arguments = split(words)
    if arguments:
        raise UserError(f"expected options alone, found {arguments[0]!r}.")
    given, notes = Words(f"{script}.py", {**(OF_CHUNKS if script == CHUNKS else {}), **options}), list[str]()
    data, ali, lang, exp = (Path(given.take(name)) for name in FOLDERS)
    if missing := [name for name in FOLDERS if not options.get(name)]:
        raise UserError(f"--{missing[0].replace('_', '-')} is needed.")
    take_common(given, options)
    for name in ("trainer.prior_subset_size", "trainer.num_jobs_compute_prior"):
        given.take(name)
    egs = embedded("--egs.opts", given.take("egs.opts"))
    held_out = egs.number("num_utts_subset", "0")
    for name in ("generate_egs_scp", "nj"):
        egs.take(name)
    egs.done()
    pack = {"cmvn-opts": given.take("feat.cmvn_opts", "--norm-means=false --norm-vars=false")}
    if ivectors := given.take("feat.online_ivector_dir"):
        pack["online-ivector-dir"] = ivectors
    srand = given.number("trainer.srand", "0")
    epochs = max(1, round(real(given, "trainer.num_epochs", "8")))
    examples = given.number("egs.frames_per_eg", "8") if script == FRAMES else 1
    minibatches = _frames(given) if script == FRAMES else _chunks(given, notes)
    iteration = given.number("trainer.samples_per_iter", "400000" if script == FRAMES else "20000")
    if not iteration * examples:
        raise UserError("--trainer.samples-per-iter and --egs.frames-per-eg: expected 1 or more.")
    if script == CHUNKS:
        iteration *= int(minibatches["chunk-width"])
    job = {**common_job(given, epochs, iteration, notes, lambda: archive_frames(frames(data), iteration, examples)), "objective": "xent",
           "initial-model": given.take("trainer.input_model") or str(exp / "0.raw"),
           **learning_rates(given, "0.0003", "0.00003"), "randomizer-seed": str(srand), **minibatches}
    for name in EDGES:
        if (value := job.pop(name.replace("_", "-"), "-1")) != "-1" and script == CHUNKS:
            notes.append(f"--egs.{name.replace('_', '-')} {value}: the first and the last chunk of an utterance have frames around them as "
                         "all have, copies of its first or last frame")
    job |= {name.replace("_", "-"): value for name, value in given.rest.items()}
    check_shrink(job)
    return FrameForm(data, ali, lang, exp, srand, held_out, pack, job, notes)


def learning_rates(given: Words, first: str, last: str) -> dict[str, str]:
    """The learning rates at the beginning and at the end, whose defaults are `first` and `last`."""
    names = {"learn-rate": ("trainer.optimization.initial_effective_lrate", first),
             "final-learn-rate": ("trainer.optimization.final_effective_lrate", last)}
    return {name: repr(real(given, *kaldis)) for name, kaldis in names.items()}


def _frames(given: Words) -> dict[str, str]:
    """The options of train_dnn.py about minibatches."""
    name = "trainer.optimization.minibatch_size"
    return {"minibatch-size": str(MinibatchRule(given.take(name, "512"), "--trainer.optimization.minibatch-size").chunks(1))}


def _chunks(given: Words, notes: list[str]) -> dict[str, str]:
    """The options of train_rnn.py about minibatches; an utterance is cut into chunks of the first of several widths."""
    widths = given.take("egs.chunk_width", "20")
    width, _, others = widths.partition(",")
    if not (width.isdecimal() and int(width)):
        raise UserError(f"--egs.chunk-width {widths}: expected frames, as 20, or 40,30,20.")
    if others:
        notes.append(f"--egs.chunk-width {widths}: all chunks have {width} frames; the last one of an utterance begins before the end of "
                     "the one before it, and has no weight there")
    chunks = given.take("trainer.num_chunk_per_minibatch") or given.take("trainer.rnn.num_chunk_per_minibatch", "100")
    for name in ("trainer.rnn.num_chunk_per_minibatch", "egs.samples_per_iter", "egs.cv_chunk_left_context"):
        given.take(name)
    return {"chunk-width": width, "num-chunk-per-minibatch": str(MinibatchRule(chunks, "--trainer.num-chunk-per-minibatch"))}
