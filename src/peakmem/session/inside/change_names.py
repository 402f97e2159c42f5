"""The changes that can be made in a watched process: their names and values. Read on both sides of a session."""

CHANGES: "dict[str, tuple[str, ...] | None]" = {
    "amp": ("bf16",),
    "optimizer.fused": ("true",),
    "optimizer.foreach": ("false", "true"),
    "zero_grad": ("end", "none"),
    "checkpoint": ("blocks",),
    "ddp.gradient_as_bucket_view": ("true",),
    "accumulate": None,
    "cudnn.benchmark": ("false", "true"),
}
"""Name -> the values it takes; None: a number from 2 on."""


def parse_change(text: str) -> "tuple[str, str]":
    """The name and the value of a change such as `amp=bf16`.

    Raises:
        ValueError: there is no such change.
    """
    name, _, value = text.partition("=")
    if name not in CHANGES:
        raise ValueError(f"there is no change {name!r}; there are {', '.join(CHANGES)}")
    values = CHANGES[name]
    if values is None:
        if not value.isdigit() or int(value) < 2:
            raise ValueError(f"{name}={value} is no number from 2 on")
    elif value not in values:
        raise ValueError(f"{name}={value}: it takes {' or '.join(values)}")
    return name, value
