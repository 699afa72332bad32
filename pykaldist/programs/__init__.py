"""Kaldi's and OpenFst's programs by their names, which recipes call: one function a program, in files by what the programs work on.

Read `table.py`, which lists them, then `command.py`, which makes a command line of a function's docstring and parameters. The files of
`src/bin` and `pykaldist NAME` run the same code.
"""
