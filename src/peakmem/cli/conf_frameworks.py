"""`peakmem conf check NAME=VALUE` for the variables of TensorFlow and JAX."""

from __future__ import annotations

from peakmem.allocator.settings.frameworks import VARIABLES, check, meant
from peakmem.errors import ExitCode, PeakmemError


def judge_framework(string: str, json_target: str | None) -> bool:
    """Say what becomes of an assignment to a variable of TensorFlow or JAX; False if it is none.

    Raises:
        PeakmemError: the name is a misspelt one.
        SystemExit: the value is not read as meant.
    """
    from peakmem.cli.plain import item, text_console
    from peakmem.files import write_json

    name, equals, value = string.strip().removeprefix("export ").strip().partition("=")
    if not equals or ":" in name:
        return False
    near = meant(name)
    if near is not None:
        raise PeakmemError(f"nothing reads {name}", hint=f"did you mean {near}?")
    variable = VARIABLES.get(name)
    if variable is None:
        return False
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    verdict = check(name, value)
    assert verdict is not None
    if json_target is not None:
        written = {
            "schema": "peakmem/conf-check/1",
            "variable": name,
            "framework": variable.framework.value,
            "value": value,
            "accepted": verdict.accepted,
            "text": verdict.text,
            "suggestion": verdict.suggestion,
        }
        write_json(written, json_target)
    if json_target != "-":
        console = text_console()
        style = "green" if verdict.accepted else "red"
        item(
            console,
            "accepted" if verdict.accepted else "not read",
            verdict.text,
            style=style,
            hint=verdict.suggestion,
        )
        item(console, "read", f"by {variable.framework.value}, {variable.read}.")
    if not verdict.accepted:
        raise SystemExit(ExitCode.BAD_INPUT)
    return True
