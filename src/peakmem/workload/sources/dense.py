"""`dense:1000-100-100-10`: linear layers of these widths, with an activation between them."""

from __future__ import annotations

import re
from itertools import pairwise

from peakmem.errors import PeakmemError
from peakmem.workload.losses import CALLS, LOSSES, check_loss
from peakmem.workload.model import Request, Workload

ACTIVATIONS = {
    "relu": "ReLU", "gelu": "GELU", "silu": "SiLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "elu": "ELU",
    "selu": "SELU", "leaky-relu": "LeakyReLU", "mish": "Mish", "softplus": "Softplus", "none": "",
}  # fmt: skip


def dense(request: Request, rest: str) -> Workload:
    """The workload of `dense:` and what stands behind it.

    Raises:
        PeakmemError: these are no widths, or an option can't be.
    """
    widths = [int(word) for word in rest.split("-")] if re.fullmatch(r"\d+(-\d+)+", rest) else []
    if len(widths) < 2 or 0 in widths:
        raise PeakmemError(
            f"{rest!r} is no dense network", hint="widths from the input to the output, such as dense:1000-100-100-10"
        )
    if request.batch is None:
        raise PeakmemError("how many samples are in a batch?", hint="--batch 256")
    if request.shape is not None and request.shape != (widths[0],):
        raise PeakmemError(
            f"--input {'x'.join(map(str, request.shape))} is not what dense:{rest} takes",
            hint=f"it takes {widths[0]} numbers; leave --input out",
        )
    activation = ACTIVATIONS.get(request.activation.lower())
    if activation is None:
        raise PeakmemError(f"there is no activation {request.activation!r}", hint="one of " + ", ".join(ACTIVATIONS))
    loss = check_loss(request.loss or "cross-entropy")
    lines = [f"nn.Linear({a}, {b})" for a, b in pairwise(widths)]
    between = f"    nn.{activation}(),\n" if activation else ""
    layers = between.join(f"    {line},\n" for line in lines)
    batch = f"host_inputs = torch.randn({request.batch}, {widths[0]})\n"
    tensors: tuple[str, ...] = ("inputs", "targets")
    if loss == "cross-entropy":
        batch += f"host_targets = torch.randint({widths[-1]}, ({request.batch},))"
        floating: tuple[str, ...] = ("inputs",)
    elif loss == "mean":
        tensors, floating = ("inputs",), ("inputs",)
    else:
        batch += f"host_targets = torch.rand({request.batch}, {widths[-1]})"
        floating = ("inputs", "targets")
    call = "loss = model(inputs).mean()" if loss == "mean" else f"loss = {CALLS[loss]}(model(inputs), targets)"
    return Workload(
        title=f"a dense network {rest}" + (f" with {activation}" if activation else ""),
        model=f"model = nn.Sequential(\n{layers})",
        batch=batch,
        loss=call,
        loss_text=LOSSES[loss],
        tensors=tensors,
        floating=floating,
    )
