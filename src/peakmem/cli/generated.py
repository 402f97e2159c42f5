"""The script that `peakmem predict` writes, on disk for as long as its run takes, or kept where it was asked for."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

NAME = "predict.py"

F = TypeVar("F")


@dataclass(frozen=True, kw_only=True, slots=True)
class Generated:
    """A script that was written to disk.

    Attributes:
        path: its file.
        folder: the temporary folder that holds it; None where the script is kept.
    """

    path: Path
    folder: Path | None

    @property
    def command(self) -> tuple[str, ...]:
        """How it is run: by the Python that peakmem runs with, which has found the model."""
        return sys.executable, str(self.path)

    def named(self, forecast: F) -> F:
        """The forecast with places in the script named as `predict.py:12`, without the temporary folder."""
        if self.folder is None:
            return forecast
        text = msgspec.json.encode(forecast).replace(f"{self.folder}/".encode(), b"")
        return msgspec.json.decode(text, type=type(forecast))


@contextmanager
def generated(script: str, *, keep: str | None) -> Iterator[Generated]:
    """Write a script to disk.

    Args:
        script: its text.
        keep: the file that it is to be kept in; None: it goes with the run.
    """
    if keep:
        path = Path(keep)
        path.write_text(script, encoding="utf-8")
        yield Generated(path=path, folder=None)
        return
    with tempfile.TemporaryDirectory(prefix="peakmem-predict-") as folder:
        path = Path(folder, NAME)
        path.write_text(script, encoding="utf-8")
        yield Generated(path=path, folder=Path(folder))
