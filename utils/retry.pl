#!/usr/bin/env bash
# Runs jobs by another runner, and those that fail once more.

usage() {
  cat <<EOF
Usage: utils/retry.pl [--num-tries <n>] <runner> [<option> ...] [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/retry.pl utils/queue.pl --mem 2G JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
<runner> is run.pl, queue.pl, slurm.pl or ssh.pl, or takes the same arguments; of an array the failed jobs alone are run again, except by a
runner of your own. The log of the try before becomes <log>.bak. What was ended by a signal is not tried again.
Options:
  --num-tries <n>      # tries in all (2)
EOF
}

. "$(dirname "$(readlink -f "$0")")/shared/run_jobs.sh"
