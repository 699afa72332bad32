#!/usr/bin/env bash
# Runs jobs on this machine, each with a log.

usage() {
  cat <<EOF
Usage: utils/run.pl [options] [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/run.pl JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
JOB (or another name) in the log's name and the command becomes the job's number. The command is for bash: \\| and '>' are a pipe and a file
in each job. Each log has the command, its output, and how it ended. Exit status 0 if every job's was; else the error of a failed log is
shown. The first job may draw its progress bar on the caller's terminal. Ctrl-C, SIGTERM and a closed terminal reach the jobs as SIGTERM.
However run.pl ends, and what has called it: its jobs and all that they have started end with it, within 10 s.
Options:
  --max-jobs-run <n>   # jobs at the same time; also -tc <n> (the machine's cores; its GPUs where --gpu is not 0)
  --num-threads <n>    # cores that a job uses; also -pe smp <n> (1)
  --gpu <n>            # GPUs that a job uses (0)
  --pick <which>       # of jobs that have logs: all, failed (and those without an end), or incomplete (all)
Others, which are for queue.pl and slurm.pl, such as --mem 2G, are read, and not used.
EOF
}

. "$(dirname "$(readlink -f "$0")")/shared/run_jobs.sh"
