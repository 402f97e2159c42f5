"""The model that a called module is a part of, where that one is never called itself (a `LightningModule`, say).

Found by asking the garbage collector who holds a module; nothing is kept, and it is asked only a few times.
"""

import gc

_MOST_GENERATIONS = 6


def outermost_parent(module, module_class):
    """The module that holds a module through all generations, itself if nobody does."""
    for _ in range(_MOST_GENERATIONS):
        parent = _parent(module, module_class)
        if parent is None:
            break
        module = parent
    return module


def _parent(module, module_class):
    for children in gc.get_referrers(module):
        if not isinstance(children, dict):
            continue
        for holder in gc.get_referrers(children):
            if _holds(holder, children, module_class):
                return holder
            # Its attributes may be in a dict of their own.
            if isinstance(holder, dict) and holder.get("_modules") is children:
                for owner in gc.get_referrers(holder):
                    if _holds(owner, children, module_class):
                        return owner
    return None


def _holds(holder, children, module_class):
    return isinstance(holder, module_class) and vars(holder).get("_modules") is children
