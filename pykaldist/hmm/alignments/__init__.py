"""Alignments: the HMM state of every frame.

Read in this order: `corpus.py`, features and transcripts in memory; `graphs.py`, training graphs; `align.py`, the Viterbi alignment;
`alignment_dir.py`, the files in which alignments lie between stages; `read_alignments.py`, archives named on a command line.
"""
