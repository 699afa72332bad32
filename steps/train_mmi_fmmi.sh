#!/usr/bin/env bash
# Trains offsets of a GMM system's features by MMI (fMMI), then the system, on lattices of the training data.
verb=train-mmi-fmmi ubm="<ubm-dir> " fixed="--indirect=false"
example="data/train data/lang exp/tri3b_ali exp/dubm3b exp/tri3b_denlats exp/tri3b_fmmi"
makes="Offsets of the features by fMMI, the model as it is; and the model by MMI.
Writes <iteration>.fmpe and final.fmpe, too; decode with steps/decode_fmmi.sh."
own=(schedule learning_rate boost cancel drop_frames ngselect) schedule="fmmi fmmi fmmi fmmi mmi mmi mmi mmi" learning_rate=0.01
stage=-1 tau=400 weight_tau=10
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/gmm_sequence_training.sh"
