"""Starting the processes of a job, watching them, and ending them.

Read in this order: `job.py`, who computes, and where; `launcher.py`, starts the processes; `supervisor.py`, stands between mpiexec or
srun and one process; `watch.py`, ends a job in which a process hangs.
"""
