"""Features through a network, nnet1's or a final.pt: the program nnet-forward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.io.archive import read_value
from pykaldist.io.table_streams import TableWriter, is_table, read_table, write_value
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.nnet.priors import PRIOR_FLOOR, log_priors, read_counts
from pykaldist.programs.devices import device_of
from pykaldist.progress import progress


def nnet_forward(model: str, feats: str, output: str, *, feature_transform: str = "", class_frame_counts: str = "",
                 prior_scale: float = 1.0, prior_floor: float = PRIOR_FLOOR, apply_log: bool = False, no_softmax: bool = False,
                 bottleneck: bool = False, use_gpu: str = "", forward: str = "whole", forward_chunk: str = "",
                 forward_overlap: int = 32, device: str = "auto", dtype: str = "float32") -> None:
    """Forward features through a network.

    The network is of nnet1, or a final.pt, which has its feature transform and counts.

    Usage: nnet-forward [options] <nnet> <feats-rspecifier> <outputs-wspecifier>
    e.g.: nnet-forward --no-softmax=true --class-frame-counts=ali_train_pdf.counts final.nnet ark:feats.ark ark:-

    A plain name is that of an scp file if it ends in .scp, else of an archive; one that is written gets an scp file beside it.

    Options:
      --feature-transform: nnet1 network before the model
      --class-frame-counts: counts of pdfs, for priors (default: no priors)
      --prior-scale: of the log priors that are subtracted (default: 1)
      --prior-floor: pdfs with a lower relative frequency are left out (default: 1e-10)
      --apply-log: output the logarithm (default: false)
      --no-softmax: leave out the last softmax (default: false)
      --bottleneck: stop at the bottleneck, the network's <LinearTransform>, and output its features (default: false)
      --use-gpu: yes, no or optional; yes without a GPU is no, with a warning (default: what --device says)
      --forward: utterances through a bidirectional network: whole, in chunks, or latency-controlled (default: whole)
      --forward-chunk: chunk of --forward=chunks or latency-controlled, as 21-64+21 (default: that of training)
      --forward-overlap: frames by which the chunks of --forward=chunks overlap (default: 32)
      --device: where the network computes: cpu, cuda, cuda:N, or auto: cuda where there is one (default: auto)
      --dtype: float32, bf16 or int8, where the CPU multiplies these (default: float32)
    """
    import torch

    from pykaldist.nnet.kinds import kind_of
    from pykaldist.nnet.load import load_own

    torch.set_num_threads(1)
    if no_softmax and apply_log:
        raise UserError("--no-softmax=true and --apply-log=true exclude each other: what comes before the softmax is a logarithm.")
    if bottleneck and (no_softmax or apply_log or class_frame_counts):
        raise UserError("--no-softmax, --apply-log and --class-frame-counts are for the network's outputs, of which --bottleneck=true "
                        "makes none; leave them out.")
    for name, value, choices in (("forward", forward, ("whole", "chunks", "latency-controlled")),
                                 ("dtype", dtype, ("float32", "bf16", "int8"))):
        if value not in choices:
            raise UserError(f"--{name}={value}: expected {', '.join(choices)}.")
    place = device_of(use_gpu, device)
    options = ForwardOptions(forward, forward_chunk or None, forward_overlap, place, dtype)
    network = load_own(model, place) if Path(model).is_file() else None
    if network is not None and network.counts is not None and not bottleneck and (kind_of(network.options) != "dnn" or dtype != "float32"):
        network.forwarding = options
        if feature_transform:
            raise UserError(f"--feature-transform {feature_transform}: {model} has its own; leave the option out.")
        posteriors = network.log_posteriors
        compute: Callable[[np.ndarray], np.ndarray] = posteriors if no_softmax else lambda x: np.exp(posteriors(x))
        output_dim = network.model.output_dim
    else:
        if forward != "whole":
            raise UserError(f"--forward {forward} is for the outputs of bidirectional networks in a final.pt; leave it out.")
        if dtype != "float32":
            raise UserError(f"--dtype {dtype} is for all layers of a network in a final.pt that gives posteriors; leave it out.")
        compute, output_dim = _components(model, feature_transform, bottleneck, no_softmax, place)
    priors = None
    if class_frame_counts:
        if not (no_softmax or apply_log):
            raise UserError("--class-frame-counts needs --no-softmax=true or --apply-log=true; log priors are subtracted from logarithms.")
        priors = prior_scale * log_priors(read_counts(class_frame_counts, output_dim, model), prior_floor)
    source = feats if is_table(feats) or not feats.endswith(".scp") else f"scp:{feats}"
    target = output if is_table(output) else f"ark,scp:{output},{Path(output).with_suffix('.scp')}"
    with TableWriter(target, write_value) as writer:
        for utt, x in progress(read_table(source, read_value), "forward", unit="utt"):
            try:
                scores = compute(x)
            except ValueError as error:
                raise UserError(f"{feats}, {utt}: {error}; make the features with the config of the training data ({FEATURES}).") from error
            if apply_log:
                scores = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
            if not np.isfinite(scores).all():
                raise UserError(f"{feats}, {utt}: the outputs of {model} are not finite; look at its features, and at the model.")
            writer.write(utt, scores if priors is None else scores - priors)


def _components(model: str, feature_transform: str, bottleneck: bool, no_softmax: bool, device: str) -> tuple[
        Callable[[np.ndarray], np.ndarray], int]:
    """The function that runs the network as nnet1's components on a device, as far as is asked for; and its output dimension."""
    from pykaldist.nnet.load import load_nnet1
    from pykaldist.nnet.nnet1 import Nnet1
    from pykaldist.nnet.nnet1_run import Nnet1Forward
    from pykaldist.programs.nnet1 import read_nnet

    nnet, transform = load_nnet1(model) if Path(model).is_file() else (read_nnet(model), None)
    if feature_transform:
        transform = read_nnet(feature_transform)
    components = nnet.components
    if bottleneck:
        linear = [i for i, c in enumerate(components, 1) if c.marker == "LinearTransform"]
        if len(linear) != 1:
            raise UserError(f"{model} has {len(linear) or 'no'} <LinearTransform>, expected one, its bottleneck; train with "
                            "--bottleneck-dim.")
        components = components[: linear[0]]
    if no_softmax:
        if components[-1].marker != "Softmax":
            raise UserError(f"--no-softmax=true, but {model} ends in <{components[-1].marker}>; leave the option out.")
        components = components[:-1]
    whole = Nnet1((transform.components if transform else []) + components)
    return Nnet1Forward(whole, device), whole.output_dim
