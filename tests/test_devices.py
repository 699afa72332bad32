"""The device that `--device` names, on machines with and without GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pykaldist import deterministic, devices
from pykaldist.devices import choose_device, device_name, num_visible, parse_device
from pykaldist.errors import UserError


@pytest.mark.parametrize(("name", "visible", "number", "chosen"), [
    ("auto", 0, 0, "cpu"), ("auto", 4, 0, "cuda:0"), ("auto", 4, 6, "cuda:2"), ("cuda", 2, 1, "cuda:1"), ("cuda:3", 4, 1, "cuda:3"),
    ("cpu", 4, 2, "cpu")])
def test_the_device_of_a_job(name, visible, number, chosen, monkeypatch):
    monkeypatch.setattr(devices, "num_visible", lambda: visible)
    assert choose_device(name, number) == chosen


@pytest.mark.parametrize(("name", "visible", "sentence"), [
    ("cuda", 0, "--device cuda: this machine has 0 CUDA devices; use --device cpu."), ("cuda:4", 4, "--device cuda:4: this machine has 4"),
    ("tpu", 4, "--device tpu is not supported; use cpu, cuda, cuda:0 or auto."), ("cuda:x", 4, "--device cuda:x is not supported"),
    ("cpu:0", 4, "--device cpu:0 is not supported")])
def test_devices_that_are_not_there(name, visible, sentence, monkeypatch):
    monkeypatch.setattr(devices, "num_visible", lambda: visible)
    with pytest.raises(UserError, match=sentence):
        choose_device(name)


def test_auto_is_the_cpu_in_the_deterministic_mode(monkeypatch):
    monkeypatch.setattr(devices, "num_visible", lambda: 4)
    monkeypatch.setenv(deterministic.VARIABLE, "true")
    assert choose_device("auto") == "cpu" and choose_device("cuda") == "cuda:0"


def test_what_a_process_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert num_visible() == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert num_visible() == 3
    assert parse_device("cuda:2") == ("cuda", 2) and parse_device("auto") == ("auto", None)


def test_a_device_has_the_same_name_in_all_processes(monkeypatch):
    known = [SimpleNamespace(uuid="4f2c"), SimpleNamespace()]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: known[number])
    assert [device_name(0), device_name(1)] == ["4f2c", "1"]
