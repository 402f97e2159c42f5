"""Leaves PyTorch's compiler unloaded until something asks for it.

`torch._dynamo` is imported by the first optimizer that is made (PyTorch 2.14.1, `torch/_compile.py`), by torchvision
(`ops/roi_align.py`) and by transformers (`masking_utils.py`), whether or not anything is compiled. It takes longer to
import than the steps of most models take to run, and half as long again to take down. In a script that compiles nothing
it is asked for no more than to leave functions alone, and a stand-in does that. Whatever else is asked loads the real
one, which is then told what the stand-in was told.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

from .importing import spec_of_imported

NAME = "torch._dynamo"
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


class Compiler:
    """The stand-ins, what they were told, and how the real compiler takes their place.

    Args:
        torch: the package.
        loading: makes a context manager for the time that the real one is imported in.
    """

    def __init__(self, torch, loading):
        self._torch = torch
        self._around_load = loading
        self._told = []
        self._loading = False
        self._modules = {}

    def install(self):
        """Put the stand-ins in place, unless the compiler was imported already, or is not there."""
        if NAME in sys.modules or not os.path.isdir(os.path.join(self._torch.__path__[0], "_dynamo")):
            self._loading = True
            return
        package = self._module(NAME)
        package.__path__ = [os.path.join(self._torch.__path__[0], "_dynamo")]
        package.graph_break = self._nothing("graph_break")
        package.disable = self._disable
        for name in ("assume_constant_result", "allow_in_graph", "disallow_in_graph"):
            setattr(package, name, self._mark(name))
        self._module(f"{NAME}.utils").is_compile_supported = self._later("utils", "is_compile_supported")
        traced = self._module(f"{NAME}._trace_wrapped_higher_order_op")
        traced.TransformGetItemToIndex = self._later("_trace_wrapped_higher_order_op", "TransformGetItemToIndex")
        sys.modules.update(self._modules)
        self._torch._dynamo = package
        sys.meta_path.insert(0, _Finder(self))

    @property
    def left_out(self):
        """Its name, if it is not there."""
        return [] if self._loading else [NAME]

    def load(self):
        """The real compiler."""
        if not self._loading:
            self._loading = True
            for name, module in self._modules.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
            with self._around_load():
                real = importlib.import_module(NAME)
                for name, functions in self._told:
                    getattr(real, name)(*functions)
                for name, module in self._modules.items():
                    vars(module).update(vars(importlib.import_module(name)))
        return importlib.import_module(NAME)

    def _module(self, name):
        module = types.ModuleType(name, __doc__)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=name == NAME)
        vars(module)["__getattr__"] = lambda attribute: self._attribute(name, attribute)
        self._modules[name] = module
        return module

    def _attribute(self, name, attribute):
        if attribute.startswith("__"):  # asked by whoever looks at modules, not by whoever compiles
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        self.load()
        return getattr(importlib.import_module(name), attribute)

    def _later(self, module, name):
        """A function or class that is looked up when it is called."""

        def call(*args, **kwargs):
            self.load()
            return getattr(importlib.import_module(f"{NAME}.{module}"), name)(*args, **kwargs)

        return call

    def _nothing(self, name):
        """A function that does something while a function is compiled only."""

        def call(*args, **kwargs):
            return getattr(self.load(), name)(*args, **kwargs) if self._loading else None

        return call

    def _mark(self, name):
        """A function that marks others for the compiler."""

        def mark(*functions, **kwargs):
            if self._loading or kwargs or not all(map(callable, functions)):
                return getattr(self.load(), name)(*functions, **kwargs)
            self._told.append((name, functions))
            return functions[0]

        return mark

    def _disable(self, fn=None, recursive=True, *, reason=None, wrapping=True):
        if not callable(fn):  # a decorator with arguments
            return lambda function: self._disable(function, recursive, reason=reason, wrapping=wrapping)
        if not isinstance(fn, _FUNCTIONS):  # of a module or a class, another comes back
            return self.load().disable(fn, recursive)
        disabled = None

        @functools.wraps(fn)
        def call(*args, **kwargs):
            nonlocal disabled
            if not self._loading:
                return fn(*args, **kwargs)
            if disabled is None:
                disabled = self.load().disable(fn, recursive)
            return disabled(*args, **kwargs)

        return call


class _Finder(importlib.abc.MetaPathFinder):
    """Loads the real compiler when another of its modules is imported."""

    def __init__(self, compiler):
        self._compiler = compiler

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(NAME + ".") or not self._compiler.left_out:
            return None
        self._compiler.load()
        return spec_of_imported(fullname)
