#!/usr/bin/env bash
# Makes the config files of an nnet3 network, from which it is initialised, of its description in layers (an xconfig file).

usage() {
  cat <<EOF
Usage: steps/nnet3/xconfig_to_configs.py --xconfig-file <xconfig> --config-dir <config-dir> [options]
 e.g.: steps/nnet3/xconfig_to_configs.py --xconfig-file exp/chain/tdnn/configs/network.xconfig --config-dir exp/chain/tdnn/configs
Writes final.config (the network), ref.config (the same, with random matrices for those that are read), init.config (what stands
before an LDA-like transform), vars (the context of the network), ref.raw, init.raw, and copies of the xconfig with all fields.
Options:
  --existing-model <raw|mdl>               # network to whose nodes the layers are added
  --nnet-edits <edits>                     # made before the context is worked out: rename-node old-name=output-0 new-name=output
EOF
}

[ -f path.sh ] && . ./path.sh
case "${1:-}" in --help | -h) usage; exit 0 ;; "") usage >&2; exit 1 ;; esac
. say_what.sh
exec pykaldist xconfig-to-configs "$@"
