"""The graphs of chain (LF-MMI) training.

Read in this order: `phone_lm.py`, the n-gram model of phones; `den_graph.py`, the denominator graph and the normalisation FST made of it;
`supervision.py`, the numerators: what may be said in each frame, from phone lengths or from transcripts alone.
"""
