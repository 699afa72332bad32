"""Subspace Gaussian mixture models (SGMMs).

Read in this order: `full_gmm.py`, the mixture with full covariances that a model begins with, and the selection of Gaussians; `model.py`,
the model and its file; `frames.py`, likelihoods; `posteriors.py`, the E-step (`pieces.py`: over a corpus), `update.py`, the M-step, and
`discriminative.py`, that of MMI; `speaker_vectors.py` and `sgmm_fmllr.py`, speakers; `training.py`, the schedule, and `experiment.py`, the
stages.
"""
