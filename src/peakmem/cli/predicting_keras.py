"""The options of `peakmem predict` for a Keras model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakmem.errors import PeakmemError
from peakmem.workload.keras.training import WITHOUT_MEANING, Compiled, compiled

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions


def compiled_of(options: PredictOptions) -> Compiled:
    """How a Keras model is trained; what is not given is taken from the model.

    Raises:
        PeakmemError: an option has no meaning for `model.fit`, or Keras is not here.
    """
    if options.amp is not None and options.precision == "bf16":
        raise PeakmemError(
            "--amp is for parameters in fp32", hint="give --amp bf16 or --precision bf16, not both of them"
        )
    return compiled(
        optimizer=options.optimizer,
        loss=options.loss,
        precision=f"amp-{options.amp}" if options.amp else options.precision,
        accumulate=options.accumulate,
        clip=options.clip,
        ema=options.ema,
        jit=options.compile,
        without_meaning=tuple(
            f"--{name.replace('_', '-')}" for name, usual in WITHOUT_MEANING.items() if getattr(options, name) != usual
        ),
    )
