"""Where following has to stop: the backward pass and optimizers, which depend on who holds a tensor."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd
import torch.utils.checkpoint
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

if TYPE_CHECKING:
    from . import Values


def install(values: Values) -> None:
    """Pause in the backward pass and in optimizer steps; go on in closures and in recomputed forward passes."""
    run = torch.autograd.graph._engine_run_backward

    @functools.wraps(run)
    def run_paused(*args: Any, **kwargs: Any) -> Any:
        values._mode.backward.attach(args[0] if isinstance(args[0], (tuple, list)) else (args[0],))
        with values.paused():
            return run(*args, **kwargs)

    torch.autograd.graph._engine_run_backward = run_paused
    torch.autograd._engine_run_backward = run_paused

    register_optimizer_step_pre_hook(functools.partial(_before_step, values))
    register_optimizer_step_post_hook(functools.partial(_after_step, values))

    _count_steps(values)

    checkpoint = torch.utils.checkpoint.checkpoint

    @functools.wraps(checkpoint)
    def checkpoint_followed(function: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(_followed(values, function), *args, **kwargs)

    torch.utils.checkpoint.checkpoint = checkpoint_followed

    compile_ = torch.compile

    @functools.wraps(compile_)
    def compile_aside(*args: Any, **kwargs: Any) -> Any:
        _step_aside_for_compiled_code(values)
        return compile_(*args, **kwargs)

    torch.compile = compile_aside


def _step_aside_for_compiled_code(values: Values) -> None:
    """Functions that are compiled from now on run without the mode, which their compiler would compile as well."""
    from torch._dynamo import eval_frame  # slow to import, so not before it is needed

    context = eval_frame._TorchDynamoContext
    original = context.__call__
    if getattr(original, "_peakmem", False):
        return

    def __call__(self: Any, function: Any) -> Any:
        compiled = original(self, function)
        if isinstance(compiled, (type, torch.nn.Module)) or not callable(compiled):
            return compiled

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            with values.paused():
                return compiled(*args, **kwargs)

        return call

    __call__._peakmem = True  # type: ignore[attr-defined]
    context.__call__ = __call__


def _count_steps(values: Values) -> None:
    """A step counter on the device reads as 0.5 where it is not known.

    It is there after a checkpoint was loaded onto the device, and optimizers divide by `1 - beta ** step`, or by
    `1 - mu_product`, a number between 0 and 1 that NAdam keeps beside it.
    """

    def counted(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def get_value(x: Any) -> Any:
            value = original(x)
            if not torch.compiler.is_compiling() and isinstance(x, torch.Tensor) and x.is_cuda and value == 0:
                values._mode.ledger.note("step counter of an optimizer on the device", "0.5")
                return 0.5
            return value

        return get_value

    # Each optimizer has the function under a name of its own module (PyTorch 2.14.1, torch/optim/optimizer.py).
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and hasattr(module, "_get_value"):
            module._get_value = counted(module._get_value)  # type: ignore[attr-defined]


def _followed(values: Values, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with values.active():
            return function(*args, **kwargs)

    return call


def _before_step(values: Values, optimizer: Any, args: Any, kwargs: Any) -> Any:
    values.forget(parameter for group in optimizer.param_groups for parameter in group["params"])
    values.pause()
    # A closure holds a forward pass.
    if len(args) > 1 and callable(args[1]):
        return (args[0], _followed(values, args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _followed(values, kwargs["closure"])}
    return None


def _after_step(values: Values, optimizer: Any, args: Any, kwargs: Any) -> None:
    values.resume()
