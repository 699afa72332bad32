"""Engines: they run the strategies' coroutines and carry out their requests.

Read in this order: `host.py`, synchronous workers, with `side_stream.py`, by which exchanges go on beside computing on a GPU; `priced.py`,
the same with the times of a cluster; `simulation.py` with `simulated_worker.py` and `simulated_calls.py`, all workers in simulated time;
`concurrent.py`, asynchronous workers over processes, with `asynchronous_host.py`, `remote_calls.py`, `work_requests.py` and
`live_group.py`; `elastic`, jobs in step whose workers may die and be replaced.
"""
