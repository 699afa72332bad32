# Sourced by utils/*.pl that run jobs, and by guard.sh: the command that is pykaldist/jobs, in $jobs_command. Beside an installed package it
# is found by Python; that takes longer. $python, or else the interpreter of path.sh, runs it.
jobs_command=("${python:-${PYKALDIST_PYTHON:-$PYKALDIST_ROOT/.venv/bin/python}}")
type -P "${jobs_command[0]}" >/dev/null || jobs_command=(python3)
if [ -f "$PYKALDIST_ROOT/pykaldist/jobs/__main__.py" ]; then
  jobs_command+=(-I -S "$PYKALDIST_ROOT/pykaldist/jobs")
else
  jobs_command+=(-m pykaldist.jobs)
fi
