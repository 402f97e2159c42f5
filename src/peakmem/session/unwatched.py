"""A run without any watching: the peaks are what the script prints itself."""

from __future__ import annotations

import os
import re
import subprocess

from peakmem.session.launching import Run
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.launch import NO_LIMIT, Options, environment

_LINE = re.compile(r"^max_memory_(requested|active|allocated|reserved) (\d+)$", re.MULTILINE)


def unwatched_peaks(run: Run, *, limited: bool) -> dict[str, int]:
    """The peaks that a script prints as `max_memory_allocated N` and so on, by the word, bytes; empty if it fails.

    Watching does not change what a script allocates, but Python collects garbage after so many objects were made, and
    hooks make objects. Where tensors lie in reference cycles (as with Keras), their end moves.

    Args:
        run: the command and its card.
        limited: whether the card's memory is a limit.
    """
    capacity = run.device.total_memory if limited else NO_LIMIT
    variables = environment(
        library=ensure_library(run.facts),
        device=run.device,
        facts=run.facts,
        options=Options(capacity=capacity, context=run.context, cudnn=run.cudnn, true_byte=1),
        base={**os.environ, **run.variables},
    )
    if run.alloc_conf is not None:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = run.alloc_conf
    try:
        done = subprocess.run(
            run.command, env=variables, capture_output=True, text=True, timeout=run.timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {word: int(number) for word, number in _LINE.findall(done.stdout)} if done.returncode == 0 else {}
