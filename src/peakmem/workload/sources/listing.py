"""The models of an installed package: names, kinds and input sizes, asked once of the package itself and kept."""

from __future__ import annotations

import difflib
import hashlib
import json
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

import platformdirs

from peakmem.errors import PeakmemError
from peakmem.workload.training import installed, missing

_TORCHVISION = """
import json
from torchvision import models
found = {}
for name in models.list_models():
    weights = list(models.get_model_weights(name))[0:1]
    best = getattr(models.get_model_weights(name), "DEFAULT", None) or weights[0]
    crop = getattr(best.transforms(), "crop_size", None)
    found[name] = {"kind": type(best.transforms()).__name__, "size": list(crop) if crop else None}
print(json.dumps(found))
"""

_TIMM = """
import json
import timm
found = {}
for name in [*timm.list_models(), *timm.list_pretrained()]:
    settings = timm.models.get_pretrained_cfg(name)
    size = list(settings.input_size) if settings else None
    found[name] = {"size": size, "classes": settings.num_classes if settings else None}
print(json.dumps(found))
"""

_SCRIPTS = {"torchvision": _TORCHVISION, "timm": _TIMM}


def list_models(package: str) -> dict[str, dict[str, Any]]:
    """Name of each model -> what the package says of it.

    Raises:
        PeakmemError: the package is not here, or does not work.
    """
    if not installed(package):
        raise missing(package, f"{package}:NAME")
    path = _kept_at(package)
    try:
        kept: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    except (OSError, ValueError):
        pass
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPTS[package]], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PeakmemError(f"{package} can't be used here: {last}", hint=f"python -c 'import {package}' shows more")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found), encoding="utf-8")
    except OSError:
        pass  # it is asked again the next time
    return found


def model_of(package: str, name: str) -> dict[str, Any]:
    """What a package says of one of its models.

    Raises:
        PeakmemError: it has no such model; the message names those meant most probably.
    """
    models = list_models(package)
    if name in models:
        return models[name]
    near = difflib.get_close_matches(name, models, n=4, cutoff=0.6)
    near = near or [other for other in models if name.lower() in other][:4]
    hint = "did you mean " + " or ".join(near) + "?" if near else f"it has {len(models)} others"
    raise PeakmemError(f"{package} {metadata.version(package)} has no model {name!r}", hint=hint)


def _kept_at(package: str) -> Path:
    spec = util.find_spec(package)
    where = f"{sys.executable} {spec.origin if spec else ''} {metadata.version(package)} {_SCRIPTS[package]}"
    key = hashlib.sha256(where.encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("peakmem")) / "models" / f"{package}-{key}.json"
