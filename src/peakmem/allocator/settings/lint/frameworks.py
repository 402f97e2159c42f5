"""Judge what a script does to the memory of TensorFlow and JAX: set in time, read at all, and not against itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peakmem.allocator.settings.frameworks import VARIABLES, Framework, check, meant
from peakmem.allocator.settings.lint.events import Act, Event

if TYPE_CHECKING:
    from peakmem.allocator.settings.lint.judge import Placed, Remark

ACTS = frozenset({Act.USE_TENSORFLOW, Act.USE_JAX, Act.CALL_TENSORFLOW})
_VIRTUAL = ("set_logical_device_configuration", "set_virtual_device_configuration")
_VERSION_1 = ("per_process_gpu_memory_fraction", "allow_growth")


@dataclass(slots=True)
class _Seen:
    """What came before: the first use of each framework, and the settings of devices."""

    tensorflow: Placed | None = None
    jax: Placed | None = None
    virtual: Placed | None = None
    fractions: tuple[str, ...] = ()


def judge_frameworks(placed: Iterable[Placed], blank: Remark) -> Iterator[Remark]:
    """The remarks on a script.

    Args:
        placed: its events in order.
        blank: a remark to fill in, with the path.
    """
    from peakmem.allocator.settings.lint.judge import Level

    seen = _Seen()
    for place in placed:
        event = place.event
        base = replace(blank, cell=place.cell, line=event.line, column=event.column + 1)
        if event.act is Act.USE_TENSORFLOW:
            seen.tensorflow = seen.tensorflow or place
        elif event.act is Act.USE_JAX:
            seen.jax = seen.jax or place
        elif event.act is Act.CALL_TENSORFLOW:
            for text, suggestion, error in _call(event, place, seen):
                yield replace(base, level=Level.ERROR if error else Level.WARNING, text=text, suggestion=suggestion)
        elif event.act is Act.SHELL_EXPORT and event.name in VARIABLES:
            yield replace(
                base,
                level=Level.ERROR,
                text=f"{event.name} is exported in a shell that ends at once; this process never sees it.",
                suggestion=f'os.environ["{event.name}"] before the first operation',
            )
        elif event.act is Act.SET:
            yield from _set(base, event, seen)


def _set(base: Remark, event: Event, seen: _Seen) -> Iterator[Remark]:
    from peakmem.allocator.settings.lint.judge import Level

    variable = VARIABLES.get(event.name)
    if variable is None:
        near = meant(event.name)
        if near is not None:
            yield replace(
                base, level=Level.ERROR, text=f"nothing reads {event.name}.", suggestion=f"did you mean {near}?"
            )
        return
    used = seen.tensorflow if variable.framework is Framework.TENSORFLOW else seen.jax
    if used is not None:
        yield replace(
            base,
            level=Level.ERROR,
            text=f"Too late: {event.name} is read {variable.read}, and {used.event.name} comes before, {where(used)}.",
            suggestion="set it at the top of the script, or in the shell that starts it",
        )
    if event.value is not None:
        verdict = check(event.name, event.value)
        if verdict is not None and not verdict.accepted:
            yield replace(base, level=Level.ERROR, text=f"{event.name}: {verdict.text}", suggestion=verdict.suggestion)
    if event.name.endswith("_MEM_FRACTION"):
        if seen.fractions and event.name not in seen.fractions:
            yield replace(
                base,
                level=Level.ERROR,
                text=f"{event.name} beside {seen.fractions[0]} ends JAX with a ValueError.",
                suggestion="set XLA_CLIENT_MEM_FRACTION alone",
            )
        seen.fractions = (*seen.fractions, event.name)


def _call(event: Event, place: Placed, seen: _Seen) -> Iterator[tuple[str, str, bool]]:
    """(text, suggestion, whether it is an error) for a call or an assignment."""
    first = "before anything else is done with TensorFlow"
    if event.name == "set_memory_growth":
        if seen.tensorflow is not None:
            yield (
                f"Too late: set_memory_growth raises a RuntimeError once the GPU is set up, and "
                f"{seen.tensorflow.event.name} comes before, {where(seen.tensorflow)}.",
                first,
                True,
            )
        if seen.virtual is not None:
            yield (
                f"memory growth after a limit for virtual devices ({seen.virtual.event.name}, {where(seen.virtual)}): "
                "TensorFlow raises a ValueError.",
                "growth first, then the limit; or one of the two",
                True,
            )
    elif event.name in _VIRTUAL:
        if seen.tensorflow is not None:
            yield (
                f"Too late: {event.name} raises a RuntimeError once the GPU is set up, and "
                f"{seen.tensorflow.event.name} comes before, {where(seen.tensorflow)}.",
                first,
                True,
            )
        seen.virtual = place
    elif event.name in _VERSION_1:
        share = _share(event.value)
        if event.name == "per_process_gpu_memory_fraction" and share is not None and share > 1:
            yield (
                f"a fraction of {share:g} makes TensorFlow take managed memory, which spills over to the host.",
                "a share of the card, such as 0.4",
                False,
            )
        yield (
            f"gpu_options.{event.name} counts only for a tf.compat.v1.Session made with this very configuration; Keras "
            "and eager TensorFlow 2 take no notice.",
            "tf.config.experimental.set_memory_growth(gpu, True)"
            if event.name == "allow_growth"
            else "tf.config.set_logical_device_configuration(gpu, "
            "[tf.config.LogicalDeviceConfiguration(memory_limit=MIB)])",
            False,
        )


def _share(value: str | None) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


def where(place: Placed) -> str:
    """Where in a script or a notebook something is."""
    return f"in cell {place.cell}, line {place.event.line}" if place.cell else f"on line {place.event.line}"
