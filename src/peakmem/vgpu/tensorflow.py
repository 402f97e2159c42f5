"""Facts about the TensorFlow of an interpreter, found without importing it there or here."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.vgpu.probe import TorchFacts

_INSTALL = "pip install 'tensorflow[and-cuda]' (no GPU is needed)"

# Runs in the other interpreter: standard library only, and the packages are found but not imported.
_SCRIPT = r"""
import importlib.util, json, os, platform
out = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system(),
       "libc": platform.libc_ver()}
def folder(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        return None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return places[0] if places else None
out["tensorflow"], out["nvidia"] = folder("tensorflow"), folder("nvidia")
if out["tensorflow"]:
    facts = {}
    try:
        with open(os.path.join(out["tensorflow"], "python", "platform", "build_info.py")) as f:
            exec(compile(f.read(), "build_info.py", "exec"), facts)
    except Exception:
        pass
    out["build"] = {key: str(value) for key, value in facts.get("build_info", {}).items()}
    try:
        from importlib import metadata
        for name in ("tensorflow", "tensorflow_cpu", "tf_nightly"):
            try:
                out["version"] = metadata.version(name)
                break
            except metadata.PackageNotFoundError:
                continue
        for d in metadata.distributions():
            if (d.metadata["Name"] or "").lower().replace("_", "-").startswith("nvidia-cudnn-cu"):
                out["cudnn"] = d.version
    except Exception:
        pass
print("peakmem:" + json.dumps(out))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorflowFacts(TorchFacts):
    """What is known of an installed CUDA build of TensorFlow; `version` is TensorFlow's.

    Attributes:
        cudnn_folder: folder of the installed libcudnn.so.9.
    """

    cudnn_folder: Path


def find_tensorflow(python: str | os.PathLike[str]) -> TensorflowFacts | None:
    """Look at the TensorFlow of an interpreter; None where it has none.

    Raises:
        PeakmemError: it has one that can't use a GPU.
    """
    found = look_for_tensorflow(python)
    return None if found is None else read_tensorflow(found, python=Path(python))


def look_for_tensorflow(python: str | os.PathLike[str]) -> dict[str, object] | None:
    """What there is of TensorFlow in an interpreter, of whatever build; None where the interpreter does not tell."""
    variables = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "PEAKMEM_SESSION")}
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, env=variables, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("peakmem:")]
    if done.returncode or not lines:
        return None
    found: dict[str, object] = json.loads(lines[-1].removeprefix("peakmem:"))
    return found


def read_tensorflow(found: dict[str, object], *, python: Path) -> TensorflowFacts | None:
    """Judge what was found in an interpreter.

    Raises:
        PeakmemError: its TensorFlow can't use a GPU.
    """
    if not found.get("tensorflow"):
        return None
    version, build = str(found.get("version") or "?"), found.get("build")
    if not isinstance(build, dict) or build.get("is_cuda_build") != "True":
        raise PeakmemError(f"tensorflow {version} of {python} is a CPU-only build", hint=_INSTALL)
    if found["system"] != "Linux" or found["machine"] != "x86_64":
        raise PeakmemError("TensorFlow runs on the virtual GPU on x86-64 Linux only", hint="run peakmem there")
    folder = Path(str(found.get("nvidia") or ""), "cudnn", "lib")
    if not (folder / "libcudnn.so.9").exists():
        raise PeakmemError(
            f"tensorflow {version} of {python} lacks cuDNN 9, without which it leaves the GPU alone", hint=_INSTALL
        )
    cudnn = found.get("cudnn")
    return TensorflowFacts(
        python=python,
        python_version=str(found["python"]),
        machine=str(found["machine"]),
        version=version,
        cuda=str(build.get("cuda_version", "12.0")),
        cudnn=None if cudnn is None else str(cudnn),
        folder=Path(str(found["tensorflow"])),
        cudnn_folder=folder,
    )
