"""How bytes move between the processes of a job whose workers are asynchronous.

Read in this order: `transport.py`, the interface (send, lend, wait, close); `sockets.py`, encrypted connections by ZeroMQ, and who has
died; `shared_memory.py` and `message_queue.py`, what processes of one machine share; `addresses.py`, what a process listens at.
"""
