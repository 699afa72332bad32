"""The options of the server: where it listens, and its limits."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.options import option


@dataclass
class ServerOptions:
    """Where the server listens, and how much it takes."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine's, for who has the token")
    port: int = option(2700, "port; 0: any that is free")
    token: str = option("", "what an address has to have as ?token=... (default: none on the loopback address, else a new one at each "
                             "start)")
    max_clients: int = option(50, "most recordings that come at once")
    max_minutes: float = option(30.0, "minutes of a recording, at most")
    max_megabytes: float = option(32.0, "size of a file that is uploaded, at most")
    idle: float = option(30.0, "seconds after which a client that says nothing is let go")

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536 or self.max_clients < 1 or min(self.max_minutes, self.max_megabytes, self.idle) <= 0:
            raise UserError(f"expected --port ({self.port}) from 0 to 65535, --max-clients ({self.max_clients}) of at least 1, and "
                            f"--max-minutes ({self.max_minutes:g}), --max-megabytes ({self.max_megabytes:g}) and --idle ({self.idle:g}) "
                            "above 0.")
        if not self.token and not self.loopback:
            self.token = secrets.token_urlsafe(16)

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise UserError(f"--host {self.host}: expected an address, such as 127.0.0.1 or 0.0.0.0.") from error
