"""Kaldi's small tools for tables, transcripts, lexicons, grammars and network prototypes, under Kaldi's names.

`utils/filter_scp.pl` and its likes are links to `utils/text_tools`, which starts `run.py` with the name that it was called by. Read
`tool.py` first: what a tool is. `run.py` has the table of names; `lists.py`, `symbols.py`, `lexicon.py`, `grammar.py`, `storage.py` and
`prototypes.py` have the tools. Text is bytes here, so that any encoding passes as it is, and only small modules are imported: a tool
starts in the time that Python takes, without packages.
"""
