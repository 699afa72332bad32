"""Elastic jobs: jobs in step whose workers may die and be replaced.

Read in this order: `membership.py`, what all hosts of such a job agree on; `simulated.py`, deaths and replacements in simulated time;
`processes.py`, the host over processes.
"""
