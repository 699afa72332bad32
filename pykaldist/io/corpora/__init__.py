"""Corpora: each module turns one public corpus into data directories and a dictionary directory."""
