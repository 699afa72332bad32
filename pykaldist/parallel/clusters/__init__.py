"""What a computing cluster is, for plans and simulations.

Read in this order: `cluster.py`, nodes, devices and links, read from a cluster file (`*.json`, some lie here); `costs.py`, what steps and
all-reduces take; `network.py`, what messages take on links that carry one at a time.
"""
