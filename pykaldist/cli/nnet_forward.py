"""Forward features through a network to an archive, as Kaldi's nnet-forward.

e.g.: pykaldist nnet-forward --no-softmax=true --class-frame-counts exp/dnn/ali_train_pdf.counts --feature-transform
exp/dnn/final.feature_transform exp/dnn/final.nnet feats.ark loglikes.ark
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pykaldist.devices import choose_device
from pykaldist.errors import UserError
from pykaldist.io.tables import MatrixReader, MatrixWriter, read_archive
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import add_options, boolean, from_args
from pykaldist.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="nnet1 network, or final.pt (which has its feature transform and counts)")
    parser.add_argument("feats", type=Path, help="features: an scp file, or an archive (gzipped if it ends in .gz)")
    parser.add_argument("output", type=Path, help="archive to write; an scp file goes beside it")
    parser.add_argument("--feature-transform", type=Path, help="nnet1 network before the model")
    parser.add_argument("--class-frame-counts", type=Path, help="counts of pdfs, for priors (default: no priors)")
    parser.add_argument("--prior-scale", type=float, default=1.0, help="of the log priors that are subtracted (default: 1)")
    parser.add_argument("--apply-log", type=boolean, default=False, help="output the logarithm (default: false)")
    parser.add_argument("--no-softmax", type=boolean, default=False, help="leave out the last softmax (default: false)")
    parser.add_argument("--bottleneck", type=boolean, default=False,
                        help="stop at the bottleneck, the network's <LinearTransform>, and output its features (default: false)")
    add_options(parser, ForwardOptions)


def run(args: argparse.Namespace) -> None:
    import torch

    from pykaldist.nnet.kinds import kind_of
    from pykaldist.nnet.load import load_own
    from pykaldist.nnet.priors import log_priors, read_counts

    torch.set_num_threads(1)
    if args.no_softmax and args.apply_log:
        raise UserError("--no-softmax=true and --apply-log=true exclude each other: what comes before the softmax is a logarithm.")
    if args.bottleneck and (args.no_softmax or args.apply_log or args.class_frame_counts):
        raise UserError("--no-softmax, --apply-log and --class-frame-counts are for the network's outputs, of which --bottleneck=true "
                        "makes none; leave them out.")
    options = from_args(ForwardOptions, args)
    device = choose_device(options.device)
    network = load_own(args.model, device)
    if network is not None and network.counts is not None and not args.bottleneck and \
            (kind_of(network.options) != "dnn" or options.dtype != "float32"):
        network.forwarding = options
        if args.feature_transform:
            raise UserError(f"--feature-transform {args.feature_transform}: {args.model} has its own; leave the option out.")
        posteriors = network.log_posteriors
        forward: Callable[[np.ndarray], np.ndarray] = posteriors if args.no_softmax else lambda feats: np.exp(posteriors(feats))
        output_dim = network.model.output_dim
    else:
        if args.forward != "whole":
            raise UserError(f"--forward {args.forward} is for the outputs of bidirectional networks in a final.pt; leave it out.")
        if options.dtype != "float32":
            raise UserError(f"--dtype {options.dtype} is for all layers of a network in a final.pt that gives posteriors; leave it out.")
        forward, output_dim = _components(args, device)
    priors = None
    if args.class_frame_counts:
        if not (args.no_softmax or args.apply_log):
            raise UserError("--class-frame-counts needs --no-softmax=true or --apply-log=true; log priors are subtracted from logarithms.")
        priors = args.prior_scale * log_priors(read_counts(args.class_frame_counts))
        if len(priors) != output_dim:
            raise UserError(f"{args.class_frame_counts} has {len(priors)} counts, the network {output_dim} outputs.")
    items = _features(args.feats)
    with MatrixWriter(args.output, args.output.with_suffix(".scp")) as writer:
        for utt, feats in progress(items, "forward", unit="utt"):
            try:
                scores = forward(feats)
            except ValueError as error:
                raise UserError(f"{args.feats}, {utt}: {error}; make the features with the config of the training data.") from error
            if args.apply_log:
                scores = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
            if not np.isfinite(scores).all():
                raise UserError(f"{args.feats}, {utt}: the outputs of {args.model} are not finite; look at its features, and at the model.")
            writer.write(utt, scores if priors is None else scores - priors)


def _features(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    if path.suffix == ".scp":
        reader = MatrixReader(path)
        return ((utt, reader[utt]) for utt in reader)
    return read_archive(path)


def _components(args: argparse.Namespace, device: str) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """Make the function that runs the network as nnet1's components on a device, as far as is asked for; and its output dimension."""
    from pykaldist.nnet.load import load_nnet1
    from pykaldist.nnet.nnet1 import Nnet1
    from pykaldist.nnet.nnet1_run import Nnet1Forward

    nnet, transform = load_nnet1(args.model)
    if args.feature_transform:
        transform = Nnet1.read(args.feature_transform)
    components = nnet.components
    if args.bottleneck:
        linear = [i for i, c in enumerate(components, 1) if c.marker == "LinearTransform"]
        if len(linear) != 1:
            raise UserError(f"{args.model} has {len(linear) or 'no'} <LinearTransform>, expected one, its bottleneck; train with "
                            "--bottleneck-dim.")
        components = components[: linear[0]]
    if args.no_softmax:
        if components[-1].marker != "Softmax":
            raise UserError(f"--no-softmax=true, but {args.model} ends in <{components[-1].marker}>; leave the option out.")
        components = components[:-1]
    whole = Nnet1((transform.components if transform else []) + components)
    return Nnet1Forward(whole, device), whole.output_dim
