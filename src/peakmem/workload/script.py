"""A workload and its training settings as one plain Python script, which runs on a real GPU just as well."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill, indent

from peakmem.workload.model import Workload
from peakmem.workload.training import Training

_TO_DEVICE = '''
def to_device(value):
    """Copy the tensors in lists, tuples and dicts to the GPU."""
    if torch.is_tensor(value):
        return value.cuda()
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_device, value))
    return {key: to_device(part) for key, part in value.items()} if isinstance(value, dict) else value
'''

_SHAPES = '''
def shapes(value):
    """The shapes of the tensors in lists, tuples and dicts, as text."""
    if torch.is_tensor(value):
        return " x ".join(map(str, value.shape)) + f" {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shapes(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return f"{len(value)} of {shapes(value[0])}" if value else "nothing"
    return repr(value)
'''

_BLOCKS = '''
def blocks_of(model):
    """The blocks of a model: the outermost modules with children whose class occurs more than once."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    parents = [m for m in model.modules() if next(m.children(), None) is not None and not isinstance(m, containers)]
    counts = Counter(type(module) for module in parents)
    blocks, inner = [], set()
    for module in parents:
        if counts[type(module)] > 1 and module not in inner:
            blocks.append(module)
            inner.update(module.modules())
    if not blocks:
        raise SystemExit("this model has no blocks that occur more than once: nothing to checkpoint")
    return blocks


def checkpoint_blocks(model):
    """Let each block run again in the backward pass instead of keeping its activations."""
    for block in blocks_of(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
'''


def write_script(workload: Workload, training: Training, *, steps: int) -> str:
    """The script."""
    return _Writer(workload, training, steps).script()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pieces:
    """The parts of a training script, to be put together in another way. All are Python statements.

    Attributes:
        opening: imports, helpers, switches.
        model: makes `model` and what trains it.
        batch: makes one batch on the host.
        copies: lines that copy it to the GPU.
        forward: lines that make `loss`.
        loop: the loop over `range(STEPS)`.
        optimizers: names of the optimizers.
    """

    opening: str
    model: str
    batch: str
    copies: tuple[str, ...]
    forward: tuple[str, ...]
    loop: str
    optimizers: tuple[str, ...]


def pieces(workload: Workload, training: Training) -> Pieces:
    """The parts of the script that `write_script` writes."""
    return _Writer(workload, training, 0).pieces()


class _Writer:
    def __init__(self, workload: Workload, training: Training, steps: int) -> None:
        self._workload = workload
        self._training = training
        self._steps = steps
        self._blocks = training.checkpointing and workload.checkpointing is None

    def script(self) -> str:
        workload = self._workload
        words = fill(f"{self._training.words()}. Written by peakmem predict.", width=100)
        opening = f'"""Trains {workload.title}.\n\n{words}\n"""'
        helpers = self._helpers()
        parts = [
            opening,
            "\n".join(self._imports()) + (f"\n\n\n{helpers}\n" if helpers else ""),
            f"STEPS = {self._steps}",
            *self._switches(),
            "\n".join(self._model()),
            "\n".join(self._batch()),
            "\n".join(self._loop()),
            'print("max_memory_allocated", torch.cuda.max_memory_allocated())\n'
            'print("max_memory_reserved", torch.cuda.max_memory_reserved())',
        ]
        return "\n\n".join(parts) + "\n"

    def pieces(self) -> Pieces:
        helpers = self._helpers()
        opening = "\n".join(self._imports()) + (f"\n\n\n{helpers}\n" if helpers else "")
        return Pieces(
            opening="\n\n".join([opening, *self._switches()]),
            model="\n".join(self._model()),
            batch="\n".join(self._batch()),
            copies=tuple(self._copies()),
            forward=tuple(self._forward()),
            loop="\n".join(self._loop()),
            optimizers=tuple(self._names()),
        )

    def _imports(self) -> list[str]:
        training = self._training
        plain = {"import functools", "from collections import Counter"} if self._blocks else set()
        if training.deterministic:
            plain.add("import os")
        others = {"import torch", "from torch import nn", *self._workload.imports}
        if self._blocks:
            others.add("from torch.utils.checkpoint import checkpoint")
        if training.optimizer.package == "bitsandbytes":
            others.add("import bitsandbytes")
        if training.lora is not None:
            others.add("from peft import LoraConfig, get_peft_model")

        def order(line: str) -> tuple[bool, str]:
            return line.startswith("from"), line

        lines = [*sorted(plain, key=order), *([""] if plain else [])]
        if training.deterministic:
            # cuBLAS reads it when it is loaded (PyTorch's notes on reproducibility).
            lines += ['os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")', ""]
        return [*lines, *sorted(others, key=order)]

    def _helpers(self) -> str:
        parts = [self._workload.helpers, *([_SHAPES, self._to_device()] if self._workload.nested else [])]
        parts += [_BLOCKS] if self._blocks else []
        return "\n\n\n".join(part.strip("\n") for part in parts if part.strip())

    def _to_device(self) -> str:
        if self._training.precision != "bf16":
            return _TO_DEVICE
        cast = "value.to(torch.bfloat16) if value.is_floating_point() else value"
        return _TO_DEVICE.replace("value.cuda()", f"({cast}).cuda()")

    def _switches(self) -> list[str]:
        training = self._training
        lines = ["torch.manual_seed(0)"]  # some models size tensors by chance
        if training.precision == "tf32":
            lines.append('torch.set_float32_matmul_precision("high")')
        if training.cudnn_benchmark:
            lines.append("torch.backends.cudnn.benchmark = True")
        if training.deterministic:
            lines.append("torch.use_deterministic_algorithms(True)")
        return ["\n".join(lines)]

    def _model(self) -> list[str]:
        training, workload = self._training, self._workload
        lines = [workload.model.strip("\n")]
        if training.lora is not None:
            lines.append(
                f"model = get_peft_model(model, LoraConfig(r={training.lora}, lora_alpha={2 * training.lora}, "
                'target_modules="all-linear"))'
            )
        if training.precision == "bf16":
            lines.append("model = model.to(torch.bfloat16)")
        if training.channels_last:
            lines.append("model = model.to(memory_format=torch.channels_last)")
        lines.append("model = model.cuda().train()")
        if training.freeze:
            lines += [
                f"frozen = [p for name, p in model.named_parameters() if name.startswith({training.freeze!r})]",
                "if not frozen:",
                f'    raise SystemExit("no parameter has a name that begins with {" or ".join(training.freeze)}")',
                "for parameter in frozen:",
                "    parameter.requires_grad_(False)",
            ]
        if training.checkpointing:
            lines.append(workload.checkpointing or "checkpoint_blocks(model)")
        lines.append("trained = [parameter for parameter in model.parameters() if parameter.requires_grad]")
        lines += self._optimizer()
        if training.precision == "amp-fp16":
            lines.append('scaler = torch.amp.GradScaler("cuda")')
        if training.ema:
            lines.append(
                "average = torch.optim.swa_utils.AveragedModel("
                "model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))"
            )
        if training.compile:
            lines.append("model.compile()")
        lines.append(
            'print(f"parameters: {sum(p.numel() for p in model.parameters()):,}, '
            'trained: {sum(p.numel() for p in trained):,}")'
        )
        return lines

    def _optimizer(self) -> list[str]:
        optimizer = self._training.optimizer
        if self._training.optimizer_in_backward:
            return [
                f"optimizers = {{parameter: {optimizer.made_from('[parameter]')} for parameter in trained}}",
                "",
                "",
                "def step_now(parameter):",
                '    """Step a parameter and drop its gradient as soon as it has one."""',
                "    optimizers[parameter].step()",
                "    optimizers[parameter].zero_grad()",
                "",
                "",
                "for parameter in trained:",
                "    parameter.register_post_accumulate_grad_hook(step_now)",
                "",
            ]
        if optimizer.name == "muon":
            # Muon takes matrices only (torch.optim.Muon's documentation).
            return [
                f"matrices = {optimizer.made_from('[p for p in trained if p.ndim == 2]')}",
                "others = torch.optim.AdamW([p for p in trained if p.ndim != 2], lr=0.001)",
            ]
        return [f"optimizer = {optimizer.made_from('trained')}"]

    def _names(self) -> list[str]:
        if self._training.optimizer_in_backward:
            return []
        return ["matrices", "others"] if self._training.optimizer.name == "muon" else ["optimizer"]

    def _batch(self) -> list[str]:
        lines = [
            "torch.manual_seed(0)  # chances in training do not depend on how the model was made",
            "",
            "# One batch on the host, as a data loader gives it; every step copies it to the GPU.",
            self._workload.batch.strip("\n"),
        ]
        for name in self._workload.tensors:
            host = self._on_host(name)
            shown = f"shapes({host})" if self._workload.nested else f"*{host}.shape, {host}.dtype"
            lines.append(f'print("batch: {name}", {shown})')
        return lines

    @staticmethod
    def _on_host(name: str) -> str:
        return f"host_{name}"

    def _copies(self) -> list[str]:
        lines = []
        for name in self._workload.tensors:
            host = self._on_host(name)
            if self._workload.nested:
                lines.append(f"{name} = to_device({host})")
                continue
            text = f"{host}.cuda()"
            if name in self._workload.floating and self._training.precision == "bf16":
                text = f"{host}.to(torch.bfloat16).cuda()"
            if name in self._workload.floating and self._training.channels_last:
                text += ".contiguous(memory_format=torch.channels_last)"
            lines.append(f"{name} = {text}")
        return lines

    def _forward(self) -> list[str]:
        training = self._training
        lines = self._workload.loss.strip("\n").splitlines()
        if training.offload_activations:
            lines = ["with torch.autograd.graph.save_on_cpu(pin_memory=True):", *(f"    {line}" for line in lines)]
        if training.precision.startswith("amp-"):
            kind = {"amp-bf16": "bfloat16", "amp-fp16": "float16"}[training.precision]
            lines = [f'with torch.autocast("cuda", dtype=torch.{kind}):', *(f"    {line}" for line in lines)]
        return lines

    def _zero(self) -> list[str]:
        how = "set_to_none=False" if self._training.keep_gradients else ""
        return [f"{name}.zero_grad({how})" for name in self._names()]

    def _loop(self) -> list[str]:
        training = self._training
        scaled = training.precision == "amp-fp16"
        loss = "loss" if training.accumulate == 1 else f"loss / {training.accumulate}"
        backward = f"scaler.scale({loss}).backward()" if scaled else f"({loss}).backward()".replace("(loss)", "loss")
        if training.optimizer.name == "lbfgs":
            return self._loop_with_closure()
        passes = [*self._copies(), *self._forward()]
        lines: list[str] = []
        if training.zero_grad == "start":
            lines += self._zero()
        if training.zero_grad == "backward" and training.accumulate == 1:
            passes += self._zero()
        passes.append(backward)
        if training.accumulate > 1:
            lines += self._zero() if training.zero_grad == "backward" else []
            passes = [f"for _ in range({training.accumulate}):", *(f"    {line}" for line in passes)]
        lines += passes
        if training.clip is not None:
            lines += [f"scaler.unscale_({name})" for name in self._names()] if scaled else []
            lines.append(f"torch.nn.utils.clip_grad_norm_(trained, {training.clip})")
        lines += [f"scaler.step({name})" if scaled else f"{name}.step()" for name in self._names()]
        lines += ["scaler.update()"] if scaled else []
        lines += ["average.update_parameters(model)"] if training.ema else []
        lines += self._zero() if training.zero_grad == "end" else []
        return ["for step in range(STEPS):", *(f"    {line}" for line in lines)]

    def _loop_with_closure(self) -> list[str]:
        closure = ["optimizer.zero_grad()", *self._forward(), "loss.backward()", "return loss"]
        lines = [
            *self._copies(),
            "",
            "def closure():",
            *(f"    {line}" for line in closure),
            "",
            "optimizer.step(closure)",
        ]
        lines += ["average.update_parameters(model)"] if self._training.ema else []
        return ["for step in range(STEPS):", *indent("\n".join(lines), "    ").splitlines()]
