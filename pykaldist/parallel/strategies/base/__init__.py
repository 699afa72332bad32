"""What all strategies have in common: `strategy.py`, the base class; `asynchronous.py`, the base class of asynchronous strategies.

`rounding.py`, exchanges in bfloat16 with error feedback; `registry.py`, which finds strategies by name.
"""
