"""The library that the native tests load: built once, into the ordinary cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peakmem.vgpu import build, compiling

Native = Callable[..., Any]


@pytest.fixture(scope="session")
def library() -> Path:
    if build.find_prebuilt() is None and compiling.find_compiler() is None:
        pytest.skip("no C++ compiler")
    return build.ensure_library()


@pytest.fixture
def native(library: Path) -> Native:
    """Run Python code that has the library as `gpu`, in a process of its own, and give what it assigns to `result`."""

    def run(code: str, *, preload: bool = False, stderr: str = "", **variables: object) -> Any:
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
        env |= {f"PEAKMEM_VGPU_{key.upper()}": str(value) for key, value in variables.items() if key.islower()}
        env |= {key: str(value) for key, value in variables.items() if not key.islower()}
        if preload:
            env["LD_PRELOAD"] = str(library)
        start = f"import ctypes, json\ngpu = ctypes.CDLL({str(library)!r})\n" + _HELPERS
        done = subprocess.run(
            [sys.executable, "-c", f"{start}\n{code}\nprint(json.dumps(result))"],
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert stderr in done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


_HELPERS = """
MIB = 2**20
gpu.peakmem_event_count.restype = ctypes.c_uint64

def malloc(size):
    out = ctypes.c_void_p()
    error = gpu.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(size))
    return out.value if error == 0 else -error

def free(address):
    return gpu.cudaFree(ctypes.c_void_p(address))

def read(address, size):
    out = ctypes.create_string_buffer(b"\\xff" * size, size)
    assert gpu.cudaMemcpy(out, ctypes.c_void_p(address), ctypes.c_size_t(size), 2) == 0
    return list(out.raw)

def memory():
    free_, total = ctypes.c_size_t(), ctypes.c_size_t()
    error = gpu.cudaMemGetInfo(ctypes.byref(free_), ctypes.byref(total))
    return [error, free_.value, total.value]

def report():
    text = ctypes.create_string_buffer(100_000)
    assert gpu.peakmem_report(text, 100_000) == len(text.value)
    return json.loads(text.value)
"""
