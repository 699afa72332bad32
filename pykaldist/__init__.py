"""pykaldist: distributed training of hybrid DNN-HMM acoustic models, the Kaldi way, without Kaldi.

Rooms, from the ground up (each imports only from rooms below it): `io`, `feats`, `hmm`, `frames`, `nnet`, `optim`,
`parallel`, `train`, `decode`, `score`, `report`, `programs`, `cli`. The ground that all stand on: `errors`, `options`, `progress`,
compiled kernels (`kernels`), the deterministic mode (`deterministic`), time slices on
shared cores (`scheduling`), Ctrl-C (`interrupts`), the jobs of scripts (`jobs`), and what makes and
checks Python environments: `setup_venv`, `environment`.
"""

import os

# Who waits for another thread or process spins no longer than the others take on an idle machine, then leaves the core to who computes.
# The libraries read this when they are loaded, which is after pykaldist; who has settings of his own keeps them.
WAITING = {
    "GOMP_SPINCOUNT": "5000",  # GNU OpenMP: turns of a loop, 0.15 ms or so; 300,000 by itself
    "KMP_BLOCKTIME": "1",  # Intel's and LLVM's OpenMP: milliseconds; 200 by itself
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # MPICH: sleeps between its looks
}
_chosen = {*os.environ, *(("GOMP_SPINCOUNT", "KMP_BLOCKTIME") if "OMP_WAIT_POLICY" in os.environ else ())}
os.environ.update({name: value for name, value in WAITING.items() if name not in _chosen})

__version__ = "0.1.0"
