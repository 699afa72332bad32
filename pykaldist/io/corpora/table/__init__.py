"""A corpus of one's own: audio files and a table of what is said in them, made into data directories and a recipe.

Read `words.py` first (what a word is, and its graphemes), then `rows.py`, `formats.py` and `lhotse_manifests.py` (the tables that are
read), `recordings.py` (the audio that belongs to their rows), `speakers.py` (who speaks, and the split), `prepare.py` (all of it), and
`recipe.py` (the folder that is written, whose scripts are the files `*.template`).
"""
