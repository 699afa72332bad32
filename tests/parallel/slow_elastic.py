"""Model averaging, and BMUF, in which workers die and are replaced: a slow and simple loop, with which elastic jobs are compared."""

from __future__ import annotations

import numpy as np
import torch

from pykaldist.parallel.fabric.shares import SHARES

MINIBATCH = 4


def dealt(shares, pool, epoch, changes, rounds, seed=0):
    """Lists of minibatches dealt out anew, the slow way: those who have more than their part give their last ones, the others get them."""
    total = len(pool) + sum(map(len, shares.values()))
    draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, SHARES, epoch, changes, rounds])))
    order = draw.permutation(sorted(shares)).tolist()
    part = {k: total // len(order) + (1 if i < total % len(order) else 0) for i, k in enumerate(order)}
    pool = list(pool)
    for k in order:
        pool += shares[k][part[k] :]
        del shares[k][part[k] :]
    for k in order:
        while len(shares[k]) < part[k]:
            shares[k].append(pool.pop(0))


def slow_averaging(make_workers, size, period, deaths, joins, momentum=None, count=2):
    """Model averaging, or with a block momentum BMUF, in which workers die in the middle of a round and are replaced before one."""
    workers = make_workers(size, blocks=2, minibatch_size=MINIBATCH, momentum=0.5)
    living, common, delta = list(range(size)), workers[0].params.clone(), torch.zeros_like(workers[0].params)
    trained = []
    for epoch in range(count):
        sampler, rounds, changes = workers[0].sampler, 0, 0
        shares = {k: [(k, i) for i in range(sampler.of_split(k).minibatches)] for k in range(size)}
        pool = [one for k in range(size) if k not in living for one in shares.pop(k)]
        if pool:
            changes += 1
            dealt(shares, pool, epoch, changes, rounds)
        while any(shares.values()):
            for rank in joins.get((epoch, rounds), []):
                workers[rank].params.copy_(common)
                workers[rank].optimizer.velocity.copy_(workers[living[0]].optimizer.velocity)
                living, shares[rank], changes = sorted([*living, rank]), [], changes + 1
                dealt(shares, [], epoch, changes, rounds)
            if momentum is not None:
                delta *= momentum
                common = common + delta
            dying, weights = deaths.get((epoch, rounds), []), []
            now = {k: shares[k][:period] for k in living}
            for k in living:
                workers[k].params.copy_(common)
                for split, number in now[k] if k not in dying else []:
                    minibatch = next(sampler.of_split(split).epoch(epoch, number))
                    workers[k].optimizer.local_step(minibatch, 0.01, workers[k].totals)
                    trained.append((epoch, split, number))
            rounds += 1
            lost = [one for k in dying for one in shares.pop(k)]
            living = [k for k in living if k not in dying]
            weights = np.array([sum(sampler.of_split(split).frames_between(epoch, i, i + 1) for split, i in now[k]) for k in living])
            if (weights == weights[0]).all():
                mean = sum((workers[k].params for k in living[1:]), workers[living[0]].params.clone()) * (1.0 / len(living))
            else:
                factors = (weights / weights.sum()).tolist()
                mean = workers[living[0]].params * factors[0]
                for k, factor in zip(living[1:], factors[1:], strict=True):
                    mean += workers[k].params * factor
            if momentum is not None:
                delta += mean - common
                mean = (mean - common) + common
                for k in living:
                    workers[k].optimizer.velocity.zero_()
            common = mean
            for k in living:
                shares[k] = shares[k][period:]
            if dying:
                changes += 1
                dealt(shares, lost, epoch, changes, rounds)
    return common, trained
