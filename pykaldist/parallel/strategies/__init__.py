"""What workers exchange, and when: one strategy a file, found by the file's name.

Read `base/strategy.py` first, what all have in common; then `ma.py`, model averaging. `base/asynchronous.py` is for strategies whose
workers do not wait for each other.
"""
