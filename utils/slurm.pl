#!/usr/bin/env bash
# Runs jobs by SLURM, each with a log.

usage() {
  cat <<EOF
Usage: utils/slurm.pl [options] [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/slurm.pl --mem 2G JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
Submits one job, or one array, by sbatch, and waits for it. Arguments, status and messages are those of run.pl; a log ends with "Finished at
... with status 0". The script, and what it says, are in q/ beside log/. However slurm.pl ends, its jobs are cancelled (scancel).
Options:
  --config <file>      # what the options mean to sbatch (conf/slurm.conf; where there is none, what stands below)
  --mem <n>            # memory of a core: 2G, 500M
  --num-threads <n>    # cores of a job (1)
  --max-jobs-run <n>   # jobs of an array at the same time
  --gpu <n>            # GPUs of a job (0)
  --time <t>           # after which SLURM ends a job: 4:0:0
  --pick <which>       # of jobs that have logs: all, failed (and those without an end), or incomplete (all)
Options with one dash, such as -p gpu, go to sbatch as they are. Without a configuration:
  command sbatch --ntasks-per-node=1
  option time=* --time \$0
  option mem=* --mem-per-cpu \$0
  option mem=0
  option num_threads=* --cpus-per-task \$0
  option num_threads=1
  default gpu=0
  option gpu=0
  option gpu=* --gres=gpu:\$0
EOF
}

. "$(dirname "$(readlink -f "$0")")/shared/run_jobs.sh"
