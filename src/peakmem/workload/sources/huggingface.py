"""`hf:PATH_OR_ID`: a model of transformers, from its configuration alone."""

from __future__ import annotations

import difflib
import json
import os
import re
from importlib import metadata, util
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request, Workload
from peakmem.workload.sources.tasks import TASKS, Task, guess_task
from peakmem.workload.training import installed, missing

TOKENS = 512
"""Length of a sequence where neither the user nor the model says less."""

_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def hugging_face(request: Request, rest: str) -> Workload:
    """The workload of a configuration of transformers.

    Raises:
        PeakmemError: there is no such configuration here, or it needs code of its own.
    """
    if not installed("transformers"):
        raise missing("transformers", "hf:...")
    if request.batch is None:
        raise PeakmemError("how many samples are in a batch?", hint="--batch 8")
    if request.loss is not None:
        raise PeakmemError(
            "models of transformers come with their own loss", hint="leave --loss out; --task chooses the head"
        )
    path = find_config(rest)
    config = read_config(path)
    _check_code(config, rest)
    task = _task(request, config)
    named = str(path.parent if path.name == "config.json" else path)
    tokens = request.tokens or _tokens(config)
    values = task.inputs(request, config, tokens)
    return Workload(
        title=f"{_name(config, rest)} ({task.name})",
        imports=(f"from transformers import AutoConfig, {task.auto}", _no_init()),
        model="\n".join(
            [
                f'config = AutoConfig.from_pretrained("{named}", local_files_only=True)',
                f"config.{_dtype()} = torch.float32",
                *(["config.use_cache = False"] if task.caches else []),
                *task.settings,
                "with no_init_weights():  # the values do not matter here; from_pretrained would load them",
                f"    model = {task.auto}.from_config(config)",
                "model.tie_weights()  # no_init_weights left that out",
            ]
        ),
        batch=values.batch,
        loss=f"loss = model({', '.join(f'{name}={name}' for name in values.names)}).loss",
        loss_text=f"the model's own, {task.name}",
        tensors=values.names,
        floating=values.floating,
        checkpointing='model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
        selective_checkpointing="model.gradient_checkpointing_enable(gradient_checkpointing_kwargs="
        '{"use_reentrant": False, "context_fn": keep_products})',
        adapted='"all-linear"',  # all but the output layer, as the QLoRA paper has it
        assumed=values.assumed
        + ((f"sequences of {tokens} tokens: --tokens N",) if values.has_tokens and request.tokens is None else ()),
    )


def find_config(rest: str) -> Path:
    """The config.json of a path or of an id in the local cache of Hugging Face.

    Raises:
        PeakmemError: there is none.
    """
    path = Path(rest).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return (path / "config.json").resolve()
        raise PeakmemError(f"the folder {rest} has no config.json", hint="give a folder of a model, or its config.json")
    if path.is_file():
        return path.resolve()
    if path.suffix == ".json" or rest.startswith((".", "/", "~")):
        raise PeakmemError(f"there is no file {rest}")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", rest):
        raise PeakmemError(f"{rest!r} is neither a path nor an id of the Hugging Face hub", hint="hf:FOLDER")
    cache = _cache()
    folder = cache / f"models--{rest.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        found = [folder / "snapshots" / revision / "config.json"]
    except OSError:
        found = sorted(folder.glob("snapshots/*/config.json"))
    for config in found:
        if config.is_file():
            return config
    raise PeakmemError(
        f"{rest} is not in the local cache of Hugging Face ({cache}), and peakmem uses no network",
        hint=f"hf download {rest} config.json, or give the path of its config.json" + _like(cache, rest),
    )


def read_config(path: Path) -> dict[str, Any]:
    """A config.json.

    Raises:
        PeakmemError: it is none.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PeakmemError(f"{path} can't be read as a configuration: {error}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise PeakmemError(f"{path} is no configuration of transformers: it has no model_type")
    return config


def _cache() -> Path:
    home = os.environ.get("HF_HOME") or os.path.join(  # noqa: PTH118 - as huggingface_hub builds it
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub").expanduser()


def _like(cache: Path, rest: str) -> str:
    there = [entry.name.removeprefix("models--").replace("--", "/") for entry in cache.glob("models--*")]
    near = difflib.get_close_matches(rest, there, n=2)
    return f"\nthe cache has {' and '.join(near)}" if near else ""


def _check_code(config: dict[str, Any], rest: str) -> None:
    kind = str(config["model_type"])
    spec = util.find_spec("transformers")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations))) / "models"
    known = {entry.name for entry in folder.iterdir() if entry.is_dir()}
    if kind.replace("-", "_") in known:
        return
    # Some kinds have the folder of a related one (data2vec-audio, for instance): the table of names knows them.
    try:
        listed = any(f'"{kind}"' in path.read_text(encoding="utf-8") for path in (folder / "auto").glob("*.py"))
    except OSError:
        listed = True
    if listed:
        return
    if "auto_map" in config:
        raise PeakmemError(
            f"{rest} needs code of its own ({config['auto_map'].get('AutoConfig', 'auto_map')}), and peakmem runs no "
            "code that comes with a model",
            hint="write a function that builds the model, and give file.py:function",
        )
    near = difflib.get_close_matches(kind.replace("-", "_"), known, n=2)
    raise PeakmemError(
        f"transformers {metadata.version('transformers')} knows no model type {kind!r}",
        hint="did you mean " + " or ".join(near) + "?" if near else "a newer version may: pip install -U transformers",
    )


def _task(request: Request, config: dict[str, Any]) -> Task:
    if request.task is not None:
        task = TASKS.get(request.task)
        if task is None:
            near = difflib.get_close_matches(request.task, TASKS, n=1)
            raise PeakmemError(
                f"there is no task {request.task!r}",
                hint=f"did you mean {near[0]}?" if near else "one of " + ", ".join(TASKS),
            )
        return task
    guessed = guess_task(config)
    if guessed is None:
        names = ", ".join(config.get("architectures") or []) or "none"
        raise PeakmemError(
            f"the configuration does not say what the model is trained for (architectures: {names})",
            hint="--task " + " | ".join(TASKS),
        )
    return guessed


def _tokens(config: dict[str, Any]) -> int:
    said: list[int] = [config[key] for key in _LENGTHS if isinstance(config.get(key), int)]
    return min([TOKENS, *(value for value in said if value > 0)])


def _name(config: dict[str, Any], rest: str) -> str:
    classes = config.get("architectures") or [str(config["model_type"])]
    return f"{classes[0]} from {rest}"


def _version() -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", metadata.version("transformers"))[:2])


def _dtype() -> str:
    return "dtype" if _version() >= (4, 56) else "torch_dtype"


def _no_init() -> str:
    where = "initialization" if _version() >= (5, 0) else "modeling_utils"
    return f"from transformers.{where} import no_init_weights"
