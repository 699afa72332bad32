"""A study: claims about training by many workers, each examined by many small trainings, with intervals and tests.

Read `claims` first (what is asked), then `results` (what was found), `rates` (how each method gets its learning rate), `statistics` (what
the results say), `order` (what is to be trained next), `corpora` and `runner` (how), and `page`.
"""
