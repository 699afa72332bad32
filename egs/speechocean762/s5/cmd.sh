# How jobs run: run.sh on this machine. A script of your own that takes the same arguments (`[JOB=1:4] log command...`) can submit
# them to a queue instead; run.sh --cmd chooses it for one run.
cmd=run.sh
