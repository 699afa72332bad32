"""Language models: n-gram counts, smoothing, ARPA files, pruning, mixing; and letter-to-sound models, which are n-grams of graphones.

Read `model.py`, which says what a model is, then `counts.py` and `smoothing.py`, which make one of a text, then `texts.py`, `arpa.py`,
`prune.py`, `mix.py` and `score.py`, then `graphones.py` and `g2p.py`, `lexicons.py`, which uses them, and `unknown_word.py`. All n-grams
of an order are rows of arrays; no step of the estimation runs over them one by one.
"""
