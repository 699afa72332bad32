#!/usr/bin/env bash
# Runs jobs on Grid Engine, each with a log; where there is none, on this machine.

usage() {
  cat <<EOF
Usage: utils/queue.pl [options] [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/queue.pl --mem 2G JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
Submits one job, or one array, by qsub, and waits for it. Arguments, status and messages are those of run.pl; a log ends with the line
"Finished at ... with status 0". The script, and what it says, are in q/ beside log/. However queue.pl ends, its jobs are deleted (qdel). Without qsub the jobs run
on this machine's cores, as by run.pl.
Options:
  --config <file>      # what the options mean to qsub (conf/queue.conf; where there is none, what stands below)
  --mem <n>            # memory of a job: 2G, 500M
  --num-threads <n>    # cores of a job (1)
  --max-jobs-run <n>   # jobs of an array at the same time
  --gpu <n>            # GPUs of a job (0)
  --pick <which>       # of jobs that have logs: all, failed (and those without an end), or incomplete (all)
Options with one dash, such as -q all.q, -l arch=*64*, -pe smp 4, -V, go to qsub as they are. Without a configuration:
  command qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*
  option mem=* -l mem_free=\$0,ram_free=\$0
  option mem=0
  option num_threads=* -pe smp \$0
  option num_threads=1
  option max_jobs_run=* -tc \$0
  default gpu=0
  option gpu=0
  option gpu=* -l gpu=\$0 -q '*.q'
EOF
}

. "$(dirname "$(readlink -f "$0")")/shared/run_jobs.sh"
