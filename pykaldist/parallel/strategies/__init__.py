"""Strategies: what workers exchange, one file each."""
