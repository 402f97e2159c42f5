"""`module.path:function` and `file.py:function`: the user's own model."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.workload.losses import CALLS, LOSSES, check_loss
from peakmem.workload.model import Request, Workload

_FIRST = '''
def first_tensor(value):
    """The first tensor that a model gives; its loss, if it has one."""
    if isinstance(value, dict):
        value = value["loss"] if value.get("loss") is not None else next(iter(value.values()))
    while isinstance(value, (list, tuple)):
        value = value[0]
    return value
'''

_LOSS = '''
def call(model, inputs):
    """What the model gives for positional or named inputs."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (list, tuple)) else model(inputs)


def loss_of(outputs):
    """{what}."""
    output = first_tensor(outputs)
{body}
'''

_MADE = '''
def split(made):
    """The model, its inputs and its loss, of which the function may return the model alone."""
    model, inputs, loss = (*made, None, None)[:3] if isinstance(made, (list, tuple)) else (made, None, None)
    if not isinstance(model, nn.Module):
        raise SystemExit(f"{name} returned {{type(model).__name__}} where a torch.nn.Module was expected")
    return model, inputs, loss
'''

_NO_INPUTS = "the function gives a model without inputs: --input gives the shape of one sample, --tokens N token ids"


def function(request: Request, module: str, name: str) -> Workload:
    """The workload of a function that returns a module, or a module, its inputs and its loss.

    Raises:
        PeakmemError: there is no such file, module or function.
    """
    folder, imported = locate(module, name, request.arguments)
    arguments = ", ".join(f"{key}={value}" for key, value in request.arguments)
    return make_workload(
        request,
        title=f"{module}:{name}" + (f"({arguments})" if arguments else ""),
        imports=("import sys",),
        made=f"sys.path.insert(0, {folder!r})\nfrom {imported} import {name}  # noqa: E402\n\n"
        f"model, inputs, own_loss = split({name}({arguments}))",
        name=name,
    )


def locate(module: str, name: str, arguments: tuple[tuple[str, str], ...] = ()) -> tuple[str, str]:
    """The folder that must be in the path, and the module's name there, for a function of a module or of a file.

    Raises:
        PeakmemError: there is no such file, module or function.
    """
    path = _source(module)
    if path is not None:
        _check_arguments(_check_name(path, name, module), name, arguments)
    is_file = module.endswith(".py")
    folder = str((path.parent if is_file and path else Path.cwd()).resolve())
    return folder, Path(module).stem if is_file else module


def make_workload(
    request: Request, *, title: str, made: str, name: str, imports: tuple[str, ...] = (), helpers: str = ""
) -> Workload:
    """The workload of statements that make `model`, `inputs` (or None) and `own_loss` (or None)."""
    loss = check_loss(request.loss or "mean")
    body = {
        "mean": "    return output.float().mean()",
        "cross-entropy": "    shape = output.shape[:1] + output.shape[2:]\n"
        "    labels = torch.zeros(shape, dtype=torch.long, device=output.device)\n"
        "    return nn.functional.cross_entropy(output, labels)",
    }.get(loss, f"    return {CALLS.get(loss)}(output, torch.zeros_like(output))")
    return Workload(
        title=title,
        imports=imports,
        helpers="\n\n".join(
            part.strip("\n")
            for part in (
                helpers,
                _MADE.format(name=name) if "split(" in made else "",
                _FIRST,
                _LOSS.format(what=LOSSES[loss].capitalize(), body=body),
            )
            if part.strip()
        ).replace("\n\ndef", "\n\n\ndef"),
        model=f"{made}\nmeasure = loss_of if own_loss is None else own_loss\n"
        f'print("loss:", "{LOSSES[loss]}" if own_loss is None else "the model\'s own")',
        batch=_batch(request),
        loss="loss = measure(call(model, inputs))",
        loss_text=LOSSES[loss],
        tensors=("inputs",),
        nested=True,
    )


def _batch(request: Request) -> str:
    if request.tokens is not None:
        if request.batch is None:
            raise PeakmemError("how many sequences are in a batch?", hint="--batch 8")
        return (
            "embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]\n"
            "vocabulary = min((module.num_embeddings for module in embeddings), default=None)\n"
            "if vocabulary is None:\n"
            '    raise SystemExit("the model has no torch.nn.Embedding, so it is not known which tokens it takes")\n'
            f"host_inputs = torch.randint(vocabulary, ({request.batch}, {request.tokens}))"
        )
    if request.shape is not None:
        if request.batch is None:
            raise PeakmemError("how many samples are in a batch?", hint="--batch 64")
        return f"host_inputs = torch.randn({', '.join(map(str, (request.batch, *request.shape)))})"
    batch = "" if request.batch is None else str(request.batch)
    called = f"host_inputs = inputs({batch}) if callable(inputs) else inputs"
    return f'if inputs is None:\n    raise SystemExit("{_NO_INPUTS}")\n{called}'


class NoModuleError(PeakmemError):
    """What was named is no module that is here."""


def _source(module: str) -> Path | None:
    """The source file of a module, if it can be found without importing anything; a file must exist."""
    if module.endswith(".py"):
        path = Path(module)
        if not path.is_file():
            raise PeakmemError(f"there is no file {module}")
        if not path.stem.isidentifier():
            raise PeakmemError(
                f"{path.name} can't be imported", hint="its name must be a Python name: letters, digits, _"
            )
        return path
    first, *rest = module.split(".")
    here = Path.cwd().joinpath(*module.split("."))
    for candidate in (here.with_suffix(".py"), here / "__init__.py"):
        if candidate.is_file():
            return candidate
    spec = importlib.util.find_spec(first) if first.isidentifier() else None
    if spec is None:
        raise NoModuleError(
            f"there is no module {first!r} here or in the installed packages",
            hint=f"run it in {os.curdir}, or give file.py:function",
        )
    for folder in spec.submodule_search_locations or []:
        inner = Path(folder).joinpath(*rest)
        for candidate in (inner.with_suffix(".py"), inner / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def parse_argument(text: str) -> tuple[str, str]:
    """The name and the value, a Python literal, of NAME=VALUE; a value that is no literal is a string.

    Raises:
        PeakmemError: there is no name.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise PeakmemError(f"--argument {text} is no NAME=VALUE", hint="--argument depth=4")
    try:
        return name, repr(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return name, repr(value)


def _check_arguments(node: ast.stmt | None, name: str, arguments: tuple[tuple[str, str], ...]) -> None:
    """Raise a PeakmemError if a function, as far as it can be seen, does not take these keyword arguments."""
    if not isinstance(node, ast.FunctionDef) or node.args.kwarg is not None:
        return
    taken = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    for key, _ in arguments:
        if key not in taken:
            near = difflib.get_close_matches(key, taken, n=1)
            hint = f"did you mean {near[0]}?" if near else "it takes " + (", ".join(taken) or "no arguments")
            raise PeakmemError(f"{name}() takes no argument {key!r}", hint=hint)


def _check_name(path: Path, name: str, module: str) -> ast.stmt | None:
    """Raise a PeakmemError unless a file has the name; gives the function or class where it is defined there."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PeakmemError(f"{path} can't be read: {error}") from error
    except SyntaxError as error:
        raise PeakmemError(f"{path}:{error.lineno}: {error.msg}") from error
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined = list(definitions)
    known = name in defined or any(
        isinstance(node, ast.Name | ast.alias | ast.Starred)
        and name in (getattr(node, "id", None), getattr(node, "asname", None), getattr(node, "name", None))
        for node in ast.walk(tree)
    )
    star = any(alias.name == "*" for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
    if not known and not star:
        near = difflib.get_close_matches(name, defined, n=1)
        hint = f"did you mean {module}:{near[0]}?" if near else "it defines " + (", ".join(defined) or "no function")
        raise PeakmemError(f"{module} defines no {name!r}", hint=hint)
    return definitions.get(name)
