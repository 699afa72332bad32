"""The command line of Kaldi's steps/nnet3/chain/train.py, in the words of this project.

The data is prepared first (`chain_preparation.py`), then `pykaldist train --objective chain` trains on it. Jobs are workers: as many as
--trainer.optimization.num-jobs-final says, which average their models after --trainer.frames-per-iter frames each, unless options of
`pykaldist train` (--ngpu, --strategy ...) that stand beside Kaldi's say otherwise. An epoch of Kaldi's has every frame shift, and so is
--chain.frame-subsampling-factor epochs of the trainer. Defaults are Kaldi's. What the trainer has no meaning for raises UserError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.frames.chunk_widths import parse_widths
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions
from pykaldist.options import boolean
from pykaldist.train.chain_preparation import PreparationOptions
from pykaldist.train.kaldi_forms import Words, embedded, split

FOLDERS = ("feat_dir", "tree_dir", "lat_dir", "dir")
# About examples on disk, models on the way, mails and recurrent networks, none of which are here; and steps of the script.
NEEDLESS = (
    "cmd", "stage", "exit_stage", "cleanup", "cleanup.remove_egs", "cleanup.preserve_model_interval", "reporting.email",
    "reporting.interval", "egs.cmd", "egs.nj", "egs.stage", "chain.left_deriv_truncate", "trainer.samples_per_iter",
    "trainer.shuffle_buffer_size", "trainer.deriv_truncate_margin", "trainer.lda.rand_prune", "trainer.lda.max_lda_jobs",
    "trainer.presoftmax_prior_scale_power", "trainer.compute_per_dim_accuracy", "trainer.optimization.shrink_value",
    "trainer.optimization.shrink_saturation_threshold", "trainer.optimization.max_objective_evaluations",
    "trainer.optimization.combine_sum_to_one_penalty", "trainer.optimization.num_jobs_step",
    "trainer.optimization.backstitch_training_interval")
GPU = {"yes": "auto", "true": "auto", "wait": "auto", "no": "cpu", "false": "cpu"}
COMBINED_SHARE = 0.25  # of an average run's epochs, at most, of which models are combined
MEMORY = "--optimization.memory-compression-level"


@dataclass
class ChainForm:
    """A command line in the project's words.

    `ali_dir` has lattices or an alignment; `job` are options of `pykaldist train`, `notes` what is not just as in Kaldi.
    """

    data: Path
    tree_dir: Path
    ali_dir: Path
    lattices: bool
    exp: Path
    preparation: PreparationOptions
    phone_lm: PhoneLmOptions
    job: dict[str, str]
    notes: list[str] = field(default_factory=list)


def minibatch_size(rule: str, width: int) -> int:
    """The number of chunks in a minibatch by a rule: `128`; `128,64`, the largest; `150=128,64/300=64`, that of the nearest to `width`."""
    try:
        sizes = {}
        for part in rule.split("/"):
            of, equals, numbers = part.rpartition("=")
            sizes[int(of) if equals else width] = max(int(number) for text in numbers.split(",") for number in text.split(":"))
        found = sizes[min(sizes, key=lambda other: abs(other - width))]
    except ValueError as error:
        raise UserError(f"--trainer.num-chunk-per-minibatch {rule}: expected a number, as 128, some, as 128,64, or rules, as "
                        "150=128,64/300=64.") from error
    if found < 1:
        raise UserError(f"--trainer.num-chunk-per-minibatch {rule}: expected at least one chunk.")
    return found


def _real(given: Words, name: str, default: str) -> float:
    text = given.take(name, default)
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"--{name.replace('_', '-')} {text}: expected a number.") from error


def _egs_options(text: str, form_notes: list[str]) -> int:
    """Read --egs.opts; returns the number of utterances to hold out (0: as many as by default)."""
    given = embedded("--egs.opts", text)
    given.refuse("frames_overlap_per_eg", "chunks overlap only where an utterance needs it; leave it at 0.", ("", "0"))
    given.refuse("online_cmvn", "CMVN of what was heard so far is not made here.", ("", "false"))
    if given.take("constrained") == "false":
        form_notes.append("--egs.opts --constrained false: numerators keep the times of the alignment, within the tolerances")
    for name in ("generate_egs_scp", "max_shuffle_jobs_run", "num_train_egs_combine", "num_valid_egs_combine"):
        given.take(name)
    held_out = given.number("num_utts_subset", "0")
    given.done()
    return held_out


def _phone_lm(text: str) -> PhoneLmOptions:
    """Read --chain.lm-opts; the default number of states is Kaldi's of this script."""
    given = embedded("--chain.lm-opts", text)
    options = PhoneLmOptions(given.number("ngram_order", "4"), given.number("no_prune_ngram_order", "3"),
                             given.number("num_extra_lm_states", "1000"))
    given.done()
    return options


def read_chain_form(words: Sequence[str]) -> ChainForm:
    """Read the command line of steps/nnet3/chain/train.py."""
    options, arguments = split(words)
    if arguments:
        raise UserError(f"expected options alone, found {arguments[0]!r}.")
    given, notes = Words("train.py", options), list[str]()
    missing = [name for name in FOLDERS if not options.get(name)]
    if missing:
        raise UserError(f"--{missing[0].replace('_', '-')} is needed.")
    data, tree_dir, lat_dir, exp = (Path(given.take(name)) for name in FOLDERS)
    for name in NEEDLESS:
        given.take(name)
    factor = given.number("chain.frame_subsampling_factor", "3")
    widths = given.take("egs.chunk_width", "20")
    preparation = PreparationOptions(
        left_tolerance=given.number("chain.left_tolerance", "5"), right_tolerance=given.number("chain.right_tolerance", "5"),
        frame_subsampling_factor=factor, chunk_width=widths, cmvn_opts=given.take("feat.cmvn_opts", "--norm-means=false --norm-vars=false"),
        alignment_subsampling_factor=given.number("chain.alignment_subsampling_factor", "3"),
        cv_utts=_egs_options(given.take("egs.opts"), notes), online_ivector_dir=given.take("feat.online_ivector_dir"),
        srand=given.number("trainer.srand", "0"))
    phone_lm = _phone_lm(given.take("chain.lm_opts"))
    given.refuse("egs.dir", "chunks are cut from the frame store, and there are no examples on disk; leave it out.")
    for name in ("egs.chunk_left_context", "egs.chunk_right_context", "egs.chunk_left_context_initial", "egs.chunk_right_context_final"):
        given.refuse(name, "context beyond the network's own is for recurrent networks, which are not trained here; leave it at 0.",
                     ("", "0", "-1"))
    given.refuse("trainer.optimization.proportional_shrink", "parameters are not shrunk here; give layers an l2-regularize.",
                 ("", "0", "0.0"))
    given.refuse("trainer.optimization.backstitch_training_scale", "backstitch is not here; leave it at 0.", ("", "0", "0.0"))
    given.refuse("chain_opts", "options of Kaldi's programs have no meaning here; leave it out.")
    if not given.take("trainer.add_option", MEMORY).startswith(MEMORY):
        raise UserError(f"--trainer.add-option {options['trainer.add_option']} has no meaning here; leave it out.")
    first = given.number("trainer.optimization.num_jobs_initial", "1")
    job = _job(given, exp, preparation)
    if first != int(job["ngpu"]) > 1:
        notes.append(f"--trainer.optimization.num-jobs-initial {first}: all {job['ngpu']} workers train from the beginning")
    lattices = (lat_dir / "lat.1.gz").is_file()
    ali_dir = lat_dir
    if not lattices and not (lat_dir / "ali.1.gz").is_file():
        ali_dir = tree_dir
        notes.append(f"--lat-dir {lat_dir} has neither lat.*.gz nor ali.*.gz: numerators are made of the alignment of {tree_dir}, at the "
                     "frame rate of the outputs")
    own = {name.replace("_", "-"): value for name, value in given.rest.items()}
    return ChainForm(data, tree_dir, ali_dir, lattices, exp, preparation, phone_lm, {**job, **own}, notes)


def _job(given: Words, exp: Path, preparation: PreparationOptions) -> dict[str, str]:
    """The options of `pykaldist train`."""
    width = parse_widths(preparation.chunk_width, preparation.frame_subsampling_factor)[0]
    workers = int(given.rest.get("ngpu") or given.number("trainer.optimization.num_jobs_final", "8"))
    given.take("trainer.optimization.num_jobs_final")
    frames = given.number("trainer.frames_per_iter", "800000")
    strategy = given.rest.get("strategy", "ma" if workers > 1 else "local")
    gpu = given.take("use_gpu", "yes")
    if gpu not in GPU:
        raise UserError(f"--use-gpu {gpu}: expected {', '.join(GPU)}.")
    epochs = max(1, round(_real(given, "trainer.num_epochs", "10") * preparation.frame_subsampling_factor))
    combined = min(given.number("trainer.optimization.max_models_combine", "20"), max(1, round(COMBINED_SHARE * epochs)))
    if not boolean(given.take("trainer.optimization.do_final_combination", "true")):
        combined = 1
    job = {
        "objective": "chain", "optimizer": "nnet3", "schedule": "exponential", "decay-within": "true",
        "ngpu": str(workers), "strategy": strategy, "device": GPU[gpu],
        "initial-model": given.take("trainer.input_model") or str(exp / "0.raw"),
        "num-epochs": str(epochs), "combine-models": str(combined),
        "learn-rate": given.take("trainer.optimization.initial_effective_lrate", "0.0002"),
        "final-learn-rate": given.take("trainer.optimization.final_effective_lrate", "0.00002"),
        "momentum": given.take("trainer.optimization.momentum", "0.0"),
        "max-param-change": given.take("trainer.max_param_change", "2.0"),
        "num-chunk-per-minibatch": str(minibatch_size(given.take("trainer.num_chunk_per_minibatch", "128"), width)),
        "leaky-hmm-coefficient": given.take("chain.leaky_hmm_coefficient", "0.00001"),
        "l2-regularize": given.take("chain.l2_regularize", "0.0"), "xent-regularize": given.take("chain.xent_regularize", "0.0"),
        "apply-deriv-weights": given.take("chain.apply_deriv_weights", "true"),
        "randomizer-seed": str(preparation.srand)}
    if schedule := given.take("trainer.dropout_schedule"):
        job["dropout-schedule"] = schedule
    if strategy == "ma":
        period = {} if "average_period" in given.rest else {"average-frames": str(frames)}
        job |= {**period, "l2-regularize-factor": repr(1.0 / workers)}
    return job
