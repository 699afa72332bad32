"""Parallel training: several workers train one model, and a strategy says what they exchange.

Read in this order, each folder importing only from those before it:

    fabric       what a strategy may ask for: the worker, the requests it makes, the processes that carry them
    clusters     what a computing cluster is: devices, links, and what a message costs on them
    strategies   what workers exchange, and when: model averaging, BMUF, ASGD, ADPSGD, ...; one file each
    transport    how bytes move between processes whose workers are asynchronous: ZeroMQ and shared memory
    engines      who runs the strategies' coroutines: in step, asynchronously, or in simulated time
    planning     what an epoch takes on a cluster, before anything is trained
    launch       starting the processes of a job, watching them, and ending them
"""
