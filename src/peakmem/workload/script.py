"""A workload and its training settings as one plain Python script, which runs on a real GPU just as well."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill, indent

from peakmem.workload.helpers import BLOCKS, FILL, KEPT, QUANTIZE, SHAPES, TO_DEVICE
from peakmem.workload.model import Workload
from peakmem.workload.training import Training


def write_script(workload: Workload, training: Training, *, steps: int) -> str:
    """The script."""
    return _Writer(workload, training, steps).script()


_PEAKS = {
    "gpu": 'print("max_memory_allocated", torch.cuda.max_memory_allocated())\n'
    'print("max_memory_reserved", torch.cuda.max_memory_reserved())',
    "cpu": 'print("max_rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)',
}
"""What the script prints at its end, by what trains, bytes."""
_BATCH = {
    "gpu": "# One batch on the host, as a data loader gives it; every step copies it to the GPU.",
    "cpu": "# One batch, as a data loader gives it.",
}


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
        own = workload.selective_checkpointing if training.selective_checkpointing else workload.checkpointing
        self._checkpoints = training.checkpointing or training.selective_checkpointing
        self._own_checkpointing = own
        self._blocks = self._checkpoints and own is None
        self._device = "cuda" if training.device == "gpu" else "cpu"
        self._moved = ".cuda()" if training.device == "gpu" else ""

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
            _PEAKS[self._training.device],
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
        if training.device == "cpu":
            plain.add("import resource")
        others = {"import torch", "from torch import nn", *self._workload.imports}
        if self._blocks:
            others.add("from torch.utils.checkpoint import checkpoint")
        if training.selective_checkpointing:
            others.discard("from torch.utils.checkpoint import checkpoint")
            names = "checkpoint, create_selective_checkpoint_contexts"
            names = names if self._blocks else "create_selective_checkpoint_contexts"
            others.add(f"from torch.utils.checkpoint import {names}")
        if training.optimizer.package == "bitsandbytes":
            others.add("import bitsandbytes")
        if training.lora is not None:
            others.add("from peft import LoraConfig, get_peft_model")
        if training.quantize is not None:
            others.discard("from peft import LoraConfig, get_peft_model")
            others.add("from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training")
            others.add("from bitsandbytes.nn import Linear4bit, Params4bit")

        def order(line: str) -> tuple[bool, str]:
            return line.startswith("from"), line

        lines = [*sorted(plain, key=order), *([""] if plain else [])]
        if training.deterministic:
            # cuBLAS reads it when it is loaded (PyTorch's notes on reproducibility).
            lines += ['os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")', ""]
        return [*lines, *sorted(others, key=order)]

    def _helpers(self) -> str:
        parts = [self._workload.helpers, *([SHAPES, self._to_device()] if self._workload.nested else [])]
        parts += [FILL] if self._workload.nested and self._training.cuda_graphs else []
        parts += [KEPT] if self._training.selective_checkpointing else []
        parts += [self._blocks_helper()] if self._blocks else []
        parts += [QUANTIZE] if self._training.quantize is not None else []
        return "\n\n\n".join(part.strip("\n") for part in parts if part.strip())

    def _blocks_helper(self) -> str:
        if not self._training.selective_checkpointing:
            return BLOCKS
        whole = "functools.partial(checkpoint, block.forward, use_reentrant=False)"
        return BLOCKS.replace(whole, whole[:-1] + ", context_fn=keep_products)")

    def _to_device(self) -> str:
        text = "value"
        if self._training.precision == "bf16":
            text = "(value.to(torch.bfloat16) if value.is_floating_point() else value)"
        return TO_DEVICE.replace("value.cuda()", text + self._moved)

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
        if training.quantize is not None:
            lines += self._quantized()
        if training.lora is not None:
            lines += [
                f"adapted = {workload.adapted}",
                f"model = get_peft_model(model, LoraConfig(r={training.lora}, lora_alpha={2 * training.lora}, "
                "target_modules=adapted))",
            ]
        if training.precision == "bf16":
            lines.append("model = model.to(torch.bfloat16)")
        if training.channels_last:
            lines.append("model = model.to(memory_format=torch.channels_last)")
        lines.append(f"model = model{self._moved}.train()")
        if training.freeze:
            lines += [
                f"frozen = [p for name, p in model.named_parameters() if name.startswith({training.freeze!r})]",
                "if not frozen:",
                f'    raise SystemExit("no parameter has a name that begins with {" or ".join(training.freeze)}")',
                "for parameter in frozen:",
                "    parameter.requires_grad_(False)",
            ]
        if self._checkpoints:
            lines.append(self._own_checkpointing or "checkpoint_blocks(model)")
            if training.quantize is not None and self._own_checkpointing:
                lines.append("model.enable_input_require_grads()")
        lines.append("trained = [parameter for parameter in model.parameters() if parameter.requires_grad]")
        lines += self._optimizer()
        if training.precision == "amp-fp16":
            lines.append(f'scaler = torch.amp.GradScaler("{self._device}")')
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

    def _quantized(self) -> list[str]:
        # Of all but the linear layers peft makes fp32, unless the whole model is to be bf16.
        prepare = "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)"
        return [
            "model = model.to(torch.bfloat16)",
            "linear = [module for module in model.modules() if isinstance(module, nn.Linear)]",
            f'quantize_linear_layers(model, "{self._training.quantize}", output=linear[-1])',
            "del linear",
            *([] if self._training.precision == "bf16" else [prepare]),
        ]

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
            _BATCH[self._training.device],
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
            text = f"{host}{self._moved}"
            if name in self._workload.floating and self._training.precision == "bf16":
                text = f"{host}.to(torch.bfloat16){self._moved}"
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
            lines = [f'with torch.autocast("{self._device}", dtype=torch.{kind}):', *(f"    {line}" for line in lines)]
        return lines

    def _zero(self) -> list[str]:
        how = "set_to_none=False" if self._training.keep_gradients else ""
        return [f"{name}.zero_grad({how})" for name in self._names()]

    def _loop(self) -> list[str]:
        training = self._training
        if training.cuda_graphs:
            return self._loop_with_graph()
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
        lines += passes + self._step()
        lines += self._zero() if training.zero_grad == "end" else []
        return ["for step in range(STEPS):", *(f"    {line}" for line in lines)]

    def _step(self) -> list[str]:
        """What follows the backward pass."""
        training, lines = self._training, []
        scaled = training.precision == "amp-fp16"
        if training.clip is not None:
            lines += [f"scaler.unscale_({name})" for name in self._names()] if scaled else []
            lines.append(f"torch.nn.utils.clip_grad_norm_(trained, {training.clip})")
        lines += [f"scaler.step({name})" if scaled else f"{name}.step()" for name in self._names()]
        lines += ["scaler.update()"] if scaled else []
        return lines + (["average.update_parameters(model)"] if training.ema else [])

    def _loop_with_graph(self) -> list[str]:
        # PyTorch's notes on CUDA semantics, "Whole-network capture"; the optimizer stays outside of the graph, so that
        # it need not be capturable.
        backward = "scaler.scale(loss).backward()" if self._training.precision == "amp-fp16" else "loss.backward()"
        passes = [*self._forward(), backward]
        return [
            "# The graph reads its batch from these tensors; each step fills them.",
            *self._copies(),
            "",
            "side = torch.cuda.Stream()",
            "side.wait_stream(torch.cuda.current_stream())",
            "with torch.cuda.stream(side):",
            "    for _ in range(3):",
            *(f"        {line}" for line in [*self._zero(), *passes]),
            "torch.cuda.current_stream().wait_stream(side)",
            "",
            *self._zero(),
            "graph = torch.cuda.CUDAGraph()",
            "with torch.cuda.graph(graph):",
            *(f"    {line}" for line in passes),
            "",
            "for step in range(STEPS):",
            *(f"    {line}" for line in [*self._fills(), "graph.replay()", *self._step()]),
        ]

    def _fills(self) -> list[str]:
        if self._workload.nested:
            return [f"fill({name}, {self._on_host(name)})" for name in self._workload.tensors]
        return [f"{name}.copy_({self._on_host(name)})" for name in self._workload.tensors]

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
