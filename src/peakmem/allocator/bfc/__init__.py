"""The allocator of TensorFlow and of XLA's GPU client (JAX): best fit with coalescing."""

from peakmem.allocator.bfc.allocator import BfcAllocator
from peakmem.allocator.bfc.model import BfcError, BfcOptions, BfcStatistics, Device

__all__ = ["BfcAllocator", "BfcError", "BfcOptions", "BfcStatistics", "Device"]
