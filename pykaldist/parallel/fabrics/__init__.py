"""Fabrics: how bytes move, one file each."""
