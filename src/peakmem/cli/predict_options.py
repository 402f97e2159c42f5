"""The options of `peakmem predict`, and what they say of the model, its training and its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from peakmem.cli.planning import RunOptions
from peakmem.errors import PeakmemError
from peakmem.workload.model import Request
from peakmem.workload.optimizers import DEFAULT_OPTIMIZER, Optimizer
from peakmem.workload.resolving import draws_for_nothing
from peakmem.workload.sources.function import parse_argument
from peakmem.workload.training import Training


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictOptions:
    """The options of `peakmem predict`, as they were typed."""

    what: str
    device: str = "gpu"
    batch: int | None
    shape: str | None
    tokens: int | None
    arguments: tuple[str, ...]
    optimizer: str | None
    amp: str | None
    precision: str
    loss: str | None
    activation: str
    task: str | None
    checkpointing: bool
    selective_checkpointing: bool
    accumulate: int
    zero_grad: str
    keep_gradients: bool
    clip: float | None
    ema: bool
    lora: int | None
    quantize: str | None
    freeze: tuple[str, ...]
    channels_last: bool
    optimizer_in_backward: bool
    offload_activations: bool
    cudnn_benchmark: bool
    deterministic: bool
    compile: bool
    cuda_graphs: bool
    print_script: bool
    save_script: str | None
    gpu: str | None
    memory: str | None
    steps: str
    alloc_conf: str | None
    context: str | None
    cudnn: str
    no_range: bool
    build_on_device: bool
    ranks_per_node: int | None
    scheduler: str | None
    margin: str | None
    json_target: str | None
    save_target: str | None
    force: bool
    timeout: float | None

    def request(self) -> Request:
        """What is said of the model and its data."""
        return Request(
            what=self.what,
            batch=self.batch,
            shape=parse_shape(self.shape),
            tokens=self.tokens,
            loss=self.loss,
            activation=self.activation,
            task=self.task,
            arguments=tuple(parse_argument(text) for text in self.arguments),
        )

    def training(self) -> Training:
        """How it is trained.

        Raises:
            PeakmemError: the settings don't go together.
        """
        if self.amp is not None and self.precision == "bf16":
            raise PeakmemError(
                "--amp is for parameters in fp32", hint="give --amp bf16 or --precision bf16, not both of them"
            )
        precision: Any = f"amp-{self.amp}" if self.amp else self.precision
        zero_grad: Any = self.zero_grad
        quantize: Any = self.quantize
        device: Any = self.device
        return Training(
            optimizer=Optimizer.parse(self.optimizer or DEFAULT_OPTIMIZER),
            precision=precision,
            checkpointing=self.checkpointing,
            selective_checkpointing=self.selective_checkpointing,
            accumulate=self.accumulate,
            zero_grad=zero_grad,
            keep_gradients=self.keep_gradients,
            clip=self.clip,
            ema=self.ema,
            lora=self.lora,
            quantize=quantize,
            freeze=self.freeze,
            channels_last=self.channels_last,
            optimizer_in_backward=self.optimizer_in_backward,
            offload_activations=self.offload_activations,
            cudnn_benchmark=self.cudnn_benchmark,
            deterministic=self.deterministic,
            compile=self.compile,
            cuda_graphs=self.cuda_graphs,
            device=device,
        )

    def run(self) -> RunOptions:
        """The options with which the script is run; its place is not known yet."""
        return RunOptions(
            device=self.device,
            gpu=self.gpu,
            memory=self.memory,
            steps=self.steps,
            alloc_conf=self.alloc_conf,
            context=self.context,
            cudnn=self.cudnn,
            no_range=self.no_range,
            assume="",
            build_on_device=self.build_on_device,
            late_libraries=not self.compile,
            no_initial_values=draws_for_nothing(self.what),
            no_weights=False,
            output="hide",
            json_target=self.json_target,
            save_target=self.save_target,
            force=self.force,
            timeout=self.timeout,
            ranks_per_node=self.ranks_per_node,
            module=False,
            command=(),
        )


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """The numbers of a shape such as 3x224x224.

    Raises:
        PeakmemError: it is none.
    """
    if text is None:
        return None
    words = text.lower().replace("×", "x").replace(",", "x").split("x")
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise PeakmemError(
            f"--input {text} is no shape", hint="the sizes of one sample, without the batch: --input 3x224x224"
        )
    return tuple(int(word) for word in words)
