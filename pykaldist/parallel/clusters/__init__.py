"""What a computing cluster is, for plans and simulations.

Read in this order: `cluster.py`, nodes, devices and links, read from a cluster file (`*.json`; some are in this folder); `costs.py`, the
time of steps and all-reduces; `network.py`, the time of messages where several are under way at once.
"""
