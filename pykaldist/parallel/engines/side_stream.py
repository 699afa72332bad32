"""A side stream: the stream of a GPU on which exchanges go on while the workers compute on the default one.

Work that is handed to one stream is done in its order. An exchange in the background on the default stream would be done between two steps,
and none of it beside them. Two exchanges there, of two threads, could even wait for each other for ever, where processes hand them over in
different orders. Events keep what depends on each other in order: the side stream waits until what is sent is there, and who asks for the
result waits for the side stream. The host waits for neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class SideStream:
    """A side stream of the GPU `device`, for one helper thread."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def begin(self) -> torch.cuda.Event:
        """An event behind all that the default stream has to do now, for `run`."""
        event = torch.cuda.Event()
        event.record()
        return event

    def run(self, begun: torch.cuda.Event, work: Callable[[], Any]) -> tuple[Any, torch.cuda.Event]:
        """Hand the exchanges of `work` over to the side stream, behind an event. Returns their results, for `finish`."""
        with torch.cuda.stream(self._stream):  # and its device is that of this thread
            self._stream.wait_event(begun)
            results = work()
            done = torch.cuda.Event()
            done.record()
        return results, done

    def finish(self, answer: tuple[Any, torch.cuda.Event]) -> Any:
        """The results that `run` has returned, for the default stream, which waits for them."""
        results, done = answer
        stream = torch.cuda.current_stream()
        stream.wait_event(done)
        _keep(results, stream)
        return results


def _keep(results: Any, stream: torch.cuda.Stream) -> None:
    """Tell the allocator that tensors made on the side stream are used on another: their memory is free when that is done with them."""
    if isinstance(results, Tensor):
        results.record_stream(stream)
    elif isinstance(results, (list, tuple)):
        for result in results:
            _keep(result, stream)
