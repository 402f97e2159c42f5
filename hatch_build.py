"""Compile the native libraries into platform wheels, where a C++ compiler is there; a pure wheel does on first use."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT = Path(__file__).parent
_SOURCES = _ROOT / "src"


class PrebuiltLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `prebuilt/MACHINE/` beside the sources of the virtual GPU and of what watches malloc and TensorFlow.

    `PEAKMEM_PURE_WHEEL=1` leaves them out. None needs PyTorch or TensorFlow to be compiled: they find functions when
    they run.

    The `ziglang` compiler makes libraries for glibc 2.17 and later, so that wheel is tagged manylinux_2_17; those of
    another compiler are meant for this machine.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the libraries before the files are gathered."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get("PEAKMEM_PURE_WHEEL") == "1":
            return
        sys.path.insert(0, str(_SOURCES))
        from peakmem.errors import PeakmemError
        from peakmem.host.library import HOST
        from peakmem.host.tensorflow import TENSORFLOW_HOST
        from peakmem.vgpu import build
        from peakmem.vgpu.compiling import find_compiler, is_zig
        from peakmem.vgpu.probe import MACHINES

        machine, compiler = platform.machine(), find_compiler()
        if sys.platform != "linux" or machine not in MACHINES:
            return
        if compiler is None:
            self.app.display_info("no C++ compiler: the wheel is pure, and its libraries are built on first use")
            return
        self._folder = Path(tempfile.mkdtemp(prefix="peakmem-wheel-"))
        included: dict[str, str] = {}
        try:
            for library in (build.VGPU, HOST, TENSORFLOW_HOST):
                inside = library.prebuilt.relative_to(_SOURCES) / machine
                made = build.make_prebuilt(library, self._folder / library.cache, progress=self.app.display_info)
                included |= {str(path): str(inside / path.name) for path in made}
        except (PeakmemError, OSError) as error:
            self.app.display_warning(f"the wheel is pure: {error}")
            return
        build_data["force_include"].update(included)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{'manylinux_2_17' if is_zig(compiler) else 'linux'}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built beside the wheel."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
