#!/usr/bin/env bash
# Runs jobs on other machines by ssh, each with a log.

usage() {
  cat <<EOF
Usage: utils/ssh.pl [options] [JOB=<first>:<last>] <log> <command> [<argument> ...]
 e.g.: utils/ssh.pl JOB=1:4 exp/mono/log/align.JOB.log pykaldist align --job JOB --nj 4 ...
The machines are those of .queue/machines, one a line, in turn. ssh has to reach them without a password, and they have to have this folder
under the same path. Arguments, logs, status and messages are those of run.pl. However ssh.pl ends, its jobs end with it.
EOF
}

. "$(dirname "$(readlink -f "$0")")/shared/run_jobs.sh"
