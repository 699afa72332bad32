"""Training of GMM systems.

Read in this order: `iterations.py`, EM along alignments; `mono.py`, from a flat start; `triphones.py`; `lda_mllt.py`; `sat.py`; `quick.py`;
`experiment.py` and `adapted_experiment.py`, what the stages read and write.
"""
