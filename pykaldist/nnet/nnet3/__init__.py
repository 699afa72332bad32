"""Networks of Kaldi's nnet3: `config` (nodes, descriptors), `components`, `model` (raw files, final.mdl), `plan`, `run`, `prepare`."""
