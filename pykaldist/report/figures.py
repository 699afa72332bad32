"""Pictures in files, drawn by matplotlib without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open


def pyplot(path: Path) -> Any:
    """Return matplotlib.pyplot, for a picture in file `path`; raises UserError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(f"{path} cannot be drawn without matplotlib; install it with pip install matplotlib.") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(plt: Any, figure: Any, path: Path) -> None:
    """Write a figure as a PNG, whole or not at all, and forget it."""
    figure.tight_layout()
    with atomic_open(path, "wb") as stream:
        figure.savefig(stream, dpi=110, format="png")
    plt.close(figure)
