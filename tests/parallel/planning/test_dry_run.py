"""Dry runs: epochs without training agree with the planner, with a full simulation, and with published numbers."""

from __future__ import annotations

import dataclasses

import pytest

from pykaldist.cli import main
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.planning import dry_run
from pykaldist.parallel.planning.dry_run import epoch_seconds, speed_up
from pykaldist.parallel.planning.plan import predict
from pykaldist.parallel.strategies.base.registry import strategy_options

CLUSTER = Cluster("c", "", 4, 2, Workload("n", 1_000_000, 100, 8 * 100 * 700, cv_frames=8000), within=Link(4e9, 1e-5),
                  between=Link(1e9, 1e-4), compute=Compute(0.1, 0.08, score_seconds=0.02, epoch_seconds=5.0, memory_bandwidth=3e8,
                                                           load_seconds=0.01))

# An epoch's speed-up over one worker: (cluster, workers, strategy, its options, published, simulated).
PUBLISHED = [
    ("k20-infiniband", 16, "ma", {"average_period": 10}, 9.32, 9.39),  # Su et al.
    ("k20-infiniband", 32, "ma", {"average_period": 10}, 17.0, 16.9),
    ("k20-infiniband", 16, "ma", {"average_period": 20}, 10.07, 10.2),
    ("k40-infiniband", 8, "ma", {"average_period": 135}, 7.3, 7.32),  # Chen & Huo; a split is 135 minibatches of the file's
    ("k40-infiniband", 16, "ma", {"average_period": 135}, 14.5, 14.58),
    ("k40-infiniband", 32, "ma", {"average_period": 135}, 28.7, 29.11),
    ("k40-infiniband", 8, "bmuf", {"average_period": 135}, 7.3, 7.3),
    ("k40-infiniband", 16, "bmuf", {"average_period": 135}, 14.4, 14.54),
    ("k40-infiniband", 32, "bmuf", {"average_period": 135}, 28.4, 29.04),
    ("k40-infiniband", 64, "bmuf", {"average_period": 135}, 56.2, 58.02),
    ("speech3", 2, "asgd", {}, 19.483 / 11.967, 1.655),  # Chan: of the time to 44 % frame accuracy, in which staleness is too
    ("speech3", 3, "asgd", {}, 19.483 / 7.967, 2.584),
    ("speech3", 4, "asgd", {}, 19.483 / 6.533, 3.516),
    ("speech3", 5, "asgd", {}, 19.483 / 5.717, 4.426),
    ("v100-ethernet", 64, "hadpsgd", {}, 40.0, 53.03),  # Zhang et al.
]
NOT_WITHIN_15_PERCENT = {("speech3", 4), ("speech3", 5), ("v100-ethernet", 64)}  # for the reasons that README has


@pytest.mark.parametrize(("name", "ngpu", "strategy", "options", "published", "simulated"), PUBLISHED)
def test_published_speed_ups(name, ngpu, strategy, options, published, simulated):
    found = speed_up(Cluster.read(name), ngpu, strategy, strategy_options(strategy)(**options))
    assert found == pytest.approx(simulated, rel=0.005)
    assert (found == pytest.approx(published, rel=0.15)) == ((name, ngpu) not in NOT_WITHIN_15_PERCENT)


@pytest.mark.parametrize(("strategy", "period"), [("ssgd", None), ("ma", 7), ("bmuf", 50), ("local", None), ("onebit", None)])
@pytest.mark.parametrize("ngpu", [1, 2, 8])
def test_synchronous_epochs_are_the_planners(strategy, period, ngpu):
    if ngpu == 1:
        strategy, period = "local", None
    options = strategy_options(strategy)(**({"average_period": period} if period else {}))
    expected = predict(CLUSTER.workload, CLUSTER, ngpu, strategy, period)
    assert epoch_seconds(CLUSTER, ngpu, strategy, options) == pytest.approx(expected.total)


@pytest.mark.parametrize("strategy", ["asgd", "adpsgd", "hadpsgd"])
def test_an_epoch_is_as_long_as_if_all_of_it_were_gone_through(strategy, monkeypatch):
    cluster = dataclasses.replace(CLUSTER, compute=dataclasses.replace(CLUSTER.compute, spread=0.2), slow={"3": 2.0})
    short = epoch_seconds(cluster, 8, strategy)
    monkeypatch.setattr(dry_run, "MINIBATCHES", 700)
    assert epoch_seconds(cluster, 8, strategy) == pytest.approx(short, rel=0.02)


def test_the_verb_without_a_store(capsys, tmp_path):
    plot = tmp_path / "speed_ups.png"
    assert main(["simulate", "--strategies", "ma --average-period 10,hadpsgd --group-size 4", "--ngpus", "1,16", "--clusters",
                 "k20-infiniband", "--plot", str(plot)]) == 0
    assert plot.read_bytes()[:4] == b"\x89PNG"
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[2] == ["local", "1", "254.5 min", "1.00", "1.00"]
    assert rows[3] == ["ma --average-period 10", "16", "27.1 min", "9.39", "0.59"]
    assert len(rows) == 6 and rows[4][:2] == ["hadpsgd --group-size 4", "16"]


@pytest.mark.parametrize(("options", "words"), [
    (["--strategies", "adps"], "there is no strategy 'adps'; choose among adpsgd, asgd"),
    (["--strategies", "ma,"], "there is no strategy ''"),
    (["--accuracies", "50"], "--accuracies 50: nothing is trained without a store"),
    (["--train-options", "--hid-dim 8"], "--train-options --hid-dim 8: nothing is trained without a store"),
    (["store"], "store is given and no folder to write"),
    (["--plot", "a.png", "store", "folder"], "--plot a.png is for predictions without a store; with one, curves.png in folder is drawn"),
])
def test_what_it_cannot_do_is_said_in_words(capsys, options, words):
    assert main(["simulate", *options]) == 1
    assert words in capsys.readouterr().err
