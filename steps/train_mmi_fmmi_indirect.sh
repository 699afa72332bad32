#!/usr/bin/env bash
# Trains offsets of a GMM system's features by MMI (fMMI) with the indirect differential, and the system, on lattices.
verb=train-mmi-fmmi ubm="<ubm-dir> " fixed="--indirect=true"
example="data/train data/lang exp/tri3b_ali exp/dubm3b exp/tri3b_denlats exp/tri3b_fmmi_indirect"
makes="Offsets of the features by fMMI, whose derivative knows that the model follows its features; and the model by MMI.
Writes <iteration>.fmpe and final.fmpe, too; decode with steps/decode_fmmi.sh."
own=(schedule learning_rate boost cancel drop_frames ngselect) schedule="fmmi mmi fmmi mmi fmmi mmi fmmi mmi" learning_rate=0.02
stage=-1 tau=200 weight_tau=0
. "$(dirname "${BASH_SOURCE[0]}")/../utils/shared/gmm_sequence_training.sh"
