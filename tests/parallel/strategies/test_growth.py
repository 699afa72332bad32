"""A number of workers that grows, as Kaldi's jobs: how many, who gets what, the rate of the few, exact resume."""

from __future__ import annotations

import pytest
import torch
from driven import Stopped, counted, epochs
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.shares import count
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.strategies.base.growth import Row, growing, joining
from pykaldist.parallel.strategies.base.registry import take_preset
from pykaldist.parallel.strategies.ma import Ma, MaOptions

SIZE = 4


def kaldis_jobs(initial: int, final: int, archives: int) -> list[int]:
    """The jobs of each of Kaldi's iterations over so many archives: rounded points of a line."""
    number = archives * 2 // (initial + final)
    return [int(0.5 + initial + (final - initial) * i / number) for i in range(number)]


@pytest.mark.parametrize(("initial", "final", "archives"), [(1, 8, 900), (2, 4, 300), (3, 16, 2000), (1, 2, 60)])
def test_the_number_grows_as_kaldis_jobs_do(initial, final, archives):
    """By the share of the data that the iterations before have used up; one more or less only where the line is about to be rounded up."""
    used, different = 0, 0
    jobs = kaldis_jobs(initial, final, archives)
    for number in jobs:
        ours = growing(initial, final, used / archives)
        assert abs(ours - number) <= 1
        different += ours != number
        used += number
    assert different <= 0.1 * len(jobs)
    assert growing(initial, final, 0.0) == initial and growing(initial, final, 1.0) == final


@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
def test_workers_that_train_are_spread_over_processes(each, processes):
    """Of those that have joined each process of as many workers has as many, or one more or less."""
    order = joining(each * processes)
    assert sorted(order) == list(range(each * processes)) and order[0] == 0
    for number in range(1, len(order) + 1):
        counts = [sum(rank // each == process for rank in order[:number]) for process in range(processes)]
        assert max(counts) - min(counts) <= 1
    assert joining(8) == (0, 4, 2, 6, 1, 5, 3, 7)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6).map(lambda counts: [*counts, 1]), st.integers(1, 5), st.integers(1, 6),
       st.integers(0, 99))
def test_each_minibatch_is_dealt_out_once_and_evenly(counts, period, workers, seed):
    row, begin, seen = Row(counts, seed, 3), 0, []
    while begin < row.total:
        found = row.iteration(begin, workers, period)
        sizes = [count(own) for own in found.runs]
        assert max(sizes) <= period and max(sizes) - min(sizes) <= 1 and found.end - begin == sum(sizes) > 0
        seen += [(split, number) for own in found.runs for split, first, stop in own for number in range(first, stop)]
        begin = found.end
    assert found.last and sorted(seen) == [(split, number) for split, total in enumerate(counts) for number in range(total)]


def made(make_workers, options=None):
    workers = make_workers(SIZE, minibatch_size=4, momentum=0.5)
    for worker in workers:
        worker.num_epochs = 2
    return workers, [Ma(options or MaOptions(average_period=2, initial_workers=1)) for _ in workers], Host(SIZE)


def test_an_epoch_has_each_frame_once_and_more_workers_train_later(make_workers):
    workers, strategies, host = made(make_workers)
    trained, seen = [], counted(workers)
    for worker in workers:
        worker.on_step = lambda worker=worker: trained.append((worker.epoch, workers.index(worker), worker.share))
    epochs(workers, strategies, host)
    frames = len(workers[0].sampler.partition.store)
    assert set(seen) == set(range(frames)) and set(seen.values()) == {2}
    assert trained[0][1:] == (0, 1 / SIZE) and {rank for _, rank, _ in trained[:2]} == {0}
    assert {rank for epoch, rank, _ in trained if epoch == 1} == set(range(SIZE)) and trained[-1][2] == 1.0
    shares = [share for *_, share in trained]
    assert shares == sorted(shares)
    assert all(torch.equal(worker.params, workers[0].params) for worker in workers)


def test_one_worker_that_trains_is_one_worker_alone(make_workers):
    """In the first round worker 0 trains by itself, with its own rate; the mean is its model."""
    workers, strategies, host = made(make_workers, MaOptions(average_period=3, initial_workers=1))
    epochs_of_one = make_workers(1, minibatch_size=4, momentum=0.5)[0]
    with pytest.raises(Stopped):
        epochs(workers, strategies, host, learn_rate=0.04, stop=1)
    first = Row([worker.sampler.minibatches for worker in workers], workers[0].sampler.seed, 0).iteration(0, 1, 3).runs[0]
    epochs_of_one.sampler = workers[0].sampler
    for split, start, stop in first:
        epochs_of_one.draw_from(workers[0].sampler.of_split(split).epoch(0, start))
        for _ in range(stop - start):
            epochs_of_one.learn_rate = 0.04 / SIZE
            epochs_of_one.step()
    assert all(torch.equal(worker.params, epochs_of_one.params) for worker in workers)


@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_resumed_run_gives_the_same_bits(make_workers, stop):
    workers, strategies, host = made(make_workers)
    epochs(workers, strategies, host)
    others, first, host = made(make_workers)
    with pytest.raises(Stopped):
        epochs(others, first, host, stop=stop)
    again, second, host = made(make_workers)
    for worker, strategy, before, kept in zip(again, second, others, first, strict=True):
        worker.load_state_dict(before.state_dict())
        strategy.load_state_dict(kept.state_dict())
    epochs(again, second, host)
    assert torch.equal(again[0].params, workers[0].params)


def test_what_does_not_go_with_it_is_refused(make_workers):
    for more in ({"overlap": True}, {"reduce_type": "ring"}, {"average_period": 0}):
        with pytest.raises(UserError, match="--initial-workers 2"):
            MaOptions(initial_workers=2, **more)
    with pytest.raises(UserError, match="negative"):
        MaOptions(initial_workers=-1)
    with pytest.raises(UserError, match="--lr-scale none"):
        JobOptions(ngpu=4, strategy="ma", lr_scale="none").settle(Ma(MaOptions(initial_workers=2)))
    with pytest.raises(UserError, match="--elastic true: --initial-workers 2"):
        JobOptions(ngpu=4, strategy="ma", elastic=True).settle(Ma(MaOptions(initial_workers=2)))
    workers, strategies, host = made(make_workers, MaOptions(initial_workers=9))
    with pytest.raises(UserError, match="--initial-workers 9 --ngpu 4"):
        epochs(workers, strategies, host)


def test_the_preset_is_ma_with_options_that_can_be_given():
    chosen = {"strategy": "kaldi", "average_frames": 5}
    take_preset(chosen)
    assert chosen == {"strategy": "ma", "initial_workers": 1, "average_frames": 5}
    take_preset(other := {"strategy": "bmuf"})
    assert other == {"strategy": "bmuf"}
