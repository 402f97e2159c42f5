"""Compiles a function of the user with JAX and writes what it takes; runs in a process of its own.

Called with one argument, a JSON object: `folder` (of the module), `module`, `name`, `batch` (or null), `target` (text,
or null: the CPU), `result` (file to write).
"""

import importlib
import inspect
import json
import os
import sys
from pathlib import Path


def main():
    """Compile and write."""
    asked = json.loads(sys.argv[1])
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, asked["folder"])
    import jax

    function, arguments, options = _made(asked)
    traced = _shapes(jax, arguments)
    out = {"jax": jax.__version__, "target": "CPU", "why_cpu": ""}
    compiled = None
    if asked["target"]:
        try:
            compiled, traced_here = _for_gpu(jax, function, traced, options, asked["target"])
            out["target"] = "GPU"
        except Exception as error:  # no plugin for CUDA, or one that does not take the description
            out["why_cpu"] = f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"
    if compiled is None:
        jitted = _jitted(jax, function, options)
        compiled = jitted.lower(*traced).compile()
        traced_here = traced
    analysis = compiled.memory_analysis()
    shapes = jax.eval_shape(_plain(function), *traced)
    out.update(
        {
            "arguments": analysis.argument_size_in_bytes,
            "outputs": analysis.output_size_in_bytes,
            "aliased": analysis.alias_size_in_bytes,
            "temporary": analysis.temp_size_in_bytes,
            "code": analysis.generated_code_size_in_bytes,
            "peak": getattr(analysis, "peak_memory_in_bytes", 0) or 0,
            "argument_sizes": _sizes(jax, traced_here),
            "output_sizes": _sizes(jax, shapes),
        }
    )
    Path(asked["result"]).write_text(json.dumps(out), encoding="utf-8")


def _made(asked):
    function = getattr(importlib.import_module(asked["module"]), asked["name"])
    takes_batch = any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(function).parameters.values()
    )
    if takes_batch and asked["batch"] is None:
        raise SystemExit(f"{asked['name']} takes a batch size: --batch says which")
    made = function(asked["batch"]) if takes_batch else function()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not callable(made[0]):
        raise SystemExit(
            f"{asked['name']} returned {type(made).__name__} where (function, arguments) or (function, arguments, "
            "options of jax.jit) was expected"
        )
    function, arguments, options = (*made, {})[:3]
    return function, tuple(arguments), dict(options)


def _shapes(jax, arguments):
    def shape(value):
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return jax.ShapeDtypeStruct(value.shape, value.dtype)
        return jax.eval_shape(lambda: jax.numpy.asarray(value))

    return jax.tree_util.tree_map(shape, arguments)


def _plain(function):
    return getattr(function, "__wrapped__", function)


def _jitted(jax, function, options):
    if hasattr(function, "lower"):
        return function
    return jax.jit(function, **options)


def _for_gpu(jax, function, arguments, options, target):
    import numpy
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    topology = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=target, topology="1x1x1")
    sharding = NamedSharding(Mesh(numpy.array(topology.devices), ("devices",)), PartitionSpec())
    placed = jax.tree_util.tree_map(
        lambda shape: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding), arguments
    )
    jitted = function if hasattr(function, "lower") else jax.jit(function, out_shardings=sharding, **options)
    return jitted.trace(*placed).lower(lowering_platforms=("cuda",)).compile(), placed


def _sizes(jax, tree):
    return [
        int(_elements(leaf.shape) * leaf.dtype.itemsize)
        for leaf in jax.tree_util.tree_leaves(tree)
        if hasattr(leaf, "shape")
    ]


def _elements(shape):
    """Elements of a shape."""
    elements = 1
    for size in shape:
        elements *= int(size)
    return elements


if __name__ == "__main__":
    main()
