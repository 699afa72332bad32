"""Properties of every strategy, with its default options and with each of its other choices. No strategy is listed here."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import typing

import pytest
import torch
from driven import Stopped, counted, epochs

from pykaldist.cli import train as train_verb
from pykaldist.errors import UserError
from pykaldist.options import boolean, pick_variant
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.planning.dry_run import epoch_seconds
from pykaldist.parallel.planning.plan import has_period, predict
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options
from pykaldist.parallel.strategies.local import Local, LocalOptions

SIZE, PERIOD = 4, 5  # workers, a power of two; minibatches between exchanges of those that have a period
CLUSTER = Cluster("c", "", 4, 2, Workload("n", 1_000_000, 100, 8 * 100 * 200, cv_frames=8000), within=Link(4e9, 1e-5),
                  between=Link(1e9, 1e-4), compute=Compute(0.1, 0.08, score_seconds=0.02, epoch_seconds=5.0, memory_bandwidth=3e8))


def variants() -> dict[str, tuple[str, dict]]:
    """Name -> (strategy, options): each with its defaults, and with each other value of a boolean or of an option with choices."""
    found = {}
    for name in strategies():
        options = strategy_options(name)
        own = {"average_period": PERIOD} if has_period(name) else {}
        found[name] = name, own
        for field in dataclasses.fields(options):
            hint = typing.get_type_hints(options)[field.name]
            booleans = (True, False) if bool in (hint, *typing.get_args(hint)) else ()
            for value in field.metadata["choices"] or booleans:
                try:
                    options(**own, **{field.name: value})
                except UserError:  # it needs others
                    continue
                if value != field.default:
                    found[f"{name}, {field.name} {value}"] = name, {**own, field.name: value}
    return found


VARIANTS = variants()


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]


@pytest.fixture
def make(variant):
    """A strategy."""
    return lambda: make_strategy(variant[0], strategy_options(variant[0])(**variant[1]))


@pytest.fixture
def begin(make_workers, make):
    """Workers, a strategy for each, and a host that can drive them; in simulated time where they go each their own way."""

    def run(size=SIZE, simulated=False, **options):
        made = [make() for _ in range(size)]
        workers = make_workers(size, minibatch_size=4, **options)
        host = Simulation(size, dataclasses.replace(CLUSTER, slow={"1": 2.0})) if simulated or made[0].independent else Host(size)
        for fabric in host.fabrics:
            fabric.node_size = min(size, 2)
        return workers, made, host

    return run


def test_it_learns_from_every_frame_once_an_epoch_and_ends_in_one_model(begin):
    workers, made, host = begin()
    seen, start = counted(workers), workers[0].params.clone()
    epochs(workers, made, host)
    assert seen == dict.fromkeys(range(120), 2)
    assert all(torch.equal(worker.params, workers[0].params) for worker in workers)
    assert torch.isfinite(workers[0].params).all() and not torch.equal(workers[0].params, start)


def test_a_clock_changes_nothing_for_synchronous_workers(begin, make):
    if make().independent:
        pytest.skip("its workers meet in the order of a clock, or in none")
    runs = [begin(momentum=0.5), begin(simulated=True, momentum=0.5)]
    for one in runs:
        epochs(*one)
    assert torch.equal(runs[0][0][0].params, runs[1][0][0].params) and runs[1][2].elapsed() > 0


def test_any_number_of_processes_gives_the_same(make_workers, make, job):
    if make().independent:
        pytest.skip("between processes its runs are not alike; tests/train runs them")

    def work(host):
        workers = make_workers(SIZE, host.ranks, minibatch_size=4, momentum=0.5)
        for fabric in host.fabrics:
            fabric.node_size = 2
        epochs(workers, [make() for _ in workers], host)
        return [(worker.params, worker.totals, worker.optimizer.velocity) for worker in workers]

    for one, other in zip(job(SIZE, 1, work), job(SIZE, 2, work), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_one_worker_alone_trains_as_local_does(begin, make_workers):
    workers, made, host = begin(1)
    epochs(workers, made, host)
    expected = make_workers(1, minibatch_size=4)
    epochs(expected, [Local(LocalOptions())], Host(1))
    assert torch.allclose(workers[0].params, expected[0].params, atol=2e-6)


def test_the_mean_stays_where_that_is_claimed(begin, make):
    if not make().keeps_mean:
        pytest.skip("does not claim it")
    workers, made, host = begin(dtype=torch.float64)
    for worker in workers:
        worker.params.copy_(torch.randn(len(worker.params), generator=torch.Generator().manual_seed(int(1e6 * worker.sampler.frames))))
        worker.params.add_(float(torch.rand(1)))
    mean = torch.stack([worker.params for worker in workers]).mean(0)
    epochs(workers, made, host, 1, 0.0)
    assert torch.allclose(workers[0].params, mean, atol=1e-12)


@pytest.mark.parametrize("simulated", [False, True])
def test_stopped_at_any_checkpoint_it_goes_on_to_the_bit(begin, simulated, make):
    if make().independent and not simulated:
        pytest.skip("the same as in simulated time")

    def start():
        return begin(simulated=simulated, momentum=0.5)

    whole = start()
    offers = epochs(*whole)
    for stop in sorted({1, offers // 2, offers - 1} & set(range(1, offers + 1))):
        part, resumed = start(), start()
        with pytest.raises(Stopped):
            epochs(*part, stop=stop)
        states = [(w.state_dict(), s.state_dict()) for w, s in zip(*part[:2], strict=True)]
        for worker, strategy, (first, second) in zip(*resumed[:2], states, strict=True):
            worker.load_state_dict(first)
            strategy.load_state_dict(second)
        resumed[2].load_state_dict(part[2].state_dict())
        epochs(*resumed)
        for one, other in zip(whole[0], resumed[0], strict=True):
            assert torch.equal(one.params, other.params) and torch.equal(one.optimizer.velocity, other.optimizer.velocity)
            assert torch.equal(one.totals, other.totals) and (one.updates, one.frames) == (other.updates, other.frames)
        assert resumed[2].elapsed() == whole[2].elapsed() or not simulated


def test_a_rejected_epoch_leaves_nothing_of_its_models(begin):
    """After it, and back at the start, an epoch goes as the first one did."""
    workers, made, host = begin()
    start, velocity = workers[0].params.clone(), [worker.optimizer.velocity.clone() for worker in workers]
    epochs(workers, made, host, 1)
    first = workers[0].params.clone()
    for worker, strategy, own in zip(workers, made, velocity, strict=True):
        worker.params.copy_(start)
        worker.optimizer.velocity.copy_(own)
        worker.index = worker.updates = worker.frames_since_sync = 0
        strategy.rejected()
    state = {name: value for name, value in made[0].state_dict().items() if isinstance(value, torch.Tensor) and value.any()}
    assert not state, f"{sorted(state)} are of the model that was rejected"
    assert not torch.equal(first, start)


@pytest.mark.parametrize("name", strategies())
def test_a_plan_and_a_simulation_price_it(name):
    """From what it asks for: alike, where its workers go in step and nothing is random."""
    period = PERIOD if has_period(name) else None
    options = strategy_options(name)(**({"average_period": period} if period else {}))
    found = predict(CLUSTER.workload, CLUSTER, 8, name, period)
    seconds = epoch_seconds(CLUSTER, 8, name, options)
    assert found.total == pytest.approx(seconds, rel=1e-6 if not make_strategy(name).independent else 0.02)
    assert found.exchange > 0 and not found.uncounted
    slow = dataclasses.replace(CLUSTER, between=Link(1e7, 1e-4), within=Link(1e7, 1e-5))
    assert predict(CLUSTER.workload, slow, 8, name, period).exchange > found.exchange


@pytest.mark.parametrize("name", strategies())
def test_its_options_are_the_command_lines_and_others_are_refused(name):
    parser = argparse.ArgumentParser()
    train_verb.add_arguments(parser)
    variants = train_verb.VARIANTS["strategy"]
    assert variants[name] is strategy_options(name)
    own = {field.name for field in dataclasses.fields(variants[name])}
    text = parser.format_help()
    for field in {field.name: field for options in variants.values() for field in dataclasses.fields(options)}.values():
        flag = "--" + field.name.replace("_", "-")
        assert f"{flag} " in text and field.metadata["help"]
        action = next(action for action in parser._actions if flag in action.option_strings)
        value = (action.choices or [{boolean: "true", int: "3", float: "0.5", str: "text"}[action.type]])[0]
        args = parser.parse_args(["--strategy", name, flag, str(value), "store", "exp"])
        if field.name in own:
            assert hasattr(args, field.name)
        else:
            with pytest.raises(UserError, match=f"{flag} belongs to --strategy .* and is not used by --strategy {name}; leave it out"):
                pick_variant("strategy", name, variants, args)


@pytest.mark.parametrize("name", strategies())
def test_it_says_what_it_is(name, root):
    strategy = make_strategy(name)
    module = importlib.import_module(type(strategy).__module__)
    assert module.__doc__ and module.__doc__.splitlines()[0].endswith(".")
    assert strategy.lr_scale in ("none", "linear", "sqrt")
    rows = strategy.contract(8, 256)
    assert all(isinstance(what, str) and isinstance(text, str) and what and text for what, text in rows)
    assert not has_period(name) or rows[0][0] == "averaging period"
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    assert any(line.startswith(f"| `{name}` |") for page in pages for line in page.read_text(encoding="utf-8").splitlines()), \
        f"no page has a table's row that begins with | `{name}` |"
