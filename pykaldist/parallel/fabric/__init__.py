"""What a strategy may ask for.

Read in this order: `interface.py`, the requests (mean, sum, call, take, ...); `worker.py`, one replica with its data and optimiser;
`minibatch_queue.py`, who trains on which minibatch; `processes.py`, what a process group has to provide, and `mpi.py` and
`torch_distributed.py`, which provide it; `mixing.py`, how two workers average their models while they compute.
"""
