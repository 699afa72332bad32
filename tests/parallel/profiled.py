"""The bytes of what PyTorch's profiler has seen on the CPU: of each operation from its arguments' shapes, and from its allocations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SIZES = {"float": 4, "double": 8, "long int": 8, "int": 4, "short int": 2, "unsigned char": 1, "bool": 1, "c10::BFloat16": 2}
NO_TENSORS = "", "Scalar", "ScalarList"
ONLY_WRITTEN = "copy_", "fill_", "zero_"  # of the operations in place
BOTH = {"lstm_cell": 1, "lstm_cell_backward": 2}  # how many of the first arguments are read and written; of others in place it is one


@dataclass(frozen=True)
class Profiled:
    """An operation: its name, and the least and most bytes that it reads and writes.

    They differ where the profiler does not tell whether an argument is a tensor or a number of the host, or the same tensor as another one.
    """

    name: str
    least: int
    most: int


def profiled(work: Callable[[], object], folder: Path) -> list[Profiled]:
    """The operations that some work hands to a device, by PyTorch's profiler. A dispatch mode has to be on, beneath which it finds them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as profiler:
        work()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    events = sorted((event for event in trace if event.get("cat") == "cpu_op"), key=lambda event: (event["ts"], -event["dur"]))
    memory = sorted((event["ts"], event["args"]["Addr"], event["args"]["Bytes"]) for event in trace if event["name"] == "[memory]")
    found, open_events = [], list[dict[str, Any]]()
    for event in events:
        while open_events and event["ts"] >= open_events[-1]["ts"] + open_events[-1]["dur"]:
            open_events.pop()
        if event["name"] == "PythonDispatchMode":
            operation = open_events[-1]
            within = [(place, size) for time, place, size in memory if 0.0 <= time - operation["ts"] <= operation["dur"]]
            found.append(_bytes_of(operation["name"].partition("::")[2], operation["args"], within))
        open_events.append(event)
    return found


def _bytes_of(name: str, arguments: dict[str, Any], memory: list[tuple[int, int]]) -> Profiled:
    """The bytes of an operation: `memory` are its allocations and, negative, what it has given back, each at a place."""
    described = list(zip(arguments["Input Dims"], arguments["Input type"], arguments["Input Strides"], strict=True))
    sizes = [_size(*argument) for argument in described]
    results: dict[int, int] = {}
    for place, size in memory:
        if size > 0:
            results[place] = size
        else:
            results.pop(place, None)
    again = BOTH.get(name, int(name.endswith("_") and name not in ONLY_WRITTEN))
    doubtful = sum(size for number, (size, argument) in enumerate(zip(sizes, described, strict=True))
                   if not argument[0] or argument in described[:number])
    most = sum(sizes) + sum(sizes[:again]) + sum(results.values())
    return Profiled(name, most - doubtful, most)


def _size(shape: list[Any], kind: str, strides: list[Any]) -> int:
    """The bytes of an argument, those of an expanded dimension once; of a list, whose type is not known, tensors of float32."""
    if kind == "TensorList":
        return sum(_size(one, "float", other) for one, other in zip(shape, strides, strict=True))
    if kind in NO_TENSORS:
        return 0
    return SIZES[kind] * math.prod(size for size, stride in zip(shape, strides, strict=True) if stride or size == 0)
