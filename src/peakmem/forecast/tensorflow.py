"""What a forecast of TensorFlow says beside the figures: who holds the memory, and what it takes by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peakmem.forecast.model import Forecast
from peakmem.trace.tensorflow_attribution import COMPILED, TRIED_OUT
from peakmem.units import format_size

WORTH_A_WORD = 0.1
"""Plans that are tried out are told from this share of the peak on."""


def with_tensorflow(forecast: Forecast, *, first: dict[str, Any], need: dict[str, Any]) -> Forecast:
    """The forecast with roles and notes.

    Args:
        forecast: made of the two recordings.
        first: of the run as the script is.
        need: of the run in which memory was taken as it was needed; the same where that is the script's own way.
    """
    allocated = forecast.peak.allocated
    roles = forecast.roles_at_peak or _by_variables(need["tensorflow"]["roles"], allocated)
    notes = list(forecast.notes)
    reserved = first["devices"][0]["peak"]["reserved"]
    if not first["tensorflow"]["growth"] and forecast.oom is None:
        notes.insert(
            0,
            f"by default TensorFlow takes {format_size(reserved)} of this card at its start, whatever it needs; "
            "reserved and used are with TF_FORCE_GPU_ALLOW_GROWTH=true",
        )
        in_use = first["devices"][0]["peak"]["allocated"]
        if in_use != allocated:
            notes.append(
                f"as the script is, {in_use:,} bytes are in use at the peak: larger chunks are split otherwise"
            )
    tried = _tried_out(forecast)
    if tried:
        notes.append(tried)
    if forecast.oom is not None and forecast.oom.needed is not None:
        notes.append("without a limit means a card of which TensorFlow was told that it has a terabyte")
    return replace(forecast, roles_at_peak=roles, unneeded_at_peak=(), notes=tuple(notes))


def _tried_out(forecast: Forecast) -> str:
    """That plans or kernels are tried out at the peak, as TensorFlow and XLA do when they first run them."""
    later = max((step.allocated for step in forecast.steps[1:]), default=0)
    steps = f"; later steps take {format_size(later)}" if later and later < forecast.peak.allocated else ""
    size = sum(holder.bytes for holder in forecast.holders_at_peak if holder.name.startswith(TRIED_OUT))
    if size >= WORTH_A_WORD * forecast.peak.allocated > 0:
        return (
            f"{format_size(size)} of the peak are workspaces of convolution plans, which TensorFlow tries out the "
            f"first time{steps}. TF_CUDNN_WORKSPACE_LIMIT_IN_MB bounds them, TF_CUDNN_USE_AUTOTUNE=0 tries none out"
        )
    compiled = any(holder.name == COMPILED for holder in forecast.holders_at_peak)
    if compiled and forecast.peak.step == 0 and 0 < later < (1 - WORTH_A_WORD) * forecast.peak.allocated:
        return (
            f"the peak is one of the first step, in which XLA tries out kernels{steps}. "
            "XLA_FLAGS=--xla_gpu_autotune_level=0 tries none out"
        )
    return ""


def _by_variables(known: dict[str, int], allocated: int) -> dict[str, int]:
    """Roles without a history of allocations: what the variables told at the end."""
    roles = {}
    left = allocated
    for role in ("parameter", "buffer", "gradient", "optimizer_state"):
        roles[role] = min(known.get(role, 0), left)
        left -= roles[role]
    return {**roles, "unattributed": left}
