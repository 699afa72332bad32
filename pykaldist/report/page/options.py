"""The options of the page of experiments."""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.options import option


@dataclass
class PageOptions:
    """What is in the page."""

    data: str = option("", "data directories of the test sets, with commas; without it those that were scored against, if their audio is "
                           "in files, not pipes")
    audio: str = option("opus", "audio of the utterances: Opus (21 kbit/s), which all browsers of 2025 play, wav, or none",
                        ("opus", "wav", "none"))
    max_megabytes: float = option(20.0, "size of the page; audio that has no room is left out, that of the best utterances first")
    nbest: int = option(5, "paths of each lattice")

    def __post_init__(self) -> None:
        if self.max_megabytes <= 0 or self.nbest < 0:
            raise UserError(f"--max-megabytes {self.max_megabytes:g} --nbest {self.nbest}: expected more than 0 megabytes, and no less "
                            "than 0 paths.")
