"""From the text that names a model to its workload."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request, Workload

CHECKPOINTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".gguf", ".onnx")

_SOURCES = ("torchvision", "timm", "hf", "huggingface", "transformers")

FORMS = """dense:1000-100-100-10         linear layers of these widths
torchvision:resnet50          a model of torchvision
timm:vit_base_patch16_224     a model of timm
hf:FOLDER, hf:ORG/NAME        a model of transformers, from its config.json
package.module:function       a function that returns a module, or (module, inputs, loss)
file.py:function              the same
jax:file.py:function          a function that returns (function, arguments): what XLA says one call takes
keras:file.py:function        a function that returns a keras.Model; a .keras or .h5 file is one as well
model.safetensors, model.pt   a checkpoint on disk: what loading and training hold at least"""


def is_checkpoint(what: str) -> bool:
    """Whether a text names a checkpoint on disk: a file, or a folder of shards."""
    path = Path(what)
    if path.is_dir():
        return any(path.glob("*.index.json")) or any(entry.suffix in CHECKPOINTS for entry in path.iterdir())
    return what.endswith((*CHECKPOINTS, ".index.json")) and ":" not in path.name


def names_a_function(what: str) -> bool:
    """Whether a text has the form of a function that builds the model."""
    module, _, name = what.rpartition(":")
    if what.partition(":")[0] in (*_SOURCES, "dense") or not name.isidentifier():
        return False
    return module.endswith(".py") or re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", module) is not None


def draws_for_nothing(what: str) -> bool:
    """Whether the initial values of a model are known to have no say in what it holds, so that they can be left out.

    Models of transformers are built without them by their scripts; a function of the user may look at them.
    """
    return what.startswith(("dense:", "torchvision:", "timm:"))


def workload_of(request: Request) -> Workload:
    """The workload that a request names.

    Raises:
        PeakmemError: it names none, or what it names is not here.
    """
    what = request.what
    kind, colon, rest = what.partition(":")
    if request.arguments and not names_a_function(what):
        raise PeakmemError(f"{what} takes no arguments", hint="--argument is for file.py:function")
    if colon and rest:
        if kind == "dense":
            from peakmem.workload.sources.dense import dense

            return dense(request, rest)
        if kind in ("torchvision", "timm"):
            from peakmem.workload.sources import images

            return (images.torchvision if kind == "torchvision" else images.timm)(request, rest)
        if kind in _SOURCES:
            from peakmem.workload.sources.huggingface import hugging_face

            return hugging_face(request, rest)
        if names_a_function(what):
            module, _, name = what.rpartition(":")
            from peakmem.workload.sources.function import NoModuleError, function

            try:
                return function(request, module, name)
            except NoModuleError as error:
                meant = difflib.get_close_matches(kind, (*_SOURCES, "dense", "keras", "jax"), n=1, cutoff=0.75)
                if not meant:
                    raise
                raise NoModuleError(error.message, hint=f"did you mean {meant[0]}:{rest}?") from None
    if Path(what).suffix in CHECKPOINTS:
        raise PeakmemError(f"there is no file {what}")
    if what.endswith(".py"):
        raise PeakmemError(
            f"{what} is a script", hint=f"peakmem run {what} runs it as it is; {what}:function builds a model from it"
        )
    raise PeakmemError(f"{what!r} names no model", hint=_near(what) + "it may be:\n" + FORMS)


def _near(what: str) -> str:
    if re.fullmatch(r"\d+(-\d+)+", what):
        return f"did you mean dense:{what}?\n"
    if Path(what, "config.json").is_file():
        return f"did you mean hf:{what}?\n"
    if re.fullmatch(r"[\w.]+", what):
        return f"did you mean torchvision:{what} or timm:{what}?\n"
    return ""
