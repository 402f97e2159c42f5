"""A forecast and a measurement side by side: how far the prediction was off. Sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from peakmem.errors import PeakmemError
from peakmem.host.measurement import SCHEMA as MEASUREMENT
from peakmem.host.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "peakmem/beside/1"
FORECASTS = ("peakmem/forecast/1", "peakmem/cpu-forecast/1")
_OF_THE_HOST = ("process", "pss", "uss", "rss", "shm", "swap")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure on both sides.

    Attributes:
        name: what it is.
        predicted: by the forecast.
        measured: in the real run.
        difference: predicted minus measured.
    """

    name: str
    predicted: int
    measured: int
    difference: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A forecast beside a measurement.

    Attributes:
        schema: of the JSON form.
        forecast, measurement: names of the files, or what was run.
        rows: the figures that both know.
        notes: why some may differ for good reason.
        columns: titles of the two sides.
    """

    schema: str = SCHEMA
    forecast: str
    measurement: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    columns: tuple[str, str] = ("predicted", "measured")


def load_forecast(path: str) -> dict[str, Any]:
    """A forecast in JSON, as plain values.

    Raises:
        PeakmemError: it is none.
    """
    content = _read(path)
    if content.get("schema") not in FORECASTS:
        raise PeakmemError(
            f"{path} is no forecast: its schema is {content.get('schema')!r}, not {FORECASTS[0]!r}",
            hint="peakmem run --json forecast.json train.py makes one",
        )
    return content


def load_measurement(path: str) -> Measurement | None:
    """A measurement in JSON; None if the file is something else."""
    if not path.endswith(".json"):
        return None
    try:
        content = _read(path)
    except PeakmemError:
        return None
    if content.get("schema") != MEASUREMENT:
        return None
    try:
        return msgspec.convert(content, Measurement)
    except msgspec.ValidationError as error:
        raise PeakmemError(f"{path} is a damaged measurement: {error}") from error


def put_beside(forecast: dict[str, Any], measured: Measurement, *, name: str, measurement: str) -> Beside:
    """Compare what both know.

    Args:
        forecast: as `load_forecast` gives it.
        measured: what was really taken.
        name: of the forecast, in print.
        measurement: of the measurement, in print.
    """
    rows = tuple(
        Row(name=what, predicted=predicted, measured=real, difference=predicted - real)
        for what, predicted, real in _pairs(forecast, measured)
        if predicted is not None and real is not None
    )
    notes = []
    if not rows:
        notes.append("the two have no figure in common")
    if measured.ending != "ended":
        notes.append("the measured command did not come to its own end: its peaks may lie further on")
    if any(gpu.whole_card for gpu in measured.gpus):
        notes.append("GPU memory is the growth of the whole card: other processes may be in it")
    return Beside(forecast=name, measurement=measurement, rows=rows, notes=tuple(notes))


def beside_of(a: str, b: str) -> Beside | None:
    """Two files side by side, of which one is a measurement; None if neither is.

    Raises:
        PeakmemError: the other is neither a measurement nor a forecast.
    """
    one, other = load_measurement(a), load_measurement(b)
    if one is not None and other is not None:
        return put_two_beside(one, other, names=(a, b))
    if other is not None:
        return put_beside(load_forecast(a), other, name=a, measurement=b)
    if one is not None:
        return put_beside(load_forecast(b), one, name=b, measurement=a)
    return None


def put_two_beside(a: Measurement, b: Measurement, *, names: tuple[str, str]) -> Beside:
    """Compare two measurements."""
    found = [(name.replace("_", " "), getattr(a.peak, name), getattr(b.peak, name)) for name in _OF_THE_HOST]
    if a.torch and b.torch:
        one, other = (max(side.torch, key=lambda peak: peak.reserved) for side in (a, b))
        found += [(f"GPU {field}", getattr(one, field), getattr(other, field)) for field in ("allocated", "reserved")]
    rows = tuple(Row(name=n, predicted=x, measured=y, difference=x - y) for n, x, y in found if x or y)
    return Beside(forecast=names[0], measurement=names[1], rows=rows, notes=(), columns=("a", "b"))


def _pairs(forecast: dict[str, Any], measured: Measurement) -> Iterator[tuple[str, int | None, int | None]]:
    host = forecast.get("host") or {}
    yield "host memory, largest process", _whole(host.get("peak_rss")), measured.peak.process
    whole = _whole(host.get("node_peak")) or _whole(host.get("tree_rss"))
    yield "host memory, all processes", whole, measured.peak.pss or measured.peak.rss
    shm = _whole(host.get("shm"))
    if shm or measured.peak.shm:
        yield "/dev/shm", shm, measured.peak.shm
    peak = forecast.get("peak") or {}
    if measured.torch:
        first = max(measured.torch, key=lambda one: one.reserved)
        for field in ("requested", "allocated", "active", "reserved"):
            yield f"GPU {field}", _whole(peak.get(field)), getattr(first, field)
        yield "pinned host memory", _whole(host.get("pinned")), first.pinned or None
    if measured.gpus:
        yield "GPU used", _whole(peak.get("used")), max(gpu.used for gpu in measured.gpus)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read(path: str) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeakmemError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise PeakmemError(f"{path} is no forecast: it holds no JSON object")
    return content
