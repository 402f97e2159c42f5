"""Functions that PyTorch composes differently while any dispatch mode is active.

`linear` adds its bias out of place, attention adds its mask out of place, and so on (PyTorch 2.14.1, the users of
aten/src/ATen/TensorSubclassLikeUtils.h in the forward direction).  Where an operand is unknown nothing would be
followed anyhow, so the mode steps aside for these calls, and the device sees what it would see without us.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.jit
import torch.nn.functional
from torch import _VF, Tensor
from torch.jit import _builtins

from .knowledge import storage_key
from .stack import insert_below, present, remove

if TYPE_CHECKING:
    from . import Values

is_compiling = torch.compiler.is_compiling
_FUNCTIONAL = ("linear", "scaled_dot_product_attention", "embedding_bag", "cross_entropy", "margin_ranking_loss",
               "hinge_embedding_loss", "cosine_embedding_loss", "triplet_margin_loss",
               "binary_cross_entropy_with_logits", "bilinear", "multi_head_attention_forward")  # fmt: skip
_VARIABLE_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")


def install(values: Values) -> None:
    """Wrap these functions."""
    for name in _FUNCTIONAL:
        _wrap(values, torch.nn.functional, name)
    _wrap_ctc(values)
    for name in _VARIABLE_FUNCTIONS:
        _wrap(values, _VF, name)


def _wrap(values: Values, module: Any, name: str) -> None:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        return
    mode = values._mode
    known = mode.known

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling() and values._started:
            for arg in args:
                if isinstance(arg, Tensor) and (
                    arg.requires_grad
                    or type(arg) is not Tensor
                    or (arg.is_cuda and storage_key(arg) not in known.entries)
                ):
                    if not remove(mode):
                        break
                    try:
                        return function(*args, **kwargs)
                    finally:
                        insert_below(mode)
        return function(*args, **kwargs)

    # TorchScript finds its own operators by the identity of the Python function.
    operator = _builtins._find_builtin(function)
    if operator is not None:
        _builtins._register_builtin(call, operator)
    setattr(module, name, call)


def _wrap_ctc(values: Values) -> None:
    """The lengths of `ctc_loss` decide over sizes: it gets them on the host, where it would copy them itself."""
    function = torch.nn.functional.ctc_loss
    mode = values._mode

    @functools.wraps(function)
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if is_compiling() or not (isinstance(log_probs, Tensor) and log_probs.is_cuda and present(mode)):
            return function(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)
        longest = targets.shape[1] if targets.dim() > 1 else targets.shape[0]
        if isinstance(input_lengths, Tensor) and isinstance(target_lengths, Tensor):
            input_lengths = _on_host(mode, input_lengths, log_probs.shape[0])
            target_lengths = _on_host(mode, target_lengths, longest)
        remove(mode)
        try:
            return function(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)
        finally:
            insert_below(mode)

    torch.nn.functional.ctc_loss = ctc_loss


def _on_host(mode: Any, lengths: Tensor, longest: int) -> Tensor:
    if not lengths.is_cuda:
        return lengths
    taints: list[str] = []
    value = mode.values_of(lengths, taints)
    if value is None:
        mode.ledger.note("lengths of ctc_loss", "full")
        return torch.full(lengths.shape, longest, dtype=lengths.dtype)
    for taint in taints[:1]:
        mode.ledger.note("lengths of ctc_loss", taint)
    return value.clone()
