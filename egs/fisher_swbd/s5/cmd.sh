# How jobs run: run.pl on this machine, queue.pl by Grid Engine, slurm.pl by SLURM, with options such as --mem 4G (utils/run.pl --help).
# run.sh --cmd chooses for one run.
cmd=run.pl
