"""A forecast whose peaks come from a run without any watching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from peakmem.forecast.model import Forecast, judge

_NEEDED = frozenset(("requested", "active", "allocated", "reserved"))


def with_unwatched_peaks(forecast: Forecast, peaks: Mapping[str, int]) -> Forecast:
    """The same forecast with other peaks; what they are more or less than what was recorded is said, and not hidden.

    Args:
        forecast: of a recorded run that ended well.
        peaks: `requested`, `active`, `allocated` and `reserved`, bytes; anything else: the forecast stays as it is.
    """
    if not peaks.keys() >= _NEEDED or forecast.error is not None or forecast.oom is not None:
        return forecast
    recorded = forecast.peak
    if all(getattr(recorded, name) == peaks[name] for name in _NEEDED):
        return forecast
    more = peaks["allocated"] - recorded.allocated
    roles = dict(forecast.roles_at_peak)
    role = "unattributed" if more >= 0 else "temporary"
    roles[role] = roles.get(role, 0) + more
    if roles[role] < 0:
        roles["unattributed"] = roles.get("unattributed", 0) + roles[role]
        roles[role] = 0
    used = peaks["reserved"] + recorded.context
    held = peaks["reserved"] - recorded.reserved
    note = (
        f"the peak is that of a run without a recording, which had {more:+,} bytes allocated and {held:+,} reserved "
        "against the recorded one: tensors in reference cycles live until Python collects garbage, and recording moves "
        f"that ({role} takes the difference)"
    )
    return replace(
        forecast,
        peak=replace(
            recorded,
            requested=peaks["requested"],
            allocated=peaks["allocated"],
            active=peaks["active"],
            reserved=peaks["reserved"],
            used=used,
        ),
        roles_at_peak=roles,
        verdict=judge(used=used, total=forecast.gpu.total, failed=False),
        notes=(note, *forecast.notes),
    )
