"""The virtual GPU: C++ sources, build-and-cache, the device catalogue."""
