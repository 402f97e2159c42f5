"""Loads modules in another thread: what reads a recording, while the command that makes it keeps one core busy."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable


def load_meanwhile(names: Iterable[str]) -> threading.Thread:
    """Begin to import modules; `join` of what is given waits until they are there."""

    def load() -> None:
        for name in names:
            importlib.import_module(name)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread
