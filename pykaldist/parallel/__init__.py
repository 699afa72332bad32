"""Parallel training: worker, strategy, fabric."""
