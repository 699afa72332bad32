"""The strategies: what workers exchange, and when. Each strategy is one file, found by the file's name.

Read `base/strategy.py` first, the base class of all; then `ma.py`, model averaging. `base/asynchronous.py` is the base class of strategies
whose workers do not wait for each other.
"""
