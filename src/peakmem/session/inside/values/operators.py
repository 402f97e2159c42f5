"""What has to be known of an operator to follow values through it, worked out once for each overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Operators whose product is too costly to repeat on the host for large operands.
_COSTLY = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "matmul",
    "conv",
    "linalg",
    "svd",
    "cdist",
    "attention",
    "fft",
    "rnn",
    "lstm",
)
_COSTLY_LIMIT = 1 << 16
# Not marked as mutated in the schema, but written in training (PyTorch 2.14.1, native_functions.yaml).
_HIDDEN_WRITES = {
    "cudnn_batch_norm": (3, 4),
    "native_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
    "batch_norm_gather_stats": (3, 4),
    "batch_norm_gather_stats_with_counts": (3, 4),
    "batch_norm_update_stats": (1, 2),
}
# Every element of the first argument is written, none is read.
_OVERWRITES = {"copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_", "geometric_",
               "log_normal_", "cauchy_"}  # fmt: skip
# Composed differently while a dispatch mode is active (see `aside`), and nothing in them is worth following.
_WHOLE = {"linear", "scaled_dot_product_attention", "embedding_bag", "cross_entropy_loss", "bilinear", "lstm", "gru",
          "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "matmul"}  # fmt: skip
_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
_FILLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "empty": lambda args: 0,
    "empty_strided": lambda args: 0,
    "empty_like": lambda args: 0,
    "new_empty": lambda args: 0,
    "new_empty_strided": lambda args: 0,
    "zeros": lambda args: 0,
    "zeros_like": lambda args: 0,
    "new_zeros": lambda args: 0,
    "ones": lambda args: 1,
    "ones_like": lambda args: 1,
    "new_ones": lambda args: 1,
    "full": lambda args: args[1],
    "full_like": lambda args: args[1],
    "new_full": lambda args: args[2],
    "scalar_tensor": lambda args: args[0],
    "zero_": lambda args: 0,
    "fill_": lambda args: args[1],
}


class Operator:
    """One overload, as the mode sees it."""

    __slots__ = (
        "call",
        "composite",
        "costly",
        "device",
        "fill",
        "func",
        "hidden",
        "mutated",
        "name",
        "out",
        "overwrites",
        "plain",
        "pointwise",
        "seeded",
        "special",
    )

    def __init__(self, func: Any, special: Callable[..., Any] | None) -> None:
        schema = func._schema
        self.func = func
        self.call = getattr(func, "_op", func)
        self.name: str = schema.name.split("::")[1]
        arguments = schema.arguments
        written = [
            (index, argument.name, argument.kwarg_only)
            for index, argument in enumerate(arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.mutated = [index for index, _, keyword in written if not keyword]
        self.out = [name for _, name, keyword in written if keyword]
        self.hidden = _HIDDEN_WRITES.get(self.name, ()) if schema.name.startswith("aten::") else ()
        self.device = any(argument.name == "device" for argument in arguments)
        self.fill = _FILLS.get(self.name) if schema.name.startswith("aten::") and not self.out else None
        self.overwrites = self.name in _OVERWRITES
        tags = func.tags
        self.pointwise = torch.Tag.pointwise in tags
        self.seeded = torch.Tag.nondeterministic_seeded in tags
        self.costly = any(part in self.name for part in _COSTLY)
        self.special = special
        self.composite = (
            _has_kernel(func.name(), "CompositeImplicitAutograd")
            and not _has_kernel(func.name(), "CUDA")
            and self.name not in _WHOLE
        )
        self.plain = not (self.mutated or self.out or self.hidden or self.special or self.composite)

    def affordable(self, sizes: int) -> bool:
        """Whether the host may repeat it for operands of this many elements in all."""
        return not self.costly or sizes <= _COSTLY_LIMIT
