"""How the processes of a job are placed, started, watched and ended.

Read in this order: `job.py`, who computes, and where; `placement.py`, which device each process has, and by which fabric they exchange;
`commands.py`, the commands that start the processes; `rendezvous.py` and `rendezvous_server.py`, how those of a SLURM step meet;
`launcher.py`, which runs them to the job's end; `supervisor.py`, a process between mpiexec or srun and one process of the job;
`records.py`, what each process writes of itself; `watch.py`, which ends a job in which a process hangs; `segments.py`, so that MPI's shared
memory does not outlive a job.
"""
