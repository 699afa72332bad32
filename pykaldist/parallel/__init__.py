"""Parallel training: several workers train one model, and a strategy says what they exchange.

Read in this order. Each folder imports only from those before it:

    fabric       what a strategy may ask for: the worker, its requests, and the processes that carry them out
    clusters     what a computing cluster is: devices, links, and the cost of a message
    strategies   what workers exchange, and when: model averaging, BMUF, ASGD, ADPSGD, ...; one file each
    transport    how messages move between the processes of asynchronous workers: ZeroMQ and shared memory
    engines      who runs the strategies' coroutines: synchronously, asynchronously, or in simulated time
    planning     how long an epoch takes on a cluster, before anything is trained
    launch       how the processes of a job are started, watched and ended
"""
