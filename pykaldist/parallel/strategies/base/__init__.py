"""What all strategies have in common: `strategy.py`, the base class; `asynchronous.py`, the base class of asynchronous strategies.

`registry.py`, which finds strategies by name.
"""
