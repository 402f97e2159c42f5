"""Has Python look for garbage less often while libraries are imported.

Imports make hundreds of thousands of objects that stay, and Python looks through them again and again: a sixth of the
time that `import torch` and GPT-2 of transformers take (CPython 3.11: 1,071 times, 0.7 of 4.1 s; so 44 times, and the
resident memory after it is the same, 768.4 and 768.7 MB). From the first parameter on, or whatever else says that the
training begins, it looks as often as ever: what a script keeps in circles of references is freed when it would be.
"""

import contextlib
import gc

RARELY = (20_000, 50, 50)

_before = None


def look_rarely():
    """From now on less often, unless the script has said so itself."""
    global _before
    found = gc.get_threshold()
    if _before is None and 0 < found[0] < RARELY[0]:
        _before = found
        gc.set_threshold(*RARELY)


def look_as_ever(*_ignored):
    """As often as before; what a script has said meanwhile stays."""
    global _before
    if _before is None:
        return
    if gc.get_threshold() == RARELY:
        gc.set_threshold(*_before)
    _before = None


def until_training(torch):
    """End it with the first parameter of a module, or with the first use of CUDA."""
    with contextlib.suppress(AttributeError):  # of PyTorch 2.0 and later
        torch.nn.modules.module.register_module_parameter_registration_hook(look_as_ever)
        torch.cuda._lazy_call(look_as_ever)
        return
    look_as_ever()
