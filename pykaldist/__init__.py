"""pykaldist: distributed training of hybrid DNN-HMM acoustic models, the Kaldi way, without Kaldi.

Rooms, from the ground up (each imports only from rooms below it): `io`, `feats`, `hmm`, `frames`, `nnet`, `optim`,
`parallel`, `train`, `decode`, `score`, `report`, `cli`. The ground that all stand on: `errors`, `kernels`, `options`, `progress`.
"""

__version__ = "0.1.0"
