"""Who runs the workers' coroutines, and serves what they ask for.

Read in this order: `host.py`, workers in step, one process's share of a job; `concurrent.py`, asynchronous workers over processes, with
`remote_calls.py` (calls from worker to worker), `work_requests.py` (who trains on what) and `live_group.py` (sums over the processes that
have not died); `priced.py` and `simulation.py`, workers in simulated time, with `simulated_calls.py`.
"""
