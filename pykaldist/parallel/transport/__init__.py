"""How messages move between the processes of asynchronous workers.

Read in this order: `transport.py`, messages and what happens when a process ends; `sockets.py`, ZeroMQ with encryption; `shared_memory.py`,
buffers between processes of one machine; `message_queue.py`, short messages between them; `addresses.py`, the network address at which a
process listens; `door.py`, how a process comes in that replaces one of an elastic job.
"""
