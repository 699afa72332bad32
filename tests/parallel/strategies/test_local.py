"""No exchange: the models of workers on their own, averaged at the epoch's end."""

from __future__ import annotations

import torch

from pykaldist.parallel.strategies.local import Local


def test_the_models_of_an_epoch_are_averaged_by_frames(make_workers, train):
    averaged = train(make_workers(3, minibatch_size=4, level="utterance"), [Local() for _ in range(3)], 1)
    models, frames = [], []
    for worker in make_workers(3, minibatch_size=4, level="utterance"):
        worker.begin_epoch(0, 0.01)
        while worker.remaining:
            worker.step()
        models.append(worker.params)
        frames.append(worker.frames)
    assert sorted(frames) == [30, 40, 50]
    weights = torch.tensor(frames) / sum(frames)
    assert torch.allclose(averaged, (torch.stack(models) * weights[:, None]).sum(0), atol=1e-6)
