from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.vgpu.elf import dynamic_symbols


def test_the_library_gives_the_runtime_and_the_control_interface(library: Path) -> None:
    symbols = dynamic_symbols(library)
    assert {"cudaMalloc", "cuMemCreate", "nvmlInit_v2", "peakmem_events"} <= symbols.defined
    assert "dlopen" in symbols.undefined
    assert not symbols.defined & symbols.undefined


def test_nothing_of_the_cpp_runtime_shows(library: Path) -> None:
    """It is loaded in front of every program, so another C++ runtime must not be replaced by its own."""
    names = dynamic_symbols(library).defined
    assert not {name for name in names if name.startswith(("_ZS", "_ZNS", "_ZNKS", "__cxa", "__gxx", "_Unwind"))}
    assert {name for name in names if name.startswith("_Z")} == {
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        # TensorFlow's allocator.
        "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
        "_ZN3tsl12BFCAllocator13DeallocateRawEPv",
        "_ZN10tensorflow13BaseGPUDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE",
        "_ZN10tensorflow13BaseGPUDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextESt8functionIFvvEE",
    }


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELF\x01\x01" + b"\0" * 100)
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF file"):
        dynamic_symbols(tmp_path / "a.so")
