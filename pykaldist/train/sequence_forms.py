"""Kaldi's command lines of nnet1's steps/nnet/train_mpe.sh and train_mmi.sh, in the words of this project.

The network of <src> goes on from where it is, with its own feature transform and class counts, on a store of <data> with the reference
alignments <ali>. Defaults are Kaldi's: four iterations over the data, an utterance an update, SGD at a rate of 0.00001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.options import numbers
from pykaldist.train.kaldi_forms import Words, content_of, shape_of, split, truth

_ARGUMENTS = ("<data>", "<lang>", "<src>", "<ali>", "<denlats>", "<exp>")
SEQUENCE_ARGUMENTS = {"train_mpe": _ARGUMENTS, "train_mmi": _ARGUMENTS}
NEEDLESS = ("verbose", "skip_cuda_check", "parallel_opts", "max_silence_frames")
RECURRENT = ("lstm", "blstm")


@dataclass
class SequenceForm:
    """A command line in the project's words: options of `pykaldist pack`, `pack-lattices` and `train`; `arguments`: what is no option."""

    arguments: list[Path]
    pack: dict[str, str] = field(default_factory=dict)
    lattices: dict[str, str] = field(default_factory=dict)
    job: dict[str, str] = field(default_factory=dict)


def read_sequence_form(stage: str, words: Sequence[str]) -> SequenceForm:
    """Read the command line of a stage, `train_mpe` or `train_mmi`. Raises UserError where it has no meaning."""
    options, arguments = split(words)
    if len(arguments) != len(SEQUENCE_ARGUMENTS[stage]):
        raise UserError(f"expected {' '.join(SEQUENCE_ARGUMENTS[stage])}, found {len(arguments)} arguments.")
    form, given = SequenceForm([Path(a) for a in arguments]), Words(stage, options)
    src = form.arguments[2]
    for name in NEEDLESS:
        given.take(name)
    given.refuse("ivector", "i-vectors are not appended to features here; leave it out.")
    given.refuse("stage", "a training that is run again goes on where it was; leave it out.", ("", "0"))
    form.pack = {"cmvn_opts": content_of(src / "cmvn_opts", "--norm-means=false", "--norm-means=true"),
                 "delta_opts": content_of(src / "delta_opts", "--delta-order=0", "--delta-order=2"),
                 "cv_percent": given.take("cv_percent", "10")}
    if phones := given.take("unkphonelist"):
        form.lattices["unkphonelist"] = phones
    if truth(given.take("add_reference", "false"), "add-reference"):
        form.lattices["reference_data"] = str(form.arguments[0])
    nnet = Path(given.take("nnet") or src / "final.nnet")
    transform = src / "final.feature_transform"
    for path in (nnet, transform, src / "ali_train_pdf.counts"):
        if not path.is_file():
            raise UserError(f"{path} does not exist; train the network with steps/nnet/train.sh, which writes it for networks that nnet1 "
                            "can hold.")
    (rate,), (factor,) = (numbers(name, given.take(name.replace("-", "_"), default))[:1] for name, default in
                          (("learn-rate", "0.00001"), ("halving-factor", "1.0")))
    rates = ",".join(f"{rate * factor**i:g}" for i in range(given.number("num_iters", "4")))
    if not rates:
        raise UserError("--num-iters 0: expected 1 or more.")
    seed = given.take("seed", "777")
    smbr = stage == "train_mpe" and truth(given.take("do_smbr", "true"), "do-smbr")
    form.job = shape_of(nnet, 1) | {
        "objective": "mmi" if stage == "train_mmi" else "smbr" if smbr else "mpe", "nnet_init": str(nnet),
        "feature_transform": str(transform), "class_frame_counts": str(src / "ali_train_pdf.counts"),
        "denlats": str(form.arguments[-1] / "denlats"), "schedule": "fixed", "learn_rates": rates, "seed": seed, "randomizer_seed": seed}
    if form.job["nnet"] in RECURRENT:
        form.job |= {"sequences": "whole", "num_streams": given.take("num_streams", "1")}
    if gpu := given.take("use_gpu"):
        form.job["device"] = {"yes": "cuda", "no": "cpu"}.get(gpu, "auto")
    form.job |= given.rest
    return form
