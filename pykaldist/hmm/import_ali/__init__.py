"""Alignments of other systems.

Read in this order: `import_ali.py`, matching with a data directory, checks, writing; `sources/`, one format a file; `label_frames.py`,
labels a frame; `phone_labels.py`, names of phones and words; `phone_states.py`, from phones in time to transition-ids.
"""
