"""Jobs of scripts: `utils/{run,queue,slurm,ssh,retry}.pl` run commands with a log each, here or by a scheduler, and leave nothing behind.

To read in this order: `wrapper` (the arguments that all of them take, and the log), `local` (run.pl, and the job itself, which is the same
wherever it runs), `guard` (what a script has started ends with it), `cluster` (queue.pl and slurm.pl), `ssh` and `retry`.

Only the standard library is used, and no other module of the project: the interpreter is started with -I -S, which takes 15 ms.
"""
