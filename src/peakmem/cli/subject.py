"""What several commands are asked about: a command line, or a model's name with the options of `predict`."""

from __future__ import annotations

import copy
import dataclasses
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peakmem.errors import PeakmemError
from peakmem.workload.resolving import names_a_function

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_VARIED = ("batch", "tokens", "accumulate", "lora")
_TEXTS = ("what", "shape", "optimizer")


def names_a_model(word: str) -> bool:
    """Whether a word is what `predict` takes, such as `torchvision:resnet50`, and no program or script."""
    return ":" in word and not Path(word).exists() and shutil.which(word) is None


class SubjectCommand(click.Command):
    """A command that takes `[--] COMMAND ARGUMENTS` or `WHAT`, the latter with all options of `peakmem predict`.

    The callback gets `words` (the command, or the model's name alone) and `predicting`, a dict of the options of
    `predict` that the command has not itself; None for a command line.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Find out which of the two it is, then parse so."""
        ctx.allow_interspersed_args = False
        words = self._words(ctx, args)
        if not words or not names_a_model(words[0]):
            ctx.params["predicting"] = None
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = True
        own: set[str | None] = {parameter.name for parameter in self.params}
        others = _predict_options(own)
        whole = click.Command(self.name, params=[*self.params, *others], add_help_option=False)
        inner = whole.make_context(ctx.info_name, [word for word in args if word != "--"], parent=ctx.parent)
        words = inner.params["words"]
        if len(words) != 1:
            raise PeakmemError(f"{' '.join(words[1:])!r} is one word too much beside {words[0]}")
        names = [parameter.name for parameter in others if parameter.name is not None]
        ctx.params.update({name: value for name, value in inner.params.items() if name in own})
        ctx.params["predicting"] = {name: inner.params[name] for name in names}
        return []

    def _words(self, ctx: click.Context, args: list[str]) -> tuple[str, ...]:
        """The words that are no options of this command; options of `predict` in front of a model are passed over."""
        if any(word in ctx.help_option_names for word in args[: args.index("--") if "--" in args else None]):
            return ()
        probe = click.Command(self.name, params=[*self.params, *_predict_options({p.name for p in self.params})])
        probe.allow_interspersed_args = False
        with click.Context(probe, resilient_parsing=True) as inner:
            inner.allow_interspersed_args = False
            found, _, _ = probe.make_parser(inner).parse_args(list(args))
        words = found.get("words") or ()
        return tuple(words)


def _predict_options(own: set[str | None]) -> list[click.Parameter]:
    from peakmem.cli.predict import command

    options = [copy.copy(parameter) for parameter in command.params if parameter.name not in own]
    return [option for option in options if isinstance(option, click.Option)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What is run for certain values.

    Attributes:
        command: the program and its arguments.
        variables: environment variables beside the inherited ones.
        no_initial_values: whether initial values that a model draws on the host are left out.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str]
    no_initial_values: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptSubject:
    """A command line, in which `{name}` stands for a value.

    Attributes:
        words: as typed.
        module: whether the first word is the name of a Python module.
    """

    words: tuple[str, ...]
    module: bool = False

    @property
    def title(self) -> str:
        """How it is called in print."""
        return " ".join(self.words)

    def check(self, name: str, *, in_environment: bool) -> None:
        """Raise a PeakmemError unless a value has a place to go."""
        if in_environment or any(f"{{{name}}}" in word for word in self.words):
            return
        line = " ".join(self.words)
        found = re.search(rf"(--?{re.escape(name)}[= ])\S+", line)
        better = line.replace(found[0], f"{found[1]}{{{name}}}") if found else f"{line} --{name} {{{name}}}"
        raise PeakmemError(
            f"nothing in the command stands for {name}",
            hint=f"write {{{name}}} where its value belongs: -- {better}\nor --vary env:NAME=... for a variable",
        )

    def at(self, values: Mapping[str, int], *, variables: Mapping[str, str]) -> Prepared:
        """The command with values in their places."""
        from peakmem.session.command import resolve

        words = tuple(_filled(word, values) for word in self.words)
        return Prepared(command=resolve(words, module=self.module), variables=variables)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSubject:
    """A model's name with training settings; its training scripts are written into a folder.

    Attributes:
        options: as `peakmem predict` has them.
        folder: where scripts are written.
    """

    options: PredictOptions
    folder: Path

    @property
    def title(self) -> str:
        """How it is called in print."""
        return self.options.what

    def check(self, name: str, *, in_environment: bool) -> None:
        """Raise a PeakmemError unless a value has a place to go."""
        if in_environment:
            raise PeakmemError("a model reads no environment variables", hint="--vary batch=1..512")
        texts = [getattr(self.options, field) or "" for field in _TEXTS]
        texts += self.options.arguments
        if name in _VARIED or any(f"{{{name}}}" in text for text in texts):
            return
        if not names_a_function(self.options.what):
            raise PeakmemError(
                f"{name} is nothing that can be varied here",
                hint=f"one of {', '.join(_VARIED)}, or a place in the name or the input: dense:100-{{{name}}}-10, "
                f"--input 3x{{{name}}}x{{{name}}}; a function's keyword arguments: file.py:function",
            )

    def varied(self, values: Mapping[str, int]) -> PredictOptions:
        """The options with values in their places."""
        changes: dict[str, Any] = {
            name: _filled(text, values) for name in _TEXTS if (text := getattr(self.options, name))
        }
        changes |= {name: value for name, value in values.items() if name in _VARIED}
        arguments = tuple(_filled(text, values) for text in self.options.arguments)
        placed = "".join([*self.options.arguments, *(getattr(self.options, name) or "" for name in _TEXTS)])
        for name, value in values.items():
            if name not in _VARIED and f"{{{name}}}" not in placed:  # an argument of the function, then
                kept = (text for text in arguments if not text.startswith(f"{name}="))
                arguments = (*kept, f"{name}={value}")
        changes["arguments"] = arguments
        return replace(self.options, **changes)

    def at(self, values: Mapping[str, int], *, variables: Mapping[str, str]) -> Prepared:
        """The script for these values."""
        return self.written(self.varied(values), "-".join(f"{name}-{value}" for name, value in values.items()))

    def written(self, options: PredictOptions, label: str) -> Prepared:
        """The script for some options, under a label."""
        from peakmem.cli.generated import MOST_STEPS, write_training
        from peakmem.workload.resolving import draws_for_nothing, is_checkpoint

        if is_checkpoint(options.what):
            raise PeakmemError(f"{options.what} is a checkpoint, which can't be trained without its architecture")
        script = write_training(replace(options, steps=str(MOST_STEPS))).script
        path = self.folder / (f"{label}.py" if label else "train.py")
        path.write_text(script, encoding="utf-8")
        return Prepared(
            command=(sys.executable, str(path)), variables={}, no_initial_values=draws_for_nothing(options.what)
        )


Subject = ScriptSubject | ModelSubject


def subject_of(
    words: tuple[str, ...], predicting: dict[str, Any] | None, *, module: bool, shared: Mapping[str, Any], folder: Path
) -> Subject:
    """What the words name.

    Args:
        words: the command, or the model's name.
        predicting: options of `predict`; None for a command.
        module: whether the first word is the name of a Python module.
        shared: options that the command and `predict` have in common.
        folder: where training scripts can be written.

    Raises:
        PeakmemError: there are no words, or the options are for no card.
    """
    if predicting is None:
        if not words:
            raise PeakmemError("there is nothing to run", hint="give a command, or a model: torchvision:resnet50")
        return ScriptSubject(words=words, module=module)
    from peakmem.cli.predict_options import PredictOptions

    if predicting.get("device") == "cpu":
        raise PeakmemError(
            "--device cpu is for peakmem run and peakmem predict: this command asks about cards",
            hint=f"peakmem predict --device cpu {words[0]} tells what one batch takes of the host",
        )
    names = {field.name for field in dataclasses.fields(PredictOptions)}
    values = {**predicting, **{name: value for name, value in shared.items() if name in names}, "what": words[0]}
    values |= {"json_target": None, "save_target": None, "print_script": False, "save_script": None, "no_range": True}
    return ModelSubject(options=PredictOptions(**{name: values[name] for name in names}), folder=folder)


def _filled(text: str, values: Mapping[str, int]) -> str:
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], text)
