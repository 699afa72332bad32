"""The command lines of Kaldi's steps/nnet3/chain/train.py and e2e/train_e2e.py, in the words of this project.

The data is prepared first (`chain_preparation.py`), then `pykaldist train --objective chain` trains on it. Jobs are workers: at first as
many as --trainer.optimization.num-jobs-initial says, in the end as --trainer.optimization.num-jobs-final. They average their models after
--trainer.frames-per-iter frames each, unless options of `pykaldist train` (--ngpu, --strategy ...) that stand beside Kaldi's say otherwise.
Kaldi divides the examples among archives of so many frames, and where there are more jobs than archives times frame shifts it ends with an
error (`num_jobs_final cannot exceed the expanded number of archives`). Here fewer workers train, which is said.
An epoch of Kaldi's has every frame shift, and so is --chain.frame-subsampling-factor epochs of the trainer. Defaults are Kaldi's. What the
trainer has no meaning for raises UserError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.hmm.chain.phone_lm import PhoneLmOptions
from pykaldist.train.chain_preparation import PreparationOptions
from pykaldist.train.kaldi_forms import Words, embedded, split
from pykaldist.train.nnet3_forms import archive_frames, check_shrink, common_job, frames_of, learning_rates, real, take_common

FOLDERS = ("feat_dir", "tree_dir", "lat_dir", "dir")
NEEDLESS_OF_EGS = (  # about examples on disk, how many of them diagnostics see, and how they are made
    "generate_egs_scp", "max_shuffle_jobs_run", "max_jobs_run", "nj", "compress", "num_train_egs_combine", "num_valid_egs_combine",
    "num_egs_diagnostic")
TRAIN, FLAT_START = "train", "train_e2e"  # the scripts


@dataclass
class ChainForm:
    """A command line in the project's words.

    `ali_dir` has lattices or an alignment, or is None: transcripts alone are given. `job` are options of `pykaldist train`, `notes` what is
    not just as in Kaldi.
    """

    data: Path
    tree_dir: Path
    ali_dir: Path | None
    lattices: bool
    exp: Path
    preparation: PreparationOptions
    phone_lm: PhoneLmOptions
    job: dict[str, str]
    notes: list[str] = field(default_factory=list)


@dataclass
class _EgsOptions:
    """What --egs.opts says: utterances to hold out (0: as many as by default), whether CMVN is online, and the share of lattices' costs."""

    held_out: int
    online_cmvn: bool
    lattice_lm_scale: float


def _egs_options(text: str, form_notes: list[str]) -> _EgsOptions:
    """Read --egs.opts."""
    given = embedded("--egs.opts", text)
    given.refuse("frames_overlap_per_eg", "chunks overlap only where an utterance needs it; leave it at 0.", ("", "0"))
    online_cmvn = given.take("online_cmvn", "false")
    if online_cmvn not in ("true", "false"):
        raise UserError(f"--egs.opts: --online-cmvn {online_cmvn}: expected true or false.")
    if given.take("constrained") == "false":
        form_notes.append("--egs.opts --constrained false: numerators keep the times of the alignment, within the tolerances")
    given.refuse("normalize_egs", "numerators have the denominator's costs here; leave it at true.", ("", "true"))
    given.refuse("lattice_prune_beam", "prune the lattices before (lattice-prune), and leave it out.")
    for name in NEEDLESS_OF_EGS:
        given.take(name)
    found = _EgsOptions(given.number("num_utts_subset", "0"), online_cmvn == "true", real(given, "lattice_lm_scale", "0"))
    given.done()
    return found


def _phone_lm(text: str) -> PhoneLmOptions:
    """Read --chain.lm-opts; the default number of states is Kaldi's of this script."""
    given = embedded("--chain.lm-opts", text)
    options = PhoneLmOptions(given.number("ngram_order", "4"), given.number("no_prune_ngram_order", "3"),
                             given.number("num_extra_lm_states", "1000"))
    given.done()
    return options


def read_chain_form(words: Sequence[str], script: str = TRAIN, frames: Callable[[Path], int] = frames_of) -> ChainForm:
    """Read the command line of steps/nnet3/chain/train.py, or of e2e/train_e2e.py, which has transcripts in place of --lat-dir.

    `frames`: of --feat-dir, which is asked for them alone.
    """
    options, arguments = split(words)
    if arguments:
        raise UserError(f"expected options alone, found {arguments[0]!r}.")
    given, notes = Words(f"{script}.py", options), list[str]()
    folders = {name: Path(given.take(name)) for name in FOLDERS if script == TRAIN or name != "lat_dir"}
    missing = [name for name, path in folders.items() if not options.get(name)]
    if missing:
        raise UserError(f"--{missing[0].replace('_', '-')} is needed.")
    data, tree_dir, exp = folders["feat_dir"], folders["tree_dir"], folders["dir"]
    take_common(given, options)
    given.take("trainer.samples_per_iter")
    if script == FLAT_START:
        given.take("egs.chunk_width")  # an utterance is a chunk
    preparation = _preparation(given, notes)
    phone_lm = _phone_lm(given.take("chain.lm_opts"))
    given.refuse("chain_opts", "options of Kaldi's programs have no meaning here; leave it out.")
    job = _job(given, lambda: frames(data), exp, preparation, notes)
    ali_dir, lattices = _numerators(folders["lat_dir"], tree_dir, notes) if script == TRAIN else (None, False)
    if preparation.lm_scale and not lattices:
        raise UserError(f"--egs.opts: --lattice-lm-scale {preparation.lm_scale:g} is of lattices, and there are none in "
                        f"{folders.get('lat_dir', tree_dir)}; leave it out, or make some (steps/align_fmllr_lats.sh).")
    job |= {name.replace("_", "-"): value for name, value in given.rest.items()}
    check_shrink(job)
    return ChainForm(data, tree_dir, ali_dir, lattices, exp, preparation, phone_lm, job, notes)


def _preparation(given: Words, notes: list[str]) -> PreparationOptions:
    """The options of the preparation of the data."""
    egs = _egs_options(given.take("egs.opts"), notes)
    return PreparationOptions(
        left_tolerance=given.number("chain.left_tolerance", "5"), right_tolerance=given.number("chain.right_tolerance", "5"),
        frame_subsampling_factor=given.number("chain.frame_subsampling_factor", "3"), chunk_width=given.take("egs.chunk_width", "20"),
        cmvn_opts=given.take("feat.cmvn_opts", "--norm-means=false --norm-vars=false"),
        alignment_subsampling_factor=given.number("chain.alignment_subsampling_factor", "3"),
        cv_utts=egs.held_out, online_cmvn=egs.online_cmvn, lm_scale=egs.lattice_lm_scale,
        online_ivector_dir=given.take("feat.online_ivector_dir"), srand=given.number("trainer.srand", "0"))


def _numerators(lat_dir: Path, tree_dir: Path, notes: list[str]) -> tuple[Path, bool]:
    """(the folder that numerators are made of, whether it has lattices)."""
    if not lat_dir.is_dir():
        raise UserError(f"--lat-dir {lat_dir} does not exist; name a directory of lattices (steps/align_fmllr_lats.sh), of an alignment "
                        "(steps/align_fmllr.sh), or the tree's.")
    lattices = (lat_dir / "lat.1.gz").is_file()
    if lattices or (lat_dir / "ali.1.gz").is_file():
        return lat_dir, lattices
    notes.append(f"--lat-dir {lat_dir} has neither lat.*.gz nor ali.*.gz: numerators are made of the alignment of {tree_dir}, at the "
                 "frame rate of the outputs")
    return tree_dir, False


def _job(given: Words, frames: Callable[[], int], exp: Path, preparation: PreparationOptions, notes: list[str]) -> dict[str, str]:
    """The options of `pykaldist train`; what is not just as in Kaldi goes to `notes`."""
    iteration, shifts = given.number("trainer.frames_per_iter", "800000"), preparation.frame_subsampling_factor
    if not iteration:
        raise UserError("--trainer.frames-per-iter 0: expected at least one frame.")
    rule = MinibatchRule(given.take("trainer.num_chunk_per_minibatch", "128"), "--trainer.num-chunk-per-minibatch")
    epochs = max(1, round(real(given, "trainer.num_epochs", "10") * shifts))
    return {
        **common_job(given, epochs, iteration, notes, lambda: archive_frames(frames(), iteration),
                     lambda: (frames() // iteration + 1) * shifts), "objective": "chain",
        "initial-model": given.take("trainer.input_model") or str(exp / "0.raw"),
        **learning_rates(given, "0.0002", "0.00002"),
        "num-chunk-per-minibatch": str(rule),
        "leaky-hmm-coefficient": given.take("chain.leaky_hmm_coefficient", "0.00001"),
        "l2-regularize": given.take("chain.l2_regularize", "0.0"), "xent-regularize": given.take("chain.xent_regularize", "0.0"),
        "apply-deriv-weights": given.take("chain.apply_deriv_weights", "true"), "randomizer-seed": str(preparation.srand)}
