"""What an epoch takes on a cluster, before anything is trained.

`plan.py` compares strategies; `dry_run.py` goes through a strategy's own code.
"""
