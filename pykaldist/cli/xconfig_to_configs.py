"""Make the config files of an nnet3 network of its xconfig file; see steps/nnet3/xconfig_to_configs.py."""

from __future__ import annotations

import argparse
import shlex

from pykaldist.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykaldist.nnet.nnet3.model import Nnet3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--xconfig-file", required=True, help="the xconfig file")
    parser.add_argument("--config-dir", required=True, help="directory of the configs, which is made")
    parser.add_argument("--existing-model", default="", help="network (.raw or .mdl) to whose nodes layers are added (default: none)")
    parser.add_argument("--nnet-edits", default="", help="edits, as nnet3-copy takes them, before the context is worked out: where no "
                        "output is called output, 'rename-node old-name=output-0 new-name=output' (default: none)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.nnet3.xconfig.convert import write_configs  # not above: --help waits for no PyTorch

    edits = "" if args.nnet_edits in ("None", "null") else args.nnet_edits
    options = {"--xconfig-file": args.xconfig_file, "--config-dir": args.config_dir, "--existing-model": args.existing_model,
               "--nnet-edits": edits}
    command = " ".join(["steps/nnet3/xconfig_to_configs.py", *(f"{key} {shlex.quote(value)}" for key, value in options.items() if value)])
    existing = _network(args.existing_model) if args.existing_model else None
    left, right = write_configs(args.xconfig_file, args.config_dir, existing, edits, command)
    print(f"SUMMARY: configs in {args.config_dir}; the network takes {left} frames before and {right} behind")


def _network(path: str) -> Nnet3:
    from pykaldist.io.kaldi import KaldiReader
    from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model, is_nnet3_model

    if not is_nnet3_model(path):
        if KaldiReader.open(path).peek_token() != "<Nnet3>":
            raise UserError(f"{path} is no nnet3 network; give a .raw or .mdl file of one.")
        return Nnet3.read(path)
    return Nnet3Model.read(path).nnet
