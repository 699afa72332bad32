"""What a strategy may ask for, and the processes that carry it out.

Read in this order: `worker.py`, one replica of the model with its data; `stack.py`, small ones that compute together; `interface.py`, the
fabric as a strategy sees it; `processes.py`, what MPI, NCCL and gloo have to provide, with `mpi.py`, `torch_distributed.py` and
`staging.py`, the host memory that buffers on a GPU pass through; `by_node.py`, sums within nodes first; `clock.py`, which takes the seconds
of computing, exchanging and waiting; `minibatch_queue.py`, who trains on which minibatch where workers are asynchronous; `shares.py`, the
same where workers are in step and may die; `mixing.py`, how two workers mix their models while they compute.
"""
