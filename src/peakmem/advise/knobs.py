"""The changes that `advise` tries, the cheapest first, with what each costs and the line to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Knob:
    """One change.

    Attributes:
        key: its name, such as `zero_grad=end`; unique.
        title: in words.
        cost: what it costs, in words.
        line: the line to change or to add, with {batch} for a smaller batch.
        keeps_mathematics: whether the training computes the same (up to rounding in another order).
        family: changes of one family exclude each other; a later one takes the place of an earlier one.
        changes: what `peakmem run --set` takes for it.
        alloc_conf: allocator settings that it adds; empty: none.
        divisor: by how much the batch of one pass is divided.
    """

    key: str
    title: str
    cost: str
    line: str
    keeps_mathematics: bool
    family: str
    changes: tuple[str, ...] = ()
    alloc_conf: str = ""
    divisor: int = 1


def _accumulate(times: int) -> Knob:
    return Knob(
        key=f"accumulate={times}",
        title=f"{times} passes of batch {{batch}} for one step",
        cost=f"{times} smaller passes; the same mathematics, but for batch normalization",
        line=f"batch {{batch}}, loss / {times}, and optimizer.step() after every {times} passes",
        keeps_mathematics=True,
        family="accumulate",
        changes=(f"accumulate={times}",),
        divisor=times,
    )


def _smaller(divisor: int) -> Knob:
    return Knob(
        key=f"batch/{divisor}",
        title="batch {batch}",
        cost="another batch size, which may want another learning rate",
        line="batch {batch}",
        keeps_mathematics=False,
        family="batch",
        divisor=divisor,
    )


LORA_RANK = 16
"""What the QLoRA paper takes for most of its runs lies between 8 and 64."""

KNOBS = (
    Knob(
        key="expandable_segments",
        title="expandable segments",
        cost="none in results; the variable must be set before the script starts",
        line="export PYTORCH_CUDA_ALLOC_CONF={alloc_conf}",
        keeps_mathematics=True,
        family="segments",
        alloc_conf="expandable_segments:True",
    ),
    Knob(
        key="zero_grad=none",
        title="gradients dropped, not zeroed in place",
        cost="none",
        line="optimizer.zero_grad(set_to_none=True)",
        keeps_mathematics=True,
        family="set_to_none",
        changes=("zero_grad=none",),
    ),
    Knob(
        key="zero_grad=end",
        title="gradients dropped right after the step",
        cost="none, unless the script looks at gradients later",
        line="optimizer.step(); optimizer.zero_grad()",
        keeps_mathematics=True,
        family="zero_grad",
        changes=("zero_grad=end",),
    ),
    Knob(
        key="bucket_view",
        title="gradients that are views of DistributedDataParallel's buckets",
        cost="none, unless the script calls detach_() on gradients",
        line="model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
        keeps_mathematics=True,
        family="buckets",
        changes=("ddp.gradient_as_bucket_view=true",),
    ),
    Knob(
        key="optimizer.fused",
        title="fused optimizer",
        cost="none: it is faster; rounding differs in the last digit",
        line="optimizer = ...(..., fused=True)",
        keeps_mathematics=True,
        family="optimizer",
        changes=("optimizer.fused=true",),
    ),
    Knob(
        key="optimizer.foreach",
        title="optimizer that goes over the parameters one by one",
        cost="a slower step of the optimizer: some kernels for each parameter",
        line="optimizer = ...(..., foreach=False)",
        keeps_mathematics=True,
        family="optimizer",
        changes=("optimizer.foreach=false",),
    ),
    Knob(
        key="checkpoint",
        title="activation checkpointing of each block",
        cost="about one more forward pass of the blocks: up to a third more computing",
        line="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        keeps_mathematics=True,
        family="checkpoint",
        changes=("checkpoint=blocks",),
    ),
    *(_accumulate(times) for times in (2, 4, 8)),
    Knob(
        key="amp",
        title="bfloat16 autocast",
        cost="other numbers: products and activations are rounded to 8 bits of mantissa; faster on most cards",
        line='with torch.autocast("cuda", dtype=torch.bfloat16):',
        keeps_mathematics=False,
        family="amp",
        changes=("amp=bf16",),
    ),
    Knob(
        key="8-bit",
        title="8-bit optimizer states",
        cost="other numbers: states are kept in 8 bits; needs the package bitsandbytes",
        line="optimizer = bitsandbytes.optim....8bit(...)",
        keeps_mathematics=False,
        family="optimizer",
    ),
    Knob(
        key="lora",
        title=f"LoRA adapters of rank {LORA_RANK}",
        cost="another training: adapters of the linear layers learn, nothing else; needs the package peft",
        line=f'model = peft.get_peft_model(model, peft.LoraConfig(r={LORA_RANK}, target_modules="all-linear"))',
        keeps_mathematics=False,
        family="lora",
    ),
    *(_smaller(divisor) for divisor in (2, 4, 8)),
)
"""In the order in which they are tried together: what costs nothing first, what changes the mathematics last."""
