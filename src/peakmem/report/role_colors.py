"""The colour of each role and the order in which roles are stacked: one table for the page, the notebook and plots."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.trace.roles import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleColor:
    """A colour on a light and on a dark background, "#rrggbb"."""

    light: str
    dark: str


ROLE_COLORS = {
    # From what stays to what comes and goes, so that the lower layers of a chart are the steady ones.
    Role.PARAMETER: RoleColor(light="#3b6fd4", dark="#6c98f0"),
    Role.BUFFER: RoleColor(light="#8fb2ea", dark="#48679c"),
    Role.OPTIMIZER_STATE: RoleColor(light="#7e57c2", dark="#a585e6"),
    Role.GRADIENT: RoleColor(light="#e38b34", dark="#f0a257"),
    Role.INPUT: RoleColor(light="#7c8a99", dark="#8d9bab"),
    Role.AUTOCAST_COPY: RoleColor(light="#25a3b3", dark="#46bfce"),
    Role.ACTIVATION: RoleColor(light="#2e9e6b", dark="#46b981"),
    Role.COMMUNICATION: RoleColor(light="#c2558d", dark="#dc7cb0"),
    Role.WORKSPACE: RoleColor(light="#cfa827", dark="#dfbe4d"),
    Role.TEMPORARY: RoleColor(light="#d9605a", dark="#ee7f79"),
    Role.UNATTRIBUTED: RoleColor(light="#a3abb5", dark="#69747f"),
}
STACKING = tuple(ROLE_COLORS)
"""Roles from the lowest layer of a chart to the highest."""

PHASE_COLORS = {
    "forward": ROLE_COLORS[Role.ACTIVATION],
    "backward": ROLE_COLORS[Role.GRADIENT],
    "optimizer": ROLE_COLORS[Role.OPTIMIZER_STATE],
    "other": ROLE_COLORS[Role.UNATTRIBUTED],
}


def css_variables(*, dark: bool = False) -> str:
    """The tables as CSS declarations: `--c-parameter: #3b6fd4; ... --p-forward: #2e9e6b; ...`."""
    named = {f"c-{role.word}": color for role, color in ROLE_COLORS.items()}
    named |= {f"p-{phase}": color for phase, color in PHASE_COLORS.items()}
    return " ".join(f"--{name}: {color.dark if dark else color.light};" for name, color in named.items())
