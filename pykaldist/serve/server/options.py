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
    origins: str = option("", "other sites whose pages may use the WebSocket, such as http://localhost:8080, with commas between; null: "
                              "pages that were opened as files")
    sample_rate: int = option(0, "sampling rate of WebSocket clients that do not say theirs; 0: the model's")
    max_clients: int = option(50, "most recordings that come at once")
    max_minutes: float = option(30.0, "minutes of a recording, at most")
    max_megabytes: float = option(32.0, "size of a file that is uploaded, at most")
    idle: float = option(30.0, "seconds after which a client that says nothing is let go")

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536 or self.max_clients < 1 or min(self.max_minutes, self.max_megabytes, self.idle) <= 0:
            raise UserError(f"expected --port ({self.port}) from 0 to 65535, --max-clients ({self.max_clients}) of at least 1, and "
                            f"--max-minutes ({self.max_minutes:g}), --max-megabytes ({self.max_megabytes:g}) and --idle ({self.idle:g}) "
                            "above 0.")
        if self.sample_rate and not 1000 <= self.sample_rate <= 400_000:
            raise UserError(f"--sample-rate {self.sample_rate}: expected 1000 to 400000 Hz, or 0 for the model's.")
        bad = [site for site in self.sites if site != "null" and (site.endswith("/") or not site.startswith(("http://", "https://")))]
        if bad:
            raise UserError(f"--origins {bad[0]}: expected a site without a path, such as http://localhost:8080, or null.")
        if not self.token and not self.loopback:
            self.token = secrets.token_urlsafe(16)

    @property
    def sites(self) -> list[str]:
        """The other sites whose pages may use the WebSocket."""
        return [site for site in self.origins.split(",") if site]

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise UserError(f"--host {self.host}: expected an address, such as 127.0.0.1 or 0.0.0.0.") from error
