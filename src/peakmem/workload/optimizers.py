"""Optimizers by their names, with the arguments that they are made with."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass, field
from typing import Any

from peakmem.errors import PeakmemError

DEFAULT_OPTIMIZER = "adamw"

OPTIMIZERS = {
    "adadelta": "Adadelta", "adafactor": "Adafactor", "adagrad": "Adagrad", "adam": "Adam", "adamax": "Adamax",
    "adamw": "AdamW", "asgd": "ASGD", "lbfgs": "LBFGS", "muon": "Muon", "nadam": "NAdam", "radam": "RAdam",
    "rmsprop": "RMSprop", "rprop": "Rprop", "sgd": "SGD",
}  # fmt: skip
"""Names of the optimizers of `torch.optim` (PyTorch 2.14.1) but SparseAdam, which takes sparse gradients only."""

BITSANDBYTES = {
    "adam8bit": "Adam8bit", "adamw8bit": "AdamW8bit", "lion8bit": "Lion8bit", "sgd8bit": "SGD8bit",
    "rmsprop8bit": "RMSprop8bit", "paged_adamw": "PagedAdamW", "paged_adamw8bit": "PagedAdamW8bit",
    "paged_lion8bit": "PagedLion8bit", "ademamix8bit": "AdEMAMix8bit",
}  # fmt: skip
"""Names of optimizers of `bitsandbytes.optim`."""

IMPLEMENTATIONS = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
}
"""Words after an optimizer's name that choose how it goes over the parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimizer and what it is made with.

    Attributes:
        name: as in `OPTIMIZERS` or `BITSANDBYTES`.
        arguments: keyword arguments of its constructor.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Optimizer:
        """Read `NAME[:WORD,KEY=VALUE,...]`, such as `adamw`, `sgd:momentum=0.9` or `adamw:fused`.

        Raises:
            PeakmemError: there is no such optimizer, or its arguments can't be read.
        """
        name, _, rest = text.partition(":")
        name = name.strip().lower().replace("-", "_")
        if name == "sparseadam":
            raise PeakmemError("SparseAdam takes sparse gradients only", hint="--optimizer adam")
        if name not in OPTIMIZERS and name not in BITSANDBYTES:
            near = difflib.get_close_matches(name, [*OPTIMIZERS, *BITSANDBYTES], n=1)
            raise PeakmemError(
                f"there is no optimizer {name!r}",
                hint=f"did you mean {near[0]}?" if near else "one of " + ", ".join([*OPTIMIZERS, *BITSANDBYTES]),
            )
        arguments: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in rest.split(","))):
            key, equals, value = part.partition("=")
            if not equals:
                if key not in IMPLEMENTATIONS or name in BITSANDBYTES:
                    raise PeakmemError(
                        f"--optimizer {text}: {key!r} is no KEY=VALUE and none of {', '.join(IMPLEMENTATIONS)}",
                        hint="--optimizer adamw:fused, --optimizer sgd:momentum=0.9,nesterov=true",
                    )
                arguments |= IMPLEMENTATIONS[key]
                continue
            if not key.isidentifier():
                raise PeakmemError(f"--optimizer {text}: {key!r} is no name of an argument")
            arguments[key] = _literal(value, text)
        return cls(name=name, arguments=arguments)

    @property
    def package(self) -> str:
        """The package that has it."""
        return "bitsandbytes" if self.name in BITSANDBYTES else "torch"

    @property
    def constructor(self) -> str:
        """How it is called in a script."""
        if self.name in BITSANDBYTES:
            return f"bitsandbytes.optim.{BITSANDBYTES[self.name]}"
        return f"torch.optim.{OPTIMIZERS[self.name]}"

    def made_from(self, parameters: str) -> str:
        """The expression that makes it."""
        arguments = dict(self.arguments)
        if self.name not in ("adafactor",):
            arguments.setdefault("lr", 1e-3)
        words = [f"{key}={value!r}" for key, value in arguments.items()]
        return f"{self.constructor}({', '.join([parameters, *words])})"

    def __str__(self) -> str:
        words = [f"{key}={value}" for key, value in self.arguments.items()]
        name = self.constructor.rpartition(".")[2]
        return f"{name} ({', '.join(words)})" if words else name


def _literal(value: str, text: str) -> Any:
    if value.lower() in ("true", "false", "none"):
        value = value.capitalize()
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError) as error:
        raise PeakmemError(
            f"--optimizer {text}: {value!r} is no number, true, false or none", hint="--optimizer adam:amsgrad=true"
        ) from error
