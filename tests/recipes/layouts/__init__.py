"""Real speech laid out as corpora ship it: a module for each family of recipes, a few minutes each.

Read speech.py first: the utterances, where they come from, and how they are written. A recipe that takes a corpus's path finds what its
local/ scripts look for, under the names that the Linguistic Data Consortium or OpenSLR give it, and nothing beside.
"""
