"""What all strategies have in common: `strategy.py`, the base class; `asynchronous.py`, of those that do not wait; `registry.py`, by
name."""
