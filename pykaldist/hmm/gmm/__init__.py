"""Gaussian mixtures with diagonal covariances, and their transform of all features.

Read in this order: `gmm.py`, the model and its estimation, and `mixture_sizes.py`, its sizes alone;
`aligned_frames.py`, frames by their pdf; `engine.py`, likelihoods and statistics on a CPU, `device_engine.py` on a GPU,
`make_engine.py` chooses; `mllt.py`, the transform; `ebw.py`, discriminative estimation, and for fMMI
`fmpe.py`, `indirect.py` and `ubm.py`; `model_files.py`, Kaldi's `final.mdl` and `tree`.
"""
