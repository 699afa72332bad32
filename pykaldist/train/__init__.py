"""Training: epochs, cross-validation, checkpoints, resume.

Read in this order: `experiment.py`, from options and a frame store to a trained network; `trainer.py`, the loop over epochs; `evaluate.py`,
cross-validation; `checkpoints.py`; `divergence.py`, how a lost training is found, and `best.py`, one that gets worse; `folder.py`,
`history.py` and `contract.py`, what a run says of itself; `dbn.py`, pretraining of RBMs; `gmm_sequence.py` and `gmm_sequence_dirs.py`,
discriminative training of GMMs; `measure.py` and `plan.py`, for `pykaldist plan`.
"""
