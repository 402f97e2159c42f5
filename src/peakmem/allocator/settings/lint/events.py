"""What a script does, in the order it does it, as far as the allocator's settings are concerned.

The walk follows a program from its first statement: a function's body is visited where the function is first called, or
at the end if the script itself never calls it. Branches are visited in the order they are written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Act(Enum):
    """What happens at a place."""

    SET = "a variable is set"
    IMPORT_TORCH = "torch is imported"
    USE_CUDA = "CUDA is used"
    CALL_SETTINGS = "settings are changed by a call"
    SHELL_EXPORT = "a variable is set in a shell of its own"
    USE_TENSORFLOW = "TensorFlow's devices are used"
    CALL_TENSORFLOW = "TensorFlow's memory is configured"
    USE_JAX = "JAX's devices are used"


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One event. `name` and `value` are those of a variable or a call; value is None if it isn't a literal."""

    act: Act
    line: int
    column: int
    name: str = ""
    value: str | None = None
    called: bool = True


_HARMLESS = frozenset({
    "is_available", "device_count", "is_initialized", "manual_seed", "manual_seed_all", "is_bf16_supported",
    "get_allocator_backend", "nvtx", "amp", "is_in_bad_fork",
})  # fmt: skip
"""Members of torch.cuda that do not read the settings (manual_seed waits for the first use)."""

_IMPORTS_TORCH = frozenset({
    "torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "timm", "peft",
    "diffusers", "bitsandbytes", "xformers", "flash_attn", "trl", "unsloth", "vllm", "fairscale", "monai",
    "ultralytics",
})  # fmt: skip
"""Packages that import torch when they are imported."""

_TENSORFLOW_USES = frozenset({
    "constant", "Variable", "zeros", "ones", "fill", "range", "convert_to_tensor", "matmul", "random.normal",
    "random.uniform", "random.truncated_normal", "linspace", "eye", "zeros_like", "ones_like", "keras.Sequential",
    "keras.Model", "test.gpu_device_name", "test.is_gpu_available", "config.list_logical_devices",
    "config.experimental.list_logical_devices", "config.experimental.get_memory_info",
})  # fmt: skip
"""Calls of tf that set up the GPU; `tf.config.list_physical_devices` does not."""

_TENSORFLOW_SETTERS = frozenset({
    "set_memory_growth", "set_logical_device_configuration", "set_virtual_device_configuration",
})  # fmt: skip

_GPU_OPTIONS = frozenset({"allow_growth", "per_process_gpu_memory_fraction"})

_JAX_USES = frozenset(
    {"devices", "local_devices", "device_count", "local_device_count", "device_put", "default_backend"}
)

_SETTERS = frozenset({"_set_allocator_settings", "_accelerator_setAllocatorSettings"})


def events(tree: ast.Module) -> list[Event]:
    """The events of a module, in order."""
    walker = _Walker(tree)
    found = list(walker.block(tree.body))
    for function in walker.functions.values():
        if function not in walker.entered:
            walker.entered.add(function)
            walker.called = False
            found.extend(walker.block(function.body))
    return found


class _Walker:
    def __init__(self, tree: ast.Module) -> None:
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef)
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, definitions)}
        self.entered: set[ast.FunctionDef | ast.AsyncFunctionDef] = set()
        self.constants: dict[str, str] = {}
        self.called = True

    def block(self, body: list[ast.stmt]) -> Iterator[Event]:
        for statement in body:
            yield from self.statement(statement)

    def statement(self, node: ast.stmt) -> Iterator[Event]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if isinstance(node, ast.ClassDef):
            yield from self.block(node.body)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self.imports(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                yield from self.expression(node.value)
            yield from self.assignment(node)
        elif isinstance(node, (ast.If, ast.While)):
            yield from self.expression(node.test)
            yield from self.block(node.body)
            yield from self.block(node.orelse)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield from self.expression(node.iter)
            yield from self.block(node.body)
            yield from self.block(node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                yield from self.expression(item.context_expr)
            yield from self.block(node.body)
        elif isinstance(node, ast.Try):
            yield from self.block(node.body)
            for handler in node.handlers:
                yield from self.block(handler.body)
            yield from self.block(node.orelse)
            yield from self.block(node.finalbody)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from self.expression(child)
                elif isinstance(child, ast.stmt):
                    yield from self.statement(child)

    def event(self, act: Act, node: ast.AST, name: str = "", value: str | None = None) -> Event:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return Event(act=act, line=line, column=column, name=name, value=value, called=self.called)

    def imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[Event]:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _IMPORTS_TORCH:
                yield self.event(Act.IMPORT_TORCH, node, name)

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Event]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and _is_environment(target.value):
                name = self.text(target.slice)
                if name is not None:
                    value = self.text(node.value) if not isinstance(node, ast.AugAssign) else None
                    yield self.event(Act.SET, node, name, value)
            elif isinstance(target, ast.Attribute) and target.attr in _GPU_OPTIONS:
                if isinstance(target.value, ast.Attribute) and target.value.attr == "gpu_options":
                    yield self.event(Act.CALL_TENSORFLOW, node, target.attr, ast.unparse(node.value or target))
            elif isinstance(target, ast.Name):
                text = self.text(node.value)
                if text is not None:
                    self.constants[target.id] = text

    def expression(self, node: ast.expr) -> Iterator[Event]:
        if isinstance(node, ast.Lambda):
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self.expression(child)
            elif isinstance(child, ast.keyword):
                yield from self.expression(child.value)
            elif isinstance(child, ast.comprehension):
                yield from self.expression(child.iter)
        if isinstance(node, ast.Call):
            yield from self.call(node)

    def call(self, node: ast.Call) -> Iterator[Event]:
        function = node.func
        if isinstance(function, ast.Name):
            definition = self.functions.get(function.id)
            if definition is not None and definition not in self.entered:
                self.entered.add(definition)
                yield from self.block(definition.body)
                return
            if function.id in _SETTERS and node.args:
                yield self.event(Act.CALL_SETTINGS, node, function.id, self.text(node.args[0]))
                return
        elif isinstance(function, ast.Attribute):
            yield from self.method(node, function)
        if _names_cuda(node):
            yield self.event(Act.USE_CUDA, node, ast.unparse(node.func))

    def method(self, node: ast.Call, function: ast.Attribute) -> Iterator[Event]:
        first = self.text(node.args[0]) if node.args else None
        sets_default = function.attr == "setdefault" and _is_environment(function.value)
        if (sets_default or function.attr == "putenv") and first is not None:
            yield self.event(Act.SET, node, first, self.text(node.args[1]) if len(node.args) > 1 else None)
        elif function.attr == "update" and _is_environment(function.value):
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    for key, value in zip(argument.keys, argument.values, strict=True):
                        name = self.text(key)
                        if name is not None:
                            yield self.event(Act.SET, node, name, self.text(value))
            for keyword in node.keywords:
                if keyword.arg:
                    yield self.event(Act.SET, node, keyword.arg, self.text(keyword.value))
        elif function.attr in _SETTERS:
            yield self.event(Act.CALL_SETTINGS, node, function.attr, first)
        elif function.attr in ("system", "run", "call", "check_call", "check_output", "Popen", "getoutput") and first:
            yield from shell_exports(first, node.lineno, node.col_offset, called=self.called)
        elif function.attr == "cuda" or _torch_cuda_use(function):
            yield self.event(Act.USE_CUDA, node, ast.unparse(function))
        else:
            yield from self.other_frameworks(node, function)

    def other_frameworks(self, node: ast.Call, function: ast.Attribute) -> Iterator[Event]:
        name = ast.unparse(function)
        root, _, rest = name.partition(".")
        if function.attr in _TENSORFLOW_SETTERS:
            yield self.event(Act.CALL_TENSORFLOW, node, function.attr)
        elif function.attr == "GPUOptions":
            for keyword in node.keywords:
                if keyword.arg in _GPU_OPTIONS:
                    yield self.event(Act.CALL_TENSORFLOW, node, keyword.arg or "", ast.unparse(keyword.value))
        elif (root in ("tf", "tensorflow") and rest in _TENSORFLOW_USES) or name in (
            "keras.Sequential",
            "keras.Model",
            "device_lib.list_local_devices",
        ):
            yield self.event(Act.USE_TENSORFLOW, node, name)
        elif root == "jnp" or (root == "jax" and (rest in _JAX_USES or rest.startswith(("numpy.", "random.")))):
            yield self.event(Act.USE_JAX, node, name)

    def text(self, node: ast.expr | None) -> str | None:
        """The literal value of an expression, through names that were given one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self.constants.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left), self.text(node.right)
            return left + right if left is not None and right is not None else None
        return None


def shell_exports(command: str, line: int, column: int, *, called: bool = True) -> Iterator[Event]:
    """Variables that a shell command exports for itself only."""
    words = command.replace(";", " ").replace("&&", " ").split()
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        if equals and before in ("export", "set", "setenv") and name.startswith(("PYTORCH", "TF_", "XLA_")):
            act = Act.SHELL_EXPORT
            yield Event(act=act, line=line, column=column, name=name, value=value.strip("'\""), called=called)


def _is_environment(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def _torch_cuda_use(function: ast.Attribute) -> bool:
    names: list[str] = []
    node: ast.expr = function
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id != "torch" or len(names) < 2 or names[-1] != "cuda":
        return False
    return names[-2] not in _HARMLESS


def _names_cuda(node: ast.Call) -> bool:
    """Whether a call puts something on the GPU: .to("cuda"), device="cuda:0"."""

    def is_cuda(value: ast.expr) -> bool:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "device":
            return any(is_cuda(argument) for argument in value.args)
        return isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.startswith("cuda")

    if any(keyword.arg == "device" and is_cuda(keyword.value) for keyword in node.keywords):
        return True
    return isinstance(node.func, ast.Attribute) and node.func.attr == "to" and any(is_cuda(arg) for arg in node.args)
