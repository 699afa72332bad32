"""Faults put in on purpose, of the kinds that only a GPU would show: the tests on the emulated device find each of them."""

from __future__ import annotations

import threading

import pytest
import torch
from emulated_cuda import EmulatedCuda, streams
from trained import train, waits_of_steps

from pykaldist.cli import main
from pykaldist.nnet import recurrent
from pykaldist.nnet.cuda_graphs import CudaGraphs
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.natural_gradient import new_weight
from pykaldist.optim.ngsgd import DelayedUpdates, NgSgd
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.fabric.worker import Worker

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.is_available(), reason="a real CUDA device is there")]

SCHEDULE = ["--schedule", "exponential", "--learn-rate", "0.01", "--num-epochs", "2"]
DNN = ["--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10", *SCHEDULE]
LSTM = ["--nnet", "lstm", "--hid-layers", "1", "--hid-dim", "4", "--num-streams", "6", "--chunk", "4", *SCHEDULE]
BLSTM = ["--nnet", "blstm", "--hid-layers", "1", "--hid-dim", "4", "--num-streams", "4", "--chunk", "2-5+2", *SCHEDULE]


@pytest.fixture
def run(make_store, tmp_path, monkeypatch):
    """`run(*options, network=DNN, limit=16)`: the parameters of a trained network; with a limit of 0 no step is recorded."""
    make_store([20, 35, 50, 44, 60, 31], seed=1, name="train")
    store = make_store([30, 40], seed=2, name="dev").path.parent

    def trained(*options: str, network: list[str] = DNN, limit: int = 16) -> torch.Tensor:
        monkeypatch.setattr(CudaGraphs, "LIMIT", limit)
        return train(store, tmp_path / f"exp{limit}", *network, *options)

    return trained


def test_without_a_fault_nothing_is_found(cuda: EmulatedCuda, run):
    with waits_of_steps(cuda) as waits:
        options = "--optimizer", "ngsgd", "--update-period", "4"
        assert torch.equal(run(*options), run(*options, limit=0))
    assert not waits and cuda.pools


def test_a_rate_baked_into_a_graph(run, monkeypatch):
    def set_rate(self, learn_rate):
        self.rate, self._minus_rate = learn_rate, -learn_rate

    monkeypatch.setattr(Optimizer, "set_rate", set_rate)
    assert not torch.equal(run(), run(limit=0))


def test_a_rate_on_the_host(run, monkeypatch):
    def set_rate(self, learn_rate):
        self.rate, self._minus_rate = torch.tensor(learn_rate), torch.tensor(-learn_rate)

    monkeypatch.setattr(Optimizer, "set_rate", set_rate)
    assert not torch.equal(run(), run(limit=0))


def test_a_number_of_frames_baked_into_a_graph(run, monkeypatch):
    def set_count(self, count):
        self._count, self._weight = count, new_weight(count, self.options.num_samples_history)

    monkeypatch.setattr(NgSgd, "_set_count", set_count)
    options = ("--optimizer", "ngsgd", "--update-period", "4")
    assert not torch.equal(run(*options, network=BLSTM), run(*options, network=BLSTM, limit=0))


def test_a_penalty_of_another_number_of_frames(run, monkeypatch):
    def set_frames(self, frames):
        self._frames = frames

    monkeypatch.setattr(Optimizer, "_set_frames", set_frames)
    options = ("--l2-penalty", "0.01")
    assert not torch.equal(run(*options, network=BLSTM), run(*options, network=BLSTM, limit=0))


def test_a_state_that_moves(run, monkeypatch):
    monkeypatch.setattr(recurrent, "_kept_in", lambda place, state: (state[0].clone(), state[1].clone()))
    with pytest.raises(RuntimeError, match="memory that has been freed"):
        run(network=LSTM)


@pytest.mark.gpu(devices=2)
def test_a_forgotten_device(make_store, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    make_store([60, 50], seed=1, name="train")
    store = make_store([30], seed=2, name="dev").path.parent
    with pytest.raises(RuntimeError, match="runs on cuda:1, and the current device is cuda:0"):
        main(["train", *DNN, "--device", "cuda:1", str(store), str(tmp_path / "exp")])


def test_a_copy_read_before_its_event(run, monkeypatch):
    monkeypatch.setattr(streams.Event, "synchronize", lambda event: None)
    with pytest.raises(RuntimeError, match="read before the copy to it is over"):
        run("--optimizer", "ngsgd", "--update-period", "4")


def test_an_event_recorded_too_early(run, monkeypatch):
    begin, record, early = DelayedUpdates.begin, streams.Event.record, []

    def begun(self):
        early.append(dict(torch.cuda.current_stream().known))
        begin(self)
        early.clear()

    def recorded(event, stream=None):
        record(event, stream)
        event.known = early[-1] if early else event.known

    monkeypatch.setattr(DelayedUpdates, "begin", begun)
    monkeypatch.setattr(streams.Event, "record", recorded)
    with pytest.raises(RuntimeError, match="read before the copy to it is over"):
        run("--optimizer", "ngsgd", "--update-period", "4")


def test_a_buffer_that_is_written_while_it_travels(run, monkeypatch):
    deliver = DelayedUpdates.deliver

    def delivered(self):
        deliver(self)
        self._host_given.zero_()

    monkeypatch.setattr(DelayedUpdates, "deliver", delivered)
    with pytest.raises(RuntimeError, match="written to while it was copied to the device"):
        run("--optimizer", "ngsgd", "--update-period", "4")


def test_a_value_read_in_a_step(run, monkeypatch, cuda: EmulatedCuda):
    call = CrossEntropy.__call__

    def read(self, outputs, minibatch, totals):
        outputs = call(self, outputs, minibatch, totals)
        if not totals.is_meta:  # where the step that the forecast rehearses would end
            totals[2].item()
        return outputs

    monkeypatch.setattr(CrossEntropy, "__call__", read)
    with waits_of_steps(cuda) as waits:
        run(limit=0)
    assert waits
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        run()


def test_buffers_made_anew_under_a_recorded_step(run, monkeypatch, cuda: EmulatedCuda):
    step, anew = Worker.step, []

    def stepped(self, *args):
        if cuda.pools and not anew:  # a step has been recorded
            activations = self.learner.model._activations
            anew.append(True)
            activations.derivatives = [torch.empty_like(buffer) for buffer in activations.derivatives]
        step(self, *args)

    monkeypatch.setattr(Worker, "step", stepped)
    with pytest.raises(RuntimeError, match="memory that has been freed"):
        run()


def test_a_side_stream_that_waits_for_nobody(run, monkeypatch):
    step, side = Optimizer._step, []

    def aside(self, minibatch, totals):
        side[:] = side or [torch.cuda.Stream()]
        with torch.cuda.stream(side[0]):
            step(self, minibatch, totals)

    monkeypatch.setattr(Optimizer, "_step", aside)
    with pytest.raises(RuntimeError, match="nothing orders the two"):
        run(limit=0)


@pytest.mark.gpu(devices=2)
def test_a_thread_without_its_device(cuda: EmulatedCuda):
    torch.cuda.set_device(1)
    x, found = torch.zeros(3, device="cuda"), []

    def add():
        try:
            x.add_(1)
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=add)
    thread.start()
    thread.join()
    assert "current device is cuda:0" in found[0]
