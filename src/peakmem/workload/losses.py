"""Losses that have a name."""

from __future__ import annotations

from peakmem.errors import PeakmemError

LOSSES = {
    "cross-entropy": "cross entropy",
    "mse": "mean squared error",
    "l1": "mean absolute error",
    "bce": "binary cross entropy with logits",
    "mean": "the mean of the output",
}
"""Name -> the loss in words."""

CALLS = {
    "cross-entropy": "nn.functional.cross_entropy",
    "mse": "nn.functional.mse_loss",
    "l1": "nn.functional.l1_loss",
    "bce": "nn.functional.binary_cross_entropy_with_logits",
}


def check_loss(name: str) -> str:
    """The name, if it is one.

    Raises:
        PeakmemError: it is none.
    """
    if name not in LOSSES:
        raise PeakmemError(f"there is no loss {name!r}", hint="one of " + ", ".join(LOSSES))
    return name
