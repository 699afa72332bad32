"""The page of experiments: one HTML file, whose data are JSON in it, drawn by `page.js`, which needs nothing from elsewhere.

Read `write.py` first (what is in the page), then `runs.py` (trainings), `systems.py` (word error rates), `utterances.py` (what was
recognised, when) and `sound.py` (audio).
"""
