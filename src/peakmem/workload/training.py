"""How a model is trained: every setting that changes what a step holds."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Literal, get_args

from peakmem.errors import PeakmemError
from peakmem.workload.optimizers import DEFAULT_OPTIMIZER, Optimizer

TrainsOn = Literal["gpu", "cpu"]
Precision = Literal["fp32", "tf32", "amp-bf16", "amp-fp16", "bf16"]
ZeroGrad = Literal["start", "backward", "end"]
Quantized = Literal["nf4", "fp4"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """The settings of a training run.

    Attributes:
        optimizer: the optimizer.
        precision: `fp32`; `tf32` (matrix products); `amp-bf16`, `amp-fp16` (autocast; the latter with a GradScaler);
            `bf16` (parameters, gradients and states as well).
        checkpointing: activation checkpointing of each block.
        selective_checkpointing: whether blocks that run again keep the results of matrix products, attention and
            convolutions, which are dear to compute.
        accumulate: backward passes for one step of the optimizer.
        zero_grad: where gradients are dropped: at the `start` of a step, before `backward`, or at the `end`.
        keep_gradients: whether gradients are zeroed in place (`set_to_none=False`).
        clip: largest norm of all gradients; None: they are not clipped.
        ema: whether a second copy of the parameters is kept, averaged over the steps.
        lora: rank of LoRA adapters on all linear layers; None: none.
        quantize: type of 4 bits that the weights of linear layers are kept in (QLoRA, with `lora`); None: none.
        freeze: beginnings of the names of parameters that are not trained.
        channels_last: whether images and convolutions use that memory format.
        optimizer_in_backward: whether each parameter is stepped, and its gradient dropped, as soon as it has one.
        offload_activations: whether what is saved for the backward pass waits in pinned host memory.
        cudnn_benchmark: whether cuDNN tries its plans out.
        deterministic: whether only deterministic algorithms are used.
        compile: whether the model goes through `torch.compile`.
        cuda_graphs: whether the forward and backward passes are captured in a CUDA graph, which is replayed.
        device: what trains: a GPU, or the `cpu`.
    """

    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name=DEFAULT_OPTIMIZER))
    precision: Precision = "fp32"
    checkpointing: bool = False
    selective_checkpointing: bool = False
    accumulate: int = 1
    zero_grad: ZeroGrad = "start"
    keep_gradients: bool = False
    clip: float | None = None
    ema: bool = False
    lora: int | None = None
    quantize: Quantized | None = None
    freeze: tuple[str, ...] = ()
    channels_last: bool = False
    optimizer_in_backward: bool = False
    offload_activations: bool = False
    cudnn_benchmark: bool = False
    deterministic: bool = False
    compile: bool = False
    cuda_graphs: bool = False
    device: TrainsOn = "gpu"

    def __post_init__(self) -> None:
        _among("device", self.device, get_args(TrainsOn))
        self._check_device()
        _among("precision", self.precision, get_args(Precision))
        _among("zero_grad", self.zero_grad, get_args(ZeroGrad))
        if self.quantize is not None:
            _among("quantize", self.quantize, get_args(Quantized))
            if self.lora is None:
                raise PeakmemError("weights of 4 bits can't be trained; adapters beside them can", hint="--lora 16")
        if self.accumulate < 1:
            raise PeakmemError(f"{self.accumulate} backward passes make no step", hint="--accumulate 1 or more")
        if self.lora is not None and self.lora < 1:
            raise PeakmemError(f"LoRA of rank {self.lora} is none", hint="--lora 8")
        if self.clip is not None and self.clip <= 0:
            raise PeakmemError(f"gradients can't be clipped to a norm of {self.clip}", hint="--clip 1.0")
        self._check_optimizer_in_backward()
        if self.optimizer.name == "lbfgs" and (self.precision == "amp-fp16" or self.accumulate > 1 or self.clip):
            raise PeakmemError(
                "LBFGS runs the forward pass itself: no GradScaler, accumulation or clipping with it",
                hint="another --optimizer, or --precision fp32",
            )
        if self.compile and self.optimizer_in_backward:
            raise PeakmemError(
                "a compiled backward pass does not step parameters on its way", hint="leave --compile out"
            )
        self._check_cuda_graphs()
        self._check_packages()

    def _check_cuda_graphs(self) -> None:
        if not self.cuda_graphs:
            return
        against = [
            ("--accumulate", self.accumulate > 1, "a replay writes the gradients anew"),
            ("--zero-grad", self.zero_grad != "start", "a replay writes the gradients anew"),
            ("--keep-gradients", self.keep_gradients, "a replay writes the gradients anew"),
            ("--optimizer-in-backward", self.optimizer_in_backward, "the optimizer's step is not captured"),
            ("--optimizer lbfgs", self.optimizer.name == "lbfgs", "it runs the forward pass itself"),
            ("--offload-activations", self.offload_activations, "copies to the host wait for them"),
            ("--compile", self.compile, 'torch.compile(mode="reduce-overhead") captures graphs of its own'),
        ]
        for word, there, why in against:
            if there:
                raise PeakmemError(
                    f"{word} does not go with captured graphs: {why}", hint=f"leave {word} or --cuda-graphs out"
                )

    def _check_optimizer_in_backward(self) -> None:
        if not self.optimizer_in_backward:
            return
        against = [
            ("--accumulate", self.accumulate > 1),
            ("--clip", self.clip is not None),
            ("--amp fp16", self.precision == "amp-fp16"),
            ("--optimizer lbfgs", self.optimizer.name == "lbfgs"),
            ("--optimizer muon", self.optimizer.name == "muon"),
        ]
        for word, there in against:
            if there:
                raise PeakmemError(
                    f"with the optimizer in the backward pass no gradient is left for {word}",
                    hint=f"leave {word} or --optimizer-in-backward out",
                )

    def _check_packages(self) -> None:
        package = self.optimizer.package
        if not installed(package):
            raise missing(package, f"the optimizer {self.optimizer.name}")
        if self.lora is not None and not installed("peft"):
            raise missing("peft", "LoRA")
        if self.quantize is not None and not installed("bitsandbytes"):
            raise missing("bitsandbytes", "QLoRA")

    @property
    def collects_garbage(self) -> bool:
        """Whether the peak hangs on when Python collects garbage, so that watching may change it."""
        return False

    def _check_device(self) -> None:
        """Raise a PeakmemError if a setting is of GPUs alone and the CPU trains."""
        of_gpus = {
            "--precision tf32": self.precision == "tf32",
            "--quantize": self.quantize is not None,
            "--offload-activations": self.offload_activations,
            "--cudnn-benchmark": self.cudnn_benchmark,
            "--cuda-graphs": self.cuda_graphs,
            "--compile": self.compile,
        }
        given = [name for name, is_given in of_gpus.items() if is_given]
        if self.device == "cpu" and given:
            raise PeakmemError(f"{given[0]} is not for training on the CPU", hint=f"leave out {' '.join(given)}")

    def words(self) -> str:
        """The settings that differ from plain training, in words."""
        said = {
            "activation checkpointing": self.checkpointing and not self.selective_checkpointing,
            "selective activation checkpointing": self.selective_checkpointing,
            f"{self.accumulate} backward passes a step": self.accumulate > 1,
            f"zero_grad at the {self.zero_grad}": self.zero_grad == "end",
            "zero_grad before backward": self.zero_grad == "backward",
            "gradients kept": self.keep_gradients,
            f"clipped to norm {self.clip}": self.clip is not None,
            "EMA copy": self.ema,
            f"LoRA rank {self.lora}": self.lora is not None,
            f"linear layers in {self.quantize}": self.quantize is not None,
            f"frozen {', '.join(self.freeze)}": bool(self.freeze),
            "channels last": self.channels_last,
            "optimizer in backward": self.optimizer_in_backward,
            "activations on the host": self.offload_activations,
            "cuDNN benchmark": self.cudnn_benchmark,
            "deterministic": self.deterministic,
            "compiled": self.compile,
            "CUDA graphs": self.cuda_graphs,
        }
        return ", ".join([str(self.optimizer), self.precision, *(text for text, there in said.items() if there)])

    def assumed(self) -> list[str]:
        """What may differ in the real run, in words."""
        assumed = []
        if self.optimizer.name.startswith("paged"):
            assumed.append(
                "states of a paged optimizer lie in managed memory, outside PyTorch's allocator: not counted"
            )
        if self.compile:
            assumed.append(
                "where Inductor's cache lacks the kernels, buffers of its benchmarks come on top in the first step"
            )
        return assumed


def installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def missing(package: str, wanted_for: str) -> PeakmemError:
    """The error that a package is not installed."""
    return PeakmemError(f"{wanted_for} needs the package {package}, which is not here", hint=f"pip install {package}")


def _among(name: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise PeakmemError(f"{name} is {value!r}", hint="one of " + ", ".join(values))
