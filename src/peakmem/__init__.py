"""How much CPU and GPU memory a training run will take, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peakmem.api import predict, watch
    from peakmem.errors import PeakmemError
    from peakmem.forecast.model import Forecast

__version__ = "0.1.0"
__all__ = ["Forecast", "PeakmemError", "__version__", "predict", "watch"]

_PLACES = {
    "predict": "peakmem.api",
    "watch": "peakmem.api",
    "Forecast": "peakmem.forecast.model",
    "PeakmemError": "peakmem.errors",
}
"""Public name -> the module that has it; they are loaded when they are asked for, so that `import peakmem` is light."""


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'peakmem' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext peakmem` calls: it brings `%peakmem` and `%%peakmem`."""
    from peakmem.notebook.magics import PeakmemMagics

    shell.register_magics(PeakmemMagics)


def __dir__() -> list[str]:
    return sorted(__all__)
