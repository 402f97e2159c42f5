"""What training the parameters of a checkpoint holds at least: a script that trains tensors of these shapes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.model import Checkpoint
from peakmem.workload.training import Training

_SAY = '''def say(what):
    """Print what the allocator has handed out and holds."""
    print("held:", what, torch.cuda.memory_allocated(), torch.cuda.memory_reserved())'''


def write_checkpoint_script(checkpoint: Checkpoint, training: Training, *, steps: int) -> str:
    """The script.

    Raises:
        PeakmemError: the checkpoint has no parameters, or a setting needs the architecture.
    """
    _check(training)
    shapes = [tensor.shape for tensor in checkpoint.parameters]
    if not shapes:
        raise PeakmemError(f"{checkpoint.path} has no parameters: its tensors are {_kinds(checkpoint)}")
    dtype = "bfloat16" if training.precision == "bf16" else "float32"
    optimizer = training.optimizer
    imports = ["import torch", "from torch import nn"]
    if optimizer.package != "torch":
        imports.insert(0, f"import {optimizer.package}")
    if optimizer.name == "muon":
        made = [
            f"optimizers = [{optimizer.made_from('[p for p in parameters if p.ndim == 2]')}, "
            "torch.optim.AdamW([p for p in parameters if p.ndim != 2], lr=0.001)]"
        ]
    else:
        made = [f"optimizers = [{optimizer.made_from('parameters')}]"]
    lines = [
        f'"""Holds the parameters of {checkpoint.path.name}, their gradients and {optimizer} states.\n\n'
        'Written by peakmem predict.\n"""',
        "",
        *imports,
        "",
        "SHAPES = [",
        *(f"    *[{shape}] * {count}," for shape, count in _runs(shapes)),
        "]",
        "",
        "",
        _SAY,
        "",
        "",
        "parameters = nn.ParameterList(",
        f'    [nn.Parameter(torch.empty(shape, dtype=torch.{dtype}, device="cuda")) for shape in SHAPES]',
        ")",
        'say("parameters")',
        *made,
        "",
        f"for step in range({steps}):",
        "    for parameter in parameters:",
        "        parameter.grad = torch.empty_like(parameter)",
        "    if step == 0:",
        '        say("gradients")',
        *(["    torch.nn.utils.clip_grad_norm_(parameters, 1.0)"] if training.clip else []),
        "    for optimizer in optimizers:",
        "        optimizer.step()",
        "    if step == 0:",
        '        say("states")',
        "    for optimizer in optimizers:",
        f"        optimizer.zero_grad({'set_to_none=False' if training.keep_gradients else ''})",
    ]
    return "\n".join(lines) + "\n"


def _check(training: Training) -> None:
    for word, there in (
        ("--checkpointing", training.checkpointing),
        ("--selective-checkpointing", training.selective_checkpointing),
        ("--lora", training.lora is not None),
        ("--freeze", bool(training.freeze)),
        ("--ema", training.ema),
        ("--optimizer-in-backward", training.optimizer_in_backward),
        ("--offload-activations", training.offload_activations),
        ("--compile", training.compile),
        ("--cuda-graphs", training.cuda_graphs),
        ("--accumulate", training.accumulate > 1),
        ("--optimizer lbfgs", training.optimizer.name == "lbfgs"),
    ):
        if there:
            raise PeakmemError(
                f"{word} needs the architecture, which a checkpoint does not have",
                hint="peakmem predict hf:FOLDER, timm:NAME or file.py:function",
            )


def _runs(shapes: Iterable[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]]:
    return [(shape, sum(1 for _ in group)) for shape, group in groupby(shapes)]


def _kinds(checkpoint: Checkpoint) -> str:
    return ", ".join(sorted({tensor.dtype for tensor in checkpoint.tensors}))
