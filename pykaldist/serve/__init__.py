"""A finished model in use, beyond the stages of a recipe.

Read in this order: `recipe.py`, what belongs to a model and stands elsewhere; `spoken_files.py`, recordings with their transcripts beside
them; `textgrid.py`, Praat's files; `forced.py`, when each word and phone of them was said.
"""
