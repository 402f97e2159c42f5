"""Replay of what a program asked of the allocator, through PyTorch's own allocator on the virtual GPU."""

from peakmem.allocator.replay.machine import Engine
from peakmem.allocator.replay.model import Curve, Floor, RanOut, Replayed
from peakmem.allocator.replay.replaying import Replayer, floor
from peakmem.allocator.replay.requests import Requests, requests_of

__all__ = ["Curve", "Engine", "Floor", "RanOut", "Replayed", "Replayer", "Requests", "floor", "requests_of"]
