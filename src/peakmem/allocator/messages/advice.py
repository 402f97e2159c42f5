"""What to try: the option against fragmentation that the version has, and how to make a job smaller."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.allocator.messages.log import Log
from peakmem.allocator.settings.parse import parse
from peakmem.allocator.settings.version import REFERENCE, TorchVersion
from peakmem.units import format_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """An option to try: the settings string, a remark, what to do, and why it works."""

    alloc_conf: str
    text: str
    how: str
    why: str


def variable(backend: str) -> str:
    """The variable that a backend's users set."""
    return {"HIP": "PYTORCH_HIP_ALLOC_CONF", "XPU": "PYTORCH_ALLOC_CONF"}.get(backend, "PYTORCH_CUDA_ALLOC_CONF")


def defragment(newest: str | None, backend: str, log: Log) -> Option:
    """The option against fragmentation for the versions that print a wording.

    Args:
        newest: the newest minor release with this wording; None if it is still current.
        backend: CUDA, HIP or XPU.
        log: the log around the message: a settings string that is in force already, and the operating system.
    """
    version = REFERENCE if newest is None else TorchVersion.parse(newest)
    name = variable(backend)
    in_force = parse(log.alloc_conf, version=version).settings if log.alloc_conf else None
    if in_force is not None and in_force.expandable_segments:
        return Option(
            alloc_conf="",
            text="expandable_segments:True is in force already, so what is stranded is partly used pages.",
            how="free large tensors before the request (del, then torch.cuda.empty_cache()), or make it smaller",
            why="whole pages of 20 MiB that are free have been given back already",
        )
    if version.at_least("2.1") and not log.windows and backend != "XPU":
        rocm = " It needs ROCm 7.0 or later." if backend == "HIP" else ""
        return Option(
            alloc_conf="expandable_segments:True",
            text=f"expandable_segments:True lets memory freed in one size serve another.{rocm}",
            how=f"start the run with {name}=expandable_segments:True, set before Python starts",
            why="segments that grow page by page leave next to nothing stranded",
        )
    if version.at_least("1.10") and newest != "1.10":
        where = "Windows has no expandable segments" if log.windows else "expandable_segments came with PyTorch 2.1"
        return Option(
            alloc_conf="max_split_size_mb:128",
            text=f"max_split_size_mb keeps large blocks whole ({where}).",
            how=f"start the run with {name}=max_split_size_mb:128, set before Python starts"
            + ("" if log.windows else ", or use PyTorch 2.1 or later with expandable_segments:True"),
            why="large blocks that small requests can't cut up stay usable for large requests",
        )
    if backend == "XPU":
        return Option(
            alloc_conf="",
            text="No option against it is known for Intel GPUs here.",
            how="make the sizes that the program asks for vary less (fixed batch and sequence length)",
            why="cached blocks then fit again",
        )
    return Option(
        alloc_conf="",
        text="A version this old has no such option.",
        how="use a newer PyTorch (2.1 or later) with expandable_segments:True",
        why="memory freed in one size then serves another",
    )


def smaller(phase: str, *, missing: int | None = None, sentence: bool = True) -> str:
    """How to make a job smaller, beginning with what the traceback points at."""
    first = {
        "optimizer step": "It fails in the optimizer's step: that needs state for every parameter "
        "(Adam: 8 bytes each) and, "
        "with foreach, a temporary copy. Try fused=True or foreach=False, then an 8-bit or paged optimizer.",
        "loading": "It fails while loading: load with map_location='cpu', since else a second copy is on the GPU, and "
        "delete the loaded dictionary afterwards.",
        "loss": "It fails in the loss: logits are batch x tokens x vocabulary, and their gradient as much again. Use a "
        "chunked or fused linear + cross-entropy.",
        "attention": "It fails in attention: use torch.nn.functional.scaled_dot_product_attention, which keeps no "
        "tokens x tokens matrix, or shorter sequences.",
        "convolution": "It fails in a convolution: try torch.backends.cudnn.benchmark=False (trying plans out takes "
        "workspaces), then a smaller batch; above 2^31 elements PyTorch falls back to an unfolded copy of the input, "
        "so split or tile it.",
        "backward": "It fails in backward: what the forward pass saved is the largest part. Use "
        "activation checkpointing, "
        "or a smaller batch with gradient accumulation.",
    }.get(phase)
    least = f"At least {format_size(missing)} has to go. " if missing else ""
    general = (
        "make the job smaller: a smaller batch with gradient accumulation first (activations shrink with it), then "
        "activation checkpointing, then 16-bit weights or an 8-bit optimizer."
    )
    if first is not None:
        return least + first
    return least + (general[0].upper() + general[1:] if sentence else general)
