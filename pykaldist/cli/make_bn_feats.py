"""Features by a network without its last components, of one job's share of a data directory; see steps/nnet/make_bn_feats.sh."""

from __future__ import annotations

import argparse

from pykaldist.devices import take_device
from pykaldist.feats.make import transform_part
from pykaldist.io.datadir import DataDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="data directory that the features are for")
    parser.add_argument("source", help="data directory with the features that the network takes")
    parser.add_argument("nnet_dir", help="directory of the network: final.nnet, final.feature_transform, cmvn_opts, delta_opts")
    parser.add_argument("feat_dir", help="where the archives go")
    parser.add_argument("--remove-last-components", type=int, default=4,
                        help="components left out; 4: those behind a bottleneck (default: 4)")
    parser.add_argument("--device", default="cpu", help="where the network computes: cpu, cuda, cuda:N or auto (default: cpu)")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")


def run(args: argparse.Namespace) -> None:
    import torch

    from pykaldist.nnet.bottleneck import BottleneckPipeline

    torch.set_num_threads(1)  # jobs are processes
    pipeline = BottleneckPipeline(args.nnet_dir, args.remove_last_components, take_device(args.device, args.job - 1))
    transform_part(DataDir(args.source), DataDir(args.target), pipeline, args.feat_dir, args.job, args.nj, "bn")
