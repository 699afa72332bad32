"""i-vectors: what a speaker and a room sound like, as a vector that a network takes beside its features.

Read in this order: `features.py`, the features of the UBM and the extractor; `pca.py`, their transform; `posteriors.py`, which Gaussians a
frame belongs to; `extractor.py`, the model and its file; `estimate.py`, its training by EM; `online.py`, i-vectors of what was heard so
far; `stages.py`, what the scripts of steps/online/nnet2 do with directories.
"""
