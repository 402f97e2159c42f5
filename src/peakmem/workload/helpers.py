"""Functions that training scripts use, as text: what they print has to run without peakmem."""

from __future__ import annotations

TO_DEVICE = '''
def to_device(value):
    """Copy the tensors in lists, tuples and dicts to the GPU."""
    if torch.is_tensor(value):
        return value.cuda()
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_device, value))
    return {key: to_device(part) for key, part in value.items()} if isinstance(value, dict) else value
'''

SHAPES = '''
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

FILL = '''
def fill(there, host):
    """Copy the tensors in lists, tuples and dicts into those on the GPU."""
    if torch.is_tensor(there):
        there.copy_(host)
    elif isinstance(there, (list, tuple)):
        for part, source in zip(there, host):
            fill(part, source)
    elif isinstance(there, dict):
        for key in there:
            fill(there[key], host[key])
'''

BLOCKS = '''
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


KEPT = '''
KEPT = [
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.convolution.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
]


def keep_products():
    """Let a block that runs again keep the results of matrix products, attention and convolutions."""
    return create_selective_checkpoint_contexts(KEPT)
'''

QUANTIZE = '''
def quantize_linear_layers(model, kind, output):
    """Keep the weights of the linear layers but the last in 4 bits, as soon as they are on the GPU."""
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or module is output:
            continue
        how = dict(compress_statistics=True, quant_type=kind)
        sizes = (module.in_features, module.out_features, module.bias is not None)
        layer = Linear4bit(*sizes, compute_dtype=torch.bfloat16, device="meta", **how)
        layer.weight = Params4bit(module.weight.data, requires_grad=False, module=layer, **how)
        layer.bias = module.bias
        model.set_submodule(name, layer)
    model.is_loaded_in_4bit = True  # as from_pretrained leaves it: peft looks at it
'''
