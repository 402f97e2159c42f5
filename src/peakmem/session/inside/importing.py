"""Run a function right after a module was imported for the first time, whoever imports it."""

import importlib.abc
import importlib.util
import sys


class _Loader(importlib.abc.Loader):
    """The module's own loader, with a call after it."""

    def __init__(self, loader, then):
        self._loader = loader
        self._then = then

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps its real loader: some packages read their own `__loader__`.
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name, then):
        self._name = name
        self._then = then

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


def when_imported(name, then):
    """Call `then(module)` as soon as the module `name` has been imported; at once if it already is."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
