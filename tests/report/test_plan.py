"""A plan as text: every time has its origin, every prediction its row."""

from __future__ import annotations

import dataclasses

import pytest

from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.planning.plan import plan
from pykaldist.report.plan import duration, render, rests_on
from pykaldist.train.plan import Plan

CLUSTER = Cluster("c", "made up", 2, 2, Workload("n", 1_000_000, 100, 360_000),
                  Compute(0.1, 0.08, 0.25, 0.01, False, 0.03, 5.0, 4e10, {"quantising": 2e10}), Link(1e10, 1e-6), Link(1e9))


def planned(cluster=CLUSTER, ngpus=(1, 2, 4, 8)):
    found, _ = plan(cluster.workload, cluster, ngpus, ["ma", "bmuf", "onebit"], [10])
    return Plan(cluster, cluster.workload, found, {place: f"origin of {place}" for place in cluster.numbers()}, ["something to say."])


def test_every_time_that_enters_is_labelled():
    rows = {what: (value, origin) for what, value, origin in rests_on(planned())}
    assert rows["minibatch, a worker alone"] == ("80.0 ms", "origin of compute.single_minibatch_seconds")
    assert rows["minibatch, among others"] == ("100.0 ms", "origin of compute.minibatch_seconds")
    assert rows["spread of a minibatch's time"] == ("25.0 %", "origin of compute.spread")
    assert rows["link within a node"] == ("10 GB/s + 1.0 us a message", "origin of within.bandwidth")
    assert rows["link between nodes"] == ("1 GB/s", "origin of between.bandwidth")
    assert rows["all-reduce of a model, 4 devices"] == ("6.0 ms", "ring over these links")
    assert {"loading it", "minibatch of cross-validation", "once an epoch"} <= set(rows)
    assert rows["memory"] == ("40 GB/s", "origin of compute.memory_bandwidth")
    assert rows["quantising, of its passes"] == ("20 GB/s", "origin of compute.work_bandwidth")
    assert "all-reduce of a model, 8 devices" not in rows  # there are four
    table = {what: origin for what, _, origin in rests_on(planned(Cluster.read("k20-infiniband")))}
    assert table["all-reduce of a model, 8 devices"] == "origin of allreduce.seconds" and "loading it" not in table


def test_the_text_has_a_row_for_each_prediction_and_says_what_is_special():
    text = render(planned())
    rows = [line.split() for line in text.partition("Predicted")[2].splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["1", *"222", *"444", *"888"]
    assert "one worker" in text and "Note: something to say." in text
    assert "Note: from 8 workers on, several share one of the 4 devices and take turns." in text
    assert "Recommended: --ngpu 4 --strategy ma --average-period 10: an epoch in" in text and "(predicted)" in text
    assert text == render(planned())
    for row in rows[1:]:
        shares = [float(cell) for cell in " ".join(row[-10:]).replace("%", "").split()]
        assert sum(shares) == pytest.approx(100, abs=0.3)


def test_costs_that_are_not_counted_are_marked():
    text = render(planned(Cluster.read("k20-infiniband"), (8,)))
    assert "bmuf (+): the filter is not counted" in text and "onebit (+): quantising is not counted" in text
    assert [" + " in line for line in text.splitlines() if line.startswith("   8 ")] == [False, True, True]


def test_without_a_recommendation_there_is_a_reason():
    far = dataclasses.replace(CLUSTER, between=Link(1e4))
    assert "No recommendation: no number of workers here reaches" in render(planned(far, (4,)))


@pytest.mark.parametrize(("seconds", "text"), [
    (2e-6, "2.0 us"), (0.25, "250.0 ms"), (59.0, "59.0 s"), (3600.0, "60.0 min"), (90000.0, "25.0 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
