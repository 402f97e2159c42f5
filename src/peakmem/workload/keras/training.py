"""How a Keras model is trained: what it was compiled with, and what the user says besides."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
from dataclasses import dataclass, field
from typing import Any

from peakmem.errors import PeakmemError

OPTIMIZERS = {
    "adadelta": "Adadelta", "adafactor": "Adafactor", "adagrad": "Adagrad", "adam": "Adam", "adamax": "Adamax",
    "adamw": "AdamW", "ftrl": "Ftrl", "lamb": "Lamb", "lion": "Lion", "muon": "Muon", "nadam": "Nadam",
    "rmsprop": "RMSprop", "sgd": "SGD",
}  # fmt: skip
"""Names of the optimizers of `keras.optimizers` (Keras 3.15)."""

POLICIES = {"amp-bf16": "mixed_bfloat16", "amp-fp16": "mixed_float16", "bf16": "bfloat16"}
"""Our precisions as policies of Keras."""

LOSSES = {
    "cross-entropy": "keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
    "mse": '"mean_squared_error"',
    "l1": '"mean_absolute_error"',
    "bce": "keras.losses.BinaryCrossentropy(from_logits=True)",
}
"""Our names of losses as expressions of Keras; other names are taken as Keras' own."""

WITHOUT_MEANING = {
    "checkpointing": False, "zero_grad": "start", "keep_gradients": False, "lora": None, "freeze": (),
    "channels_last": False, "optimizer_in_backward": False, "offload_activations": False, "cudnn_benchmark": False,
    "deterministic": False, "selective_checkpointing": False, "quantize": None, "cuda_graphs": False,
}  # fmt: skip
"""Settings of `workload.training.Training` that have no meaning for `model.fit`, with the value of those not given."""

BACKENDS = ("torch", "tensorflow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What takes the place of what a model was compiled with.

    Attributes:
        optimizer: an expression that makes the optimizer; None: the model's own.
        loss: an expression that makes the loss; None: the model's own.
        settings: keyword arguments that are set on the optimizer: `gradient_accumulation_steps`, `global_clipnorm`,
            `use_ema`.
        policy: dtype policy of the layers; None: the model's own.
        tf32: whether matrix products take tf32.
        jit: whether the train step is compiled.
        backend: `torch` or `tensorflow`.
    """

    optimizer: str | None = None
    loss: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    policy: str | None = None
    tf32: bool = False
    jit: bool = False
    backend: str = "torch"

    @property
    def collects_garbage(self) -> bool:
        """Whether the peak hangs on when Python collects garbage, so that watching may change it."""
        return self.backend == "torch"

    def words(self) -> str:
        """What was set, in words; the script prints what the model has."""
        said = [self.optimizer or "", self.policy or "", *(f"{key}={value}" for key, value in self.settings.items())]
        said += ["tf32"] if self.tf32 else []
        return ", ".join(filter(None, [*said, "compiled" if self.jit else ""])) or "as the model was compiled"

    def assumed(self) -> list[str]:
        """What may differ in the real run, in words."""
        if self.backend != "torch":
            return []
        return [
            "Python collects garbage as it does in this very script: Keras leaves tensors in reference cycles, so "
            "callbacks and other Python code of yours may shift the peak by some of them"
        ]


def compiled(
    *,
    optimizer: str | None = None,
    loss: str | None = None,
    precision: str = "fp32",
    accumulate: int = 1,
    clip: float | None = None,
    ema: bool = False,
    jit: bool = False,
    without_meaning: tuple[str, ...] = (),
) -> Compiled:
    """How a Keras model is trained; what is not given is taken from the model.

    Args:
        optimizer: as `--optimizer` takes it.
        loss: one of our names, or one of Keras'.
        precision: as `workload.training.Precision` has it.
        accumulate: batches for one step.
        clip: largest norm of all gradients.
        ema: whether an averaged copy is kept.
        jit: whether the train step is compiled.
        without_meaning: options that were given and that `model.fit` does not know.

    Raises:
        PeakmemError: an option has no meaning for `model.fit`, or Keras is not here.
    """
    if without_meaning:
        raise PeakmemError(
            f"{without_meaning[0]} is nothing that model.fit knows",
            hint="set it up in the function that builds the model",
        )
    backend = os.environ.get("KERAS_BACKEND", "torch")
    check_installed(backend)
    settings: dict[str, Any] = {}
    if accumulate > 1:
        settings["gradient_accumulation_steps"] = accumulate
    if clip is not None:
        settings["global_clipnorm"] = clip
    if ema:
        settings["use_ema"] = True
    return Compiled(
        optimizer=None if optimizer is None else optimizer_expression(optimizer),
        loss=None if loss is None else loss_expression(loss),
        settings=settings,
        policy=POLICIES.get(precision),
        tf32=precision == "tf32",
        jit=jit,
        backend=backend,
    )


def optimizer_expression(text: str) -> str:
    """`sgd:momentum=0.9` as an expression of Keras.

    Raises:
        PeakmemError: there is no such optimizer, or its arguments can't be read.
    """
    name, _, rest = text.partition(":")
    name = name.strip().lower()
    if name not in OPTIMIZERS:
        near = difflib.get_close_matches(name, OPTIMIZERS, n=1)
        raise PeakmemError(
            f"Keras has no optimizer {name!r}",
            hint=f"did you mean {near[0]}?" if near else "one of " + ", ".join(OPTIMIZERS),
        )
    words = []
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise PeakmemError(f"--optimizer {text}: {part!r} is no KEY=VALUE", hint="--optimizer sgd:momentum=0.9")
        if value.lower() in ("true", "false", "none"):
            value = value.capitalize()
        try:
            words.append(f"{key}={ast.literal_eval(value)!r}")
        except (ValueError, SyntaxError) as error:
            raise PeakmemError(f"--optimizer {text}: {value!r} is no number, true, false or none") from error
    return f"keras.optimizers.{OPTIMIZERS[name]}({', '.join(words)})"


def loss_expression(name: str) -> str:
    """A loss as an expression of Keras: one of our names, or Keras' own."""
    if name in LOSSES:
        return LOSSES[name]
    if not name.replace("_", "").isalnum():
        raise PeakmemError(f"there is no loss {name!r}", hint="one of " + ", ".join(LOSSES) + ", or a name of Keras'")
    return repr(name)


def check_installed(backend: str) -> None:
    """Raise a PeakmemError unless Keras 3 and its backend are here."""
    if importlib.util.find_spec("keras") is None:
        raise PeakmemError("a Keras model needs keras, which is not here", hint="pip install keras")
    if backend not in BACKENDS:
        raise PeakmemError(f"Keras' backend {backend!r} does not train here", hint="one of " + ", ".join(BACKENDS))
    if importlib.util.find_spec(backend) is None:
        other = next((name for name in BACKENDS if importlib.util.find_spec(name) is not None), None)
        hint = f"pip install {backend}" + (f", or KERAS_BACKEND={other}, which is here" if other else "")
        raise PeakmemError(f"Keras' backend {backend} is not here", hint=hint)
