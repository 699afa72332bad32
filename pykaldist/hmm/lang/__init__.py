"""The language directory: how it is made from a dictionary, and checked.

`prepare_lang.py` makes it, `unknown_word.py` puts a phone language model into it, `topology.py` reads and writes the topology of HMMs,
`check_lang.py` checks a directory.
"""
