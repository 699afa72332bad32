"""The language directory: `prepare_lang.py` makes it from a dictionary; `topology.py` reads and writes the topology of HMMs."""
