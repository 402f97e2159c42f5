"""`peakmem predict`: from a model, without a script of one's own."""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.shared_options import BUILD_ON_DEVICE, DEVICE, GPU, MEMORY, card_options, result_options


@click.command(
    epilog="Exit codes: 0 it fits (a checkpoint: nothing excludes it), 1 it does not fit, 2 bad input, "
    "3 the model's own code failed, 130 interrupted.",
)
@click.argument("what")
@DEVICE
@click.option("-b", "--batch", type=click.IntRange(min=1), metavar="B", help="Samples in one forward pass.")
@click.option("--input", "shape", metavar="SHAPE", help="Shape of one sample, such as 3x224x224. [the model's own]")
@click.option("--tokens", type=click.IntRange(min=1), metavar="N", help="Length of a sequence of tokens.")
@click.option(
    "--optimizer",
    metavar="NAME[:ARGUMENTS]",
    help="Any of torch.optim, 8-bit and paged ones of bitsandbytes: adamw:fused, sgd:momentum=0.9, adam:loop. "
    "[adamw; a Keras model's own]",
)
@click.option("--amp", type=click.Choice(["bf16", "fp16"]), help="Autocast; fp16 with a GradScaler.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "tf32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Of the parameters; tf32 is for matrix products alone.",
)
@click.option(
    "--argument", "arguments", multiple=True, metavar="NAME=VALUE", help="Keyword argument of the function: depth=4."
)
@click.option("--loss", metavar="NAME", help="cross-entropy, mse, l1, bce or mean. [the model's usual one]")
@click.option(
    "--activation", default="relu", show_default=True, metavar="NAME", help="Of dense networks: relu, gelu, tanh, ..."
)
@click.option("--task", metavar="NAME", help="Head of a Hugging Face model: causal-lm, masked-lm, ... [guessed]")
@click.option("--checkpointing", is_flag=True, help="Activation checkpointing of each block.")
@click.option(
    "--selective-checkpointing",
    is_flag=True,
    help="The same, but the results of matrix products, attention and convolutions are kept.",
)
@click.option("--accumulate", type=int, default=1, metavar="N", help="Backward passes for one step.")
@click.option(
    "--zero-grad",
    type=click.Choice(["start", "backward", "end"]),
    default="start",
    show_default=True,
    help="Where gradients are dropped: before the forward pass, before backward, after the step.",
)
@click.option("--keep-gradients", is_flag=True, help="Zero gradients in place: set_to_none=False.")
@click.option("--clip", type=float, metavar="NORM", help="clip_grad_norm_ with this norm.")
@click.option("--ema", is_flag=True, help="Keep an averaged copy of the parameters.")
@click.option("--lora", type=int, metavar="RANK", help="LoRA adapters on all linear layers (needs peft).")
@click.option(
    "--quantize", type=click.Choice(["nf4", "fp4"]), help="QLoRA: linear layers in 4 bits, with --lora (bitsandbytes)."
)
@click.option("--freeze", multiple=True, metavar="PREFIX", help="Do not train parameters whose names begin so.")
@click.option("--channels-last", is_flag=True, help="Memory format of images and convolutions.")
@click.option("--optimizer-in-backward", is_flag=True, help="Step each parameter as soon as it has its gradient.")
@click.option("--offload-activations", is_flag=True, help="Keep what backward needs in pinned host memory.")
@click.option("--cudnn-benchmark", is_flag=True, help="torch.backends.cudnn.benchmark.")
@click.option("--deterministic", is_flag=True, help="torch.use_deterministic_algorithms.")
@click.option("--compile", is_flag=True, help="torch.compile of the model.")
@click.option("--cuda-graphs", is_flag=True, help="Capture forward and backward pass in a CUDA graph; replay it.")
@click.option("--print-script", is_flag=True, help="Print the training script that would be run, and run nothing.")
@click.option("--save-script", metavar="FILE", help="Keep the training script: it runs on a real GPU as it is.")
@GPU
@MEMORY
@click.option("--steps", default="auto", show_default=True, metavar="N|auto|all", help="Optimizer steps to watch.")
@card_options
@BUILD_ON_DEVICE
@result_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Say what training a model takes, from its name and a batch size.

    \b
    peakmem predict dense:1000-100-100-100-100-10 --batch 256
    peakmem predict torchvision:resnet50 --batch 64 --amp bf16 --gpu 4090
    peakmem predict timm:vit_base_patch16_224 --batch 32 --optimizer adamw:fused
    peakmem predict hf:./my-model --batch 8 --tokens 2048 --checkpointing
    peakmem predict nets.py:build --batch 16 --input 1x64x64x64
    peakmem predict keras:nets.py:build --batch 64
    peakmem predict model.safetensors

    The model is built and trained for a few steps on a virtual GPU by a plain training script, which --print-script
    shows. Nothing is downloaded, and no code that comes with a model is run.
    """
    from peakmem.cli.predict_options import PredictOptions
    from peakmem.cli.predicting import predict

    ctx.exit(predict(PredictOptions(**options)))
