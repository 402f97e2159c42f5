"""Run a function right after a module was imported for the first time, whoever imports it, or right before."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys


class _Loader(importlib.abc.Loader):
    """The module's own loader, with a call before it and one after it."""

    def __init__(self, loader, finder, then, first):
        self._loader = loader
        self._finder = finder
        self._then = then
        self._first = first

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps its real loader: some packages read their own `__loader__`.
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._first()
        self._loader.exec_module(module)
        self._then(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, as often as somebody looks for it (which is not to import it)."""

    def __init__(self, name, then, first):
        self._name = name
        self._then = then
        self._first = first
        self._looking = False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self, self._then, self._first)
        return spec


def when_imported(name, then, *, first=lambda: None):
    """Call `then(module)` as soon as the module `name` has been imported; at once if it already is.

    Args:
        name: of the module.
        then: the function.
        first: called right before the module is imported; not at all if it already is.
    """
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then, first))


def spec_of_imported(name):
    """What a finder gives when looking for a module has imported it; None if it has not.

    importlib takes the module's own spec where it has one (CPython 3.10 to 3.13, `_find_spec`), and would run the
    module again with it: so it has none until the import is done.
    """
    module = sys.modules.get(name)
    if module is None:
        return None
    spec = importlib.machinery.ModuleSpec(name, _Imported(module, module.__spec__))
    vars(module)["__spec__"] = None  # a module may forbid to set attributes
    return spec


class _Imported(importlib.abc.Loader):
    """Gives a module that is there already."""

    def __init__(self, module, spec):
        self._module = module
        self._spec = spec

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        vars(module)["__spec__"] = self._spec
