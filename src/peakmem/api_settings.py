"""The settings of `peakmem.predict` beside the device, for type checkers: what it gives depends on the device alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from peakmem.workload.training import Precision, Quantized, ZeroGrad


class Settings(TypedDict, total=False):
    """Each as `peakmem.predict` describes it."""

    targets: Any
    loss: str | Callable[..., Any] | None
    batch: int | None
    tokens: int | None
    optimizer: str | None
    precision: Precision
    steps: int | str
    gpu: str | None
    memory: str | None
    alloc_conf: str | None
    activation: str
    task: str | None
    checkpointing: bool
    selective_checkpointing: bool
    accumulate: int
    zero_grad: ZeroGrad
    keep_gradients: bool
    clip: float | None
    ema: bool
    lora: int | None
    quantize: Quantized | None
    freeze: tuple[str, ...]
    channels_last: bool
    optimizer_in_backward: bool
    offload_activations: bool
    cudnn_benchmark: bool
    deterministic: bool
    compile: bool
    cuda_graphs: bool
    with_range: bool
    timeout: float | None
