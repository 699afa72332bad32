"""A finished model in use, beyond the stages of a recipe.

Read in this order: `recipe.py`, what belongs to a model and stands elsewhere; `recordings.py`, samples and features of recordings;
`segments.py`, where long ones are cut; `transcript.py`, what was said and its forms; `transcribe.py`, by any model; `streamed.py`, while
audio comes; `spoken_files.py`, recordings with their transcripts beside them; `textgrid.py`, Praat's files; `forced.py`, when each word and
phone of them was said; `export.py`, formats for other programs, each tried after it is written; `model_card.py`, what goes with them.
"""
