"""Decoding: graphs, the lattice decoder, lattices."""
