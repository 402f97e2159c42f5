"""What to paste so that settings take effect: for a shell, Python and notebooks, a Dockerfile, a Slurm script."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from peakmem.allocator.settings import TorchVersion
from peakmem.allocator.settings.variables import preferred


@dataclass(frozen=True, kw_only=True, slots=True)
class Paste:
    """Lines to paste.

    Attributes:
        place: where they go.
        text: the lines.
    """

    place: str
    text: str


def pastes(alloc_conf: str, version: TorchVersion) -> tuple[Paste, ...]:
    """Lines for each place, with the variable that this PyTorch reads."""
    name = preferred(version)
    quoted = shlex.quote(alloc_conf)
    return (
        Paste(place="shell, before the command", text=f"export {name}={quoted}"),
        Paste(
            place="Python or notebook, above the first import of torch (after a restart of the kernel)",
            text=f'import os\nos.environ["{name}"] = "{alloc_conf}"',
        ),
        Paste(place="Dockerfile", text=f'ENV {name}="{alloc_conf}"'),
        # --export=NAME=VALUE would cut the value at its commas.
        Paste(
            place="Slurm batch script, above srun (not in --export, which cuts at commas)",
            text=f"export {name}={quoted}",
        ),
    )
