"""What every source gives: the pieces of a training script, still apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user said of the model and its data.

    Attributes:
        what: `dense:1000-100-10`, `torchvision:resnet50`, ...
        batch: samples in one forward pass; None: not said.
        shape: shape of one sample, without the batch; None: the model's own.
        tokens: length of a sequence; None: the model's own.
        loss: name of a loss (`losses.LOSSES`); None: the source's own.
        activation: name of an activation of `torch.nn`, for dense networks.
        task: task head of a Hugging Face model; None: guessed.
        arguments: keyword arguments of the user's function, as (name, Python literal).
    """

    what: str
    batch: int | None = None
    shape: tuple[int, ...] | None = None
    tokens: int | None = None
    loss: str | None = None
    activation: str = "ReLU"
    task: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The pieces of a training script that depend on the model. All are Python statements without indentation.

    Attributes:
        title: the model in words.
        model: makes `model`, on the host.
        batch: makes the tensors named in `tensors` on the host, once, before the loop.
        loss: makes `loss` from `model` and the names in `tensors`, which are on the GPU then.
        loss_text: the loss in words.
        tensors: names of the batch's tensors (or lists and dicts of tensors).
        imports: import statements.
        helpers: functions that the other pieces use.
        floating: those of `tensors` that follow the precision and the memory format of the model.
        nested: whether the tensors are lists or dicts of tensors, so that copying them needs a helper.
        checkpointing: turns on activation checkpointing; None: the blocks are looked for.
        selective_checkpointing: the same, with `context_fn=keep_products`; None: the blocks are looked for.
        adapted: expression for the layers that LoRA adapts, from `model`.
        assumed: what was chosen for the user and may differ in the real run, in words.
    """

    title: str
    model: str
    batch: str
    loss: str
    loss_text: str
    tensors: tuple[str, ...]
    imports: tuple[str, ...] = ()
    helpers: str = ""
    floating: tuple[str, ...] = ()
    nested: bool = False
    checkpointing: str | None = None
    selective_checkpointing: str | None = None
    adapted: str = "[name for name, module in model.named_modules() if isinstance(module, nn.Linear)]"
    assumed: tuple[str, ...] = ()
