"""Decoding: language models, decoding graphs, the lattice decoder, and operations on lattices."""
