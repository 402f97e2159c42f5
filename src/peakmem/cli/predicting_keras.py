"""The options of `peakmem predict` for a Keras model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from peakmem.errors import PeakmemError
from peakmem.workload.keras.training import (
    POLICIES,
    Compiled,
    check_installed,
    loss_expression,
    optimizer_expression,
)

if TYPE_CHECKING:
    from peakmem.cli.predicting import PredictOptions

_NOT_KERAS = {
    "checkpointing": ("--checkpointing", False),
    "zero_grad": ("--zero-grad", "start"),
    "keep_gradients": ("--keep-gradients", False),
    "lora": ("--lora", None),
    "freeze": ("--freeze", ()),
    "channels_last": ("--channels-last", False),
    "optimizer_in_backward": ("--optimizer-in-backward", False),
    "offload_activations": ("--offload-activations", False),
    "cudnn_benchmark": ("--cudnn-benchmark", False),
    "deterministic": ("--deterministic", False),
}
"""Options that have no meaning for `model.fit`, with the value that says they were not given."""


def compiled_of(options: PredictOptions) -> Compiled:
    """How a Keras model is trained; what is not given is taken from the model.

    Raises:
        PeakmemError: an option has no meaning for `model.fit`, or Keras is not here.
    """
    for field, (word, usual) in _NOT_KERAS.items():
        if getattr(options, field) != usual:
            raise PeakmemError(
                f"{word} is nothing that model.fit knows", hint="set it up in the function that builds the model"
            )
    backend = os.environ.get("KERAS_BACKEND", "torch")
    check_installed(backend)
    if options.amp is not None and options.precision == "bf16":
        raise PeakmemError(
            "--amp is for parameters in fp32", hint="give --amp bf16 or --precision bf16, not both of them"
        )
    settings: dict[str, Any] = {}
    if options.accumulate > 1:
        settings["gradient_accumulation_steps"] = options.accumulate
    if options.clip is not None:
        settings["global_clipnorm"] = options.clip
    if options.ema:
        settings["use_ema"] = True
    return Compiled(
        optimizer=None if options.optimizer is None else optimizer_expression(options.optimizer),
        loss=None if options.loss is None else loss_expression(options.loss),
        settings=settings,
        policy=POLICIES.get(f"amp-{options.amp}" if options.amp else options.precision),
        tf32=options.precision == "tf32",
        jit=options.compile,
        backend=backend,
    )
