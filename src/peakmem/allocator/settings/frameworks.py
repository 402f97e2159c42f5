"""The environment variables with which TensorFlow and JAX steer the memory of a GPU: what is read, and what is not.

Sources: TensorFlow 2.21.0 (tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc, gpu_process_state.cc), tried on the
virtual GPU where it says so; JAX 0.10.2 (jaxlib/xla_client.py, generate_pjrt_gpu_plugin_options).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Framework(Enum):
    """Whose variable it is."""

    TENSORFLOW = "TensorFlow"
    JAX = "JAX"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What becomes of a value.

    Attributes:
        accepted: whether it is read as meant; else it is refused or passed over.
        text: what it does.
        suggestion: what to write instead.
    """

    accepted: bool
    text: str
    suggestion: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A variable.

    Attributes:
        name: of the variable.
        framework: whose it is.
        read: when it is read, in words that follow "is read".
        judge: gives the verdict on a value.
    """

    name: str
    framework: Framework
    read: str
    judge: Callable[[str], Verdict]


def check(name: str, value: str) -> Verdict | None:
    """The verdict on a value of a variable; None for a variable of somebody else."""
    variable = VARIABLES.get(name)
    return variable.judge(value) if variable is not None else None


def meant(name: str) -> str | None:
    """The variable that a misspelt name means."""
    if name in VARIABLES or not name.startswith(("TF_", "XLA_", "TENSORFLOW_", "JAX_")):
        return None
    near = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=0.85)
    return near[0] if near else None


def _growth(value: str) -> Verdict:
    if value == "true":
        return Verdict(
            accepted=True,
            text="memory is taken as it is needed, and not given back; it wins over what the program sets.",
        )
    if value == "false":
        return Verdict(accepted=True, text="nearly the whole card is taken at the start, whatever the program sets.")
    return Verdict(
        accepted=False,
        text=f"{value!r} is not read: only true and false are, in small letters; TensorFlow logs an error and goes on "
        "as if nothing were set.",
        suggestion="TF_FORCE_GPU_ALLOW_GROWTH=true",
    )


def _tensorflow_allocator(value: str) -> Verdict:
    if value == "cuda_malloc_async":
        return Verdict(
            accepted=True,
            text="the driver's pool takes the place of TensorFlow's own allocator: less is stranded, and memory growth "
            "is without effect.",
        )
    if value in ("cuda_malloc", "memory_guard"):
        return Verdict(
            accepted=True, text="an allocator for debugging: every tensor goes to the driver, which is slow."
        )
    return Verdict(
        accepted=False,
        text=f"{value!r} names no allocator, so TensorFlow's own is taken without a word.",
        suggestion="TF_GPU_ALLOCATOR=cuda_malloc_async",
    )


def _host_limit(value: str) -> Verdict:
    if value.strip().isdigit():
        return Verdict(accepted=True, text=f"pinned host memory of at most {int(value):,} MiB.")
    return Verdict(
        accepted=False,
        text=f"{value!r} is no whole number of MiB; the limit stays at 64 GiB.",
        suggestion="TF_GPU_HOST_MEM_LIMIT_IN_MB=4096",
    )


def _collection(value: str) -> Verdict:
    if value.lower() in ("true", "1"):
        return Verdict(
            accepted=True, text="regions without a tensor are given back when no other can be had: the default."
        )
    if value.lower() in ("false", "0"):
        return Verdict(accepted=True, text="regions are never given back, so fragmentation ends in an error sooner.")
    return Verdict(accepted=False, text=f"{value!r} is neither true nor false.", suggestion="leave it out")


def _preallocate(value: str) -> Verdict:
    if value in ("false", "False", "0"):
        return Verdict(
            accepted=True, text="memory is taken as it is needed, up to the same share of the card, and not given back."
        )
    if value in ("true", "True", "1"):
        return Verdict(accepted=True, text="three quarters of the card are taken at the first operation: the default.")
    return Verdict(
        accepted=False,
        text=f"{value!r} counts as true: only false, False and 0 switch preallocation off.",
        suggestion="XLA_PYTHON_CLIENT_PREALLOCATE=false",
    )


def _fraction(name: str) -> Callable[[str], Verdict]:
    def judge(value: str) -> Verdict:
        try:
            share = float(value)
        except ValueError:
            return Verdict(
                accepted=False, text=f"{value!r} is no number: JAX ends with a ValueError.", suggestion=f"{name}=.75"
            )
        if share > 1:
            return Verdict(
                accepted=False,
                text=f"{value} is a share, not a percentage or a size: more than the card is asked for.",
                suggestion=f"{name}=.75",
            )
        if share <= 0:
            return Verdict(accepted=False, text=f"with {value} nothing can be allocated.", suggestion=f"{name}=.75")
        old = "" if name == "XLA_CLIENT_MEM_FRACTION" else " The name is the old one of XLA_CLIENT_MEM_FRACTION."
        return Verdict(accepted=True, text=f"{share:.0%} of the card's total memory is the share of this process.{old}")

    return judge


def _jax_allocator(value: str) -> Verdict:
    texts = {
        "default": "best fit with coalescing: the default.",
        "bfc": "best fit with coalescing: the default.",
        "platform": "every buffer goes to the driver and back: nvidia-smi shows what is in use, and it is slow.",
        "cuda_async": "the driver's pool: what is not in use can be given back.",
        "vmm": "buffers are mapped page by page.",
    }
    if value.lower() in texts:
        return Verdict(accepted=True, text=texts[value.lower()])
    return Verdict(
        accepted=False,
        text=f"{value!r} is none of {', '.join(texts)}: JAX ends with a ValueError.",
        suggestion="XLA_PYTHON_CLIENT_ALLOCATOR=platform",
    )


_FIRST_GPU = "when TensorFlow sets up the GPU, that is, at its first operation"
_FIRST_JAX = "when JAX sets up the GPU, that is, at its first operation"

VARIABLES = {
    variable.name: variable
    for variable in (
        Variable(name="TF_FORCE_GPU_ALLOW_GROWTH", framework=Framework.TENSORFLOW, read=_FIRST_GPU, judge=_growth),
        Variable(name="TF_GPU_ALLOCATOR", framework=Framework.TENSORFLOW, read=_FIRST_GPU, judge=_tensorflow_allocator),
        Variable(
            name="TF_GPU_HOST_MEM_LIMIT_IN_MB", framework=Framework.TENSORFLOW, read=_FIRST_GPU, judge=_host_limit
        ),
        Variable(
            name="TF_ENABLE_GPU_GARBAGE_COLLECTION", framework=Framework.TENSORFLOW, read=_FIRST_GPU, judge=_collection
        ),
        Variable(name="XLA_PYTHON_CLIENT_PREALLOCATE", framework=Framework.JAX, read=_FIRST_JAX, judge=_preallocate),
        *(
            Variable(name=name, framework=Framework.JAX, read=_FIRST_JAX, judge=_fraction(name))
            for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
        ),
        Variable(name="XLA_PYTHON_CLIENT_ALLOCATOR", framework=Framework.JAX, read=_FIRST_JAX, judge=_jax_allocator),
    )
}
"""The variables by name."""
