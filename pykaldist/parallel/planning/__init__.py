"""How long an epoch takes on a cluster, before anything is trained.

Read in this order: `plan.py`, the formulas and the recommendation; `dry_run.py`, which runs a strategy's code without training.
"""
