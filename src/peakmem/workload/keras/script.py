"""A Keras model and its training as one plain script, which runs on a real GPU just as well."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

from peakmem.errors import PeakmemError
from peakmem.workload.keras.naming import PREFIX, existing, is_file
from peakmem.workload.keras.safety import check_file
from peakmem.workload.keras.training import Compiled
from peakmem.workload.model import Request, Workload

_HELPERS = '''
def shape_of(tensor):
    """The shape of an input with the batch, and with what the model leaves open."""
    sizes = list(tensor.shape)[1:]
    if None not in sizes:
        return (BATCH, *sizes)
    if SHAPE is not None and len(SHAPE) == len(sizes):
        return (BATCH, *SHAPE)
    if TOKENS is not None:
        return (BATCH, *(TOKENS if size is None else size for size in sizes))
    raise SystemExit(f"the input {tensor.name} has the shape {tuple(sizes)}: --input or --tokens gives what is open")


def inputs_of(model):
    """Zeros in the shape of the model's inputs. Pages that nobody writes to take no memory of the host."""
    wanted = getattr(model, "_inputs_struct", None)
    if wanted is None:
        wanted = getattr(model, "inputs", None)
    if wanted is None:
        if SHAPE is None:
            raise SystemExit("the model does not tell its inputs: --input gives the shape of one sample")
        return np.zeros((BATCH * STEPS, *SHAPE), "float32")
    made = keras.tree.map_structure(lambda t: np.zeros((BATCH * STEPS, *shape_of(t)[1:]), t.dtype), wanted)
    return made[0] if isinstance(made, (list, tuple)) and len(made) == 1 else made


def targets_of(model, x):
    """Zeros as the losses take them: labels for sparse ones, else the shape of what the model gives."""
    wanted = keras.tree.map_structure(lambda array: keras.KerasTensor((BATCH, *array.shape[1:]), array.dtype), x)
    given = model.compute_output_spec(wanted)

    def target(output, loss):
        if loss is None:
            return None
        name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
        shape = (BATCH * STEPS, *output.shape[1:])
        return np.zeros(shape[:-1], "int64") if "sparse" in name.lower() else np.zeros(shape, "float32")

    loss = model.loss
    if loss is None:
        return None
    if isinstance(given, dict):
        return {key: target(value, loss.get(key) if isinstance(loss, dict) else loss) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        names = getattr(model, "output_names", None) or [None] * len(given)
        each = [loss.get(name) for name in names] if isinstance(loss, dict) else loss
        each = each if isinstance(each, (list, tuple)) else [loss] * len(given)
        return [target(value, one) for value, one in zip(given, each)]
    return target(given, next(iter(loss.values())) if isinstance(loss, dict) else loss)


def split(made):
    """The model and its data, of which a function may return the model alone."""
    model, *data = made if isinstance(made, (list, tuple)) else (made,)
    if not isinstance(model, keras.Model):
        raise SystemExit(f"the function returned {type(model).__name__} where a keras.Model was expected")
    return model, data


def shapes(value):
    """The shapes of nested arrays, as text."""
    if hasattr(value, "shape"):
        return " x ".join(map(str, (BATCH, *value.shape[1:]))) + f" {np.dtype(value.dtype)}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shapes(part)}" for key, part in value.items())
    return ", ".join(map(shapes, value)) if isinstance(value, (list, tuple)) else type(value).__name__
'''


_VMHWM = (
    "else:",
    '    with open("/proc/self/status") as file:',
    '        print("max_rss", next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")))',
)


def keras_title(request: Request) -> str:
    """The model in words."""
    return request.what.removeprefix(PREFIX)


def keras_workload(request: Request) -> Workload:
    """The title and what is told beside the figures; the script is of another kind, so the pieces are empty."""
    return Workload(
        title=keras_title(request), model="", batch="", loss="", loss_text="the model's own", tensors=("inputs",)
    )


def write_keras_script(request: Request, compiled: Compiled, *, steps: int, live: Path | None = None) -> str:
    """The script.

    Args:
        request: the model and its data.
        compiled: how it is trained.
        steps: batches in the one epoch.
        live: file with the structure of a live model, in place of `request.what`.

    Raises:
        PeakmemError: there is no such model, or a saved one contains code.
    """
    if request.batch is None:
        raise PeakmemError("how many samples are in a batch?", hint="--batch 64")
    if request.task is not None:
        raise PeakmemError("--task is for models of transformers", hint="leave it out")
    made = _live(live) if live else _made(request, compiled)
    words = fill(f"{compiled.words()}. Written by peakmem predict.", width=100)
    torch = compiled.backend == "torch"
    lines = [
        f'"""Trains {keras_title(request)}.\n\n{words[:1].upper()}{words[1:]}\n"""\n',
        *(["import gc"] if torch else []),
        "import os",
        "",
        f'os.environ["KERAS_BACKEND"] = "{compiled.backend}"',
        *(['os.environ.pop("KERAS_TORCH_DEVICE", None)  # the GPU, if there is one'] if torch else []),
        "",
        "import keras  # noqa: E402",
        "import numpy as np  # noqa: E402",
        "import torch  # noqa: E402" if torch else "import tensorflow as tf  # noqa: E402",
        "",
        f"BATCH = {request.batch}",
        f"STEPS = {steps}",
        f"SHAPE = {request.shape}",
        f"TOKENS = {request.tokens}",
        "",
        _HELPERS,
        "",
        "keras.utils.set_random_seed(0)",
        *_switches(compiled),
        *made,
        *_compiling(compiled),
        *_data(),
        *_fit(torch=torch),
    ]
    return "\n".join(lines) + "\n"


def _switches(compiled: Compiled) -> list[str]:
    lines = []
    if compiled.policy is not None:
        lines.append(f'keras.mixed_precision.set_dtype_policy("{compiled.policy}")')
    if compiled.tf32 and compiled.backend == "torch":
        lines.append('torch.set_float32_matmul_precision("high")')
    return lines


def _made(request: Request, compiled: Compiled) -> list[str]:
    what = request.what.removeprefix(PREFIX)
    if is_file(what):
        path = existing(what)
        check_file(path)
        if compiled.policy is not None:
            raise PeakmemError(
                "the precision of a saved model is in its file",
                hint="leave --amp and --precision out, or give a function",
            )
        lines = [f"model, data = keras.saving.load_model({str(path.resolve())!r}, safe_mode=True), []"]
        if path.suffix != ".keras":
            lines += [
                "if model.compiled:  # the file's optimizer does not know the model's variables (Keras 3.15, torch)",
                "    model.compile_from_config(model.get_compile_config())",
            ]
        return lines
    from peakmem.workload.sources.function import locate

    module, _, name = what.rpartition(":")
    if not module or not name.isidentifier():
        raise PeakmemError(
            f"{request.what!r} names no Keras model",
            hint="keras:package.module:function, keras:file.py:function, or a .keras or .h5 file",
        )
    folder, imported = locate(module, name)
    return [
        "import sys  # noqa: E402",
        "",
        f"sys.path.insert(0, {folder!r})",
        f"from {imported} import {name}  # noqa: E402",
        "",
        f"model, data = split({name}())",
    ]


def _live(path: Path) -> list[str]:
    return [
        "import json  # noqa: E402",
        "",
        f"with open({str(path)!r}) as file:",
        "    sent = json.load(file)",
        'model, data = keras.saving.deserialize_keras_object(sent["model"], safe_mode=False), []',
        'if sent["built"] and not model.built:',
        '    model.build_from_config(sent["built"])',
        'if sent["compiled"]:',
        '    model.compile_from_config(sent["compiled"])',
    ]


def _compiling(compiled: Compiled) -> list[str]:
    optimizer = compiled.optimizer or "getattr(model, 'optimizer', None) or keras.optimizers.Adam()"
    loss = compiled.loss or "getattr(model, 'loss', None)"
    lines = [f"optimizer = {optimizer}"]
    for key, value in compiled.settings.items():
        # The loss scale of mixed_float16 is around the optimizer that is meant.
        lines.append(f'setattr(getattr(optimizer, "inner_optimizer", optimizer), "{key}", {value!r})')
    lines += [f"loss = {loss}"]
    if compiled.loss is None:
        lines += [
            "if loss is None and not model.compiled:",
            "    units = model.output_shape[-1] if isinstance(model.output_shape, tuple) else None",
            '    loss = "sparse_categorical_crossentropy" if units and units > 1 else "mean_squared_error"',
        ]
    jit = "True" if compiled.jit else ("False" if compiled.backend == "torch" else "model.jit_compile")
    changed = compiled.optimizer or compiled.loss or compiled.jit or compiled.settings
    call = f"model.compile(optimizer=optimizer, loss=loss, jit_compile={jit})"
    lines += [call] if changed else ["if not model.compiled:", f"    {call}"]
    return lines


def _data() -> list[str]:
    return [
        "x, y, *_ = (*data, None, None) if data else (inputs_of(model), None)",
        "arrays = x is not None and not data",
        "if arrays:",
        "    y = targets_of(model, x)",
        "elif data and callable(x):",
        "    x = x(BATCH)",
        "trained = sum(int(np.prod(w.shape)) for w in model.trainable_weights)",
        'print(f"parameters: {model.count_params():,}, trained: {trained:,}")',
        'print("batch: inputs", shapes(x))',
        "if y is not None:",
        '    print("batch: targets", shapes(y))',
        'loss = model.loss if not hasattr(model.loss, "name") else model.loss.name',
        'print("loss:", getattr(loss, "__name__", loss))',
        'inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)',
        'print(f"training: {type(inner).__name__}, {model.dtype_policy.name}, Keras {keras.__version__} on "',
        '      f"{keras.config.backend()}")',
    ]


def _fit(*, torch: bool) -> list[str]:
    lines = [
        "",
        *(["gc.collect()  # so that what comes next is collected at the same moments in each run"] if torch else []),
        "if y is None and data:  # a data set",
        "    model.fit(x, steps_per_epoch=STEPS, verbose=0)",
        "else:",
        "    model.fit(x, y, batch_size=BATCH, verbose=0)",
    ]
    if torch:
        return [
            *lines,
            "if torch.cuda.is_available():",
            "    stats = torch.cuda.memory_stats()",
            '    print("max_memory_requested", stats["requested_bytes.all.peak"])',
            '    print("max_memory_active", stats["active_bytes.all.peak"])',
            '    print("max_memory_allocated", torch.cuda.max_memory_allocated())',
            '    print("max_memory_reserved", torch.cuda.max_memory_reserved())',
            *_VMHWM,
        ]
    return [
        *lines,
        'if tf.config.list_logical_devices("GPU"):',
        '    for key, value in tf.config.experimental.get_memory_info("GPU:0").items():',
        "        print(key, value)",
        *_VMHWM,
    ]


def send_model(model: object, path: Path) -> None:
    """Write the structure of a live Keras model, without its weights, for `write_keras_script(..., live=path)`.

    Raises:
        PeakmemError: the model can't be described.
    """
    import keras

    assert isinstance(model, keras.Model)
    try:
        described = {
            "model": keras.saving.serialize_keras_object(model),
            "built": model.get_build_config() if model.built else None,
            "compiled": model.get_compile_config() if model.compiled else None,
        }
        path.write_text(json.dumps(described), encoding="utf-8")
    except (TypeError, ValueError, NotImplementedError) as error:
        raise PeakmemError(
            f"the model can't be sent to the process that trains it: {error}",
            hint="give a function that builds it: peakmem.predict('keras:file.py:function', batch=64)",
        ) from error
