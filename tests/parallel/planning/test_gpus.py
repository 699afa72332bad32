"""Predictions for GPUs: the time of a step by its kernels, epochs on many, and the page that has them."""

from __future__ import annotations

import pytest

from pykaldist.cli import main
from pykaldist.parallel.planning.counting import Kernel, Step
from pykaldist.parallel.planning.gpus import FROM_HOST, GPUS, IN_GRAPH, bound_of, count_presets, known_as, predicted_epoch

H200 = GPUS["h200"]
SMALL = ["predict", "--nnets", "su2015-dnn", "--optimizers", "sgd", "--dtypes", "bf16", "--gpus", "h200", "--ngpu", "1,8", "--hours", "300"]


def test_a_kernel_takes_the_longest_of_its_three_times():
    kernels = Kernel("mm", 10**12, 10**6), Kernel("add", 0, 48 * 10**8), Kernel("tiny", 0, 1)
    step = Step(tuple((kernel, 1.0) for kernel in kernels), 0, 1, 1)
    assert H200.seconds(step, "bf16") == pytest.approx(1 / 989.5 + 1e-3 + IN_GRAPH)
    assert H200.seconds_by(step, "bf16") == pytest.approx({"products": 1 / 989.5, "memory": 1e-3, "launches": IN_GRAPH})
    assert H200.limit(step, "bf16") == pytest.approx(1 / 989.5)
    by_host = Step(step.kernels, 3, 1, 1)
    assert H200.seconds(by_host, "bf16") - H200.seconds(step, "bf16") == pytest.approx(FROM_HOST - IN_GRAPH)


def test_the_limit_is_six_flops_a_parameter_and_frame():
    """Su et al.'s epoch of 300 hours: a product forward and two backward a weight, but for the first layer's, which has one backward.

    The output layer multiplies rows of 8,808, the next multiple of 8.
    """
    step = count_presets(["su2015-dnn"], ["sgd"], ["bf16"], 1024, 40, 8806)["su2015-dnn", "sgd", "bf16"]
    weights = 440 * 2048 + 5 * 2048**2 + 2048 * 8808
    assert step.flops == 1024 * (6 * weights - 2 * 440 * 2048)
    assert 108e6 / 1024 * H200.limit(step, "bf16") == pytest.approx(108e6 * (6 * weights - 2 * 440 * 2048) / 989.5e12)
    assert H200.seconds(step, "bf16") > H200.limit(step, "bf16")
    hours = [predicted_epoch(H200, step, "bf16", 300.0, ngpu, 10).total / 3600 for ngpu in (1, 2, 8, 64, 512)]
    assert hours == sorted(hours, reverse=True)
    assert hours[0] == pytest.approx(108e6 / 1024 * H200.seconds(step, "bf16") / 3600)


def test_an_epoch_is_bound_by_the_largest_of_its_parts():
    mostly_products = Step(((Kernel("mm", 10**12, 10**6), 1.0), (Kernel("add", 0, 10**6), 1.0)), 0, 1024, 40_000_000)
    alone = predicted_epoch(H200, mostly_products, "bf16", 300.0, 1, 10)
    bound, share = bound_of(H200, mostly_products, "bf16", alone)
    assert bound == "products" and 0.99 < share < 1.0
    little = Step(((Kernel("mm", 10**6, 10**3), 1.0),), 0, 1024, 40_000_000)
    many = predicted_epoch(H200, little, "bf16", 300.0, 512, 1)
    bound, share = bound_of(H200, little, "bf16", many)
    assert bound == "exchanges" and share == pytest.approx((many.exchange + many.wait) / many.total) and share > 0.9


def test_gpus_are_known_by_pytorchs_names():
    assert known_as("NVIDIA H200") is H200
    assert known_as("NVIDIA L40S") is known_as("NVIDIA A100-PCIE-40GB") is None
    assert all(set(gpu.sources) == {"rates", "memory", "within", "between"} for gpu in GPUS.values())


def test_the_page(capsys):
    assert main(SMALL) == 0
    out = capsys.readouterr().out
    assert "Su et al. (2015) published 15.24 on 32 K20s" in out
    assert out.count("redicted") >= 3 and "NVIDIA H200 SXM data sheet" in out


def test_unknown_names_are_refused(capsys):
    assert main(["predict", "--gpus", "h300"]) == 1
    assert "choose among l4, a100, h100, h200" in capsys.readouterr().err
