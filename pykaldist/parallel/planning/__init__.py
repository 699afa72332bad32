"""How long an epoch takes on a cluster, before anything is trained.

Read in this order: `plan.py`, the formulas and the recommendation; `dry_run.py`, which runs a strategy's code without training;
`footprint.py`, which counts the memory that it takes; `counting.py`, which counts what a training step multiplies and moves; `gpus.py`,
what that takes on GPUs that are not here.
"""
