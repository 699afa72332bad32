"""Transforms of features for each speaker. Read `fmllr.py` first, then `basis_fmllr.py`, for speakers with seconds of speech."""
