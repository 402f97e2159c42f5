"""Compile the virtual GPU into platform wheels, where a C++ compiler is there; a pure wheel builds it on first use."""

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


class PrebuiltLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `peakmem/vgpu/prebuilt/MACHINE/` to the wheel. `PEAKMEM_PURE_WHEEL=1` leaves it out.

    The `ziglang` compiler makes a library for glibc 2.17 and later, so that wheel is tagged manylinux_2_17; that of
    another compiler is meant for this machine.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library before the files are gathered."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get("PEAKMEM_PURE_WHEEL") == "1":
            return
        machine = platform.machine()
        if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
            return
        sys.path.insert(0, str(_ROOT / "src"))
        from peakmem.errors import PeakmemError
        from peakmem.vgpu import build

        if build.find_compiler() is None:
            self.app.display_info("no C++ compiler: the wheel is pure, and the virtual GPU is built on first use")
            return
        self._folder = Path(tempfile.mkdtemp(prefix="peakmem-wheel-"))
        library = self._folder / build.LIBRARY
        try:
            build.compile_library(library, work=self._folder, progress=self.app.display_info)
            cudnn = self._folder / build.TENSORFLOW_CUDNN
            build.compile_tensorflow_library(cudnn, library=library, work=self._folder)
        except (PeakmemError, OSError) as error:
            self.app.display_warning(f"the wheel is pure: {error}")
            return
        recorded = self._folder / "source-hash"
        recorded.write_text(build.source_hash() + "\n")
        inside = f"peakmem/vgpu/prebuilt/{machine}"
        build_data["force_include"].update({str(path): f"{inside}/{path.name}" for path in (library, cudnn, recorded)})
        build_data["pure_python"] = False
        prefix = "manylinux_2_17" if build.is_zig(build.find_compiler()) else "linux"
        build_data["tag"] = f"py3-none-{prefix}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built beside the wheel."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
