"""What derives from weights is taken to be finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .handlers import entry_of, handles, is_known
from .knowledge import storage_key
from .operators import Operator

if TYPE_CHECKING:
    from .mode import ValueMode


FINITE = "values are finite"


def _assume_fill(mode: ValueMode, op: Operator, args: Any, kwargs: Any, value: Any, why: str = FINITE) -> Any:
    out = op.call(*args, **kwargs)
    if out.is_cuda:
        mode.known.learn_fill(out, value, assumed=why, watch=True)
    return out


@handles("isnan", "isinf", "isposinf", "isneginf")
def _not_finite(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if is_known(mode, args[0]):
        return mode.follow(op, args, kwargs)
    return _assume_fill(mode, op, args, kwargs, False)


@handles("isfinite", "isreal")
def _finite(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    if is_known(mode, args[0]):
        return mode.follow(op, args, kwargs)
    return _assume_fill(mode, op, args, kwargs, True)


@handles("eq.Tensor", "ne.Tensor")
def _compare(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    one, other = args[:2]
    if one is other and not is_known(mode, one):
        return _assume_fill(mode, op, args, kwargs, op.name == "eq")
    return mode.follow(op, args, kwargs)


@handles("eq.Scalar", "ne.Scalar")
def _compare_infinity(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    limit = args[1]
    if isinstance(limit, float) and math.isinf(limit) and not is_known(mode, args[0]):
        return _assume_fill(mode, op, args, kwargs, op.name == "ne")
    return mode.follow(op, args, kwargs)


@handles("_amp_foreach_non_finite_check_and_unscale_")
def _unscale(mode: ValueMode, op: Operator, args: Any, kwargs: Any) -> Any:
    out = op.call(*args, **kwargs)
    found = args[1]
    entry = entry_of(mode, found)
    if entry is None:
        mode.known.learn_fill(found, 0.0, assumed="gradients are finite", watch=True)
        entry = mode.known.entries[storage_key(found)]
    entry.slack += 1
    entry.assumed = "gradients are finite"
    return out
