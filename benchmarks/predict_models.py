"""60 models through `peakmem predict`, each compared with its printed script run on its own.

    python benchmarks/predict_models.py [--only WORD] [--out results.json]

For each model: the seconds (and CPU seconds) of `peakmem predict --steps 3 --no-range`, and whether the peaks of
allocated and reserved memory equal, to the byte, what the script itself reads from torch when it is run on the virtual
GPU with nothing watching it. Where sizes depend on values (detection), which an unwatched script does not have,
`peakmem run` on the script takes its place.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import Options, environment
from peakmem.vgpu.probe import probe

TORCHVISION = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "regnet_y_400mf", "resnet18", "resnet50",
    "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg16", "vit_b_16",
    "wide_resnet50_2", "deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large", "fasterrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "r3d_18", "raft_small",
]  # fmt: skip
TIMM = [
    "resnet50", "resnetv2_50", "vit_small_patch16_224", "vit_base_patch32_224", "deit3_small_patch16_224",
    "swin_tiny_patch4_window7_224", "convnext_nano", "convnextv2_atto", "efficientnet_b1", "tf_efficientnetv2_b0",
    "mobilenetv3_small_100", "mixer_s16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224", "coatnet_nano_rw_224",
    "maxvit_nano_rw_256", "regnetx_004", "ghostnet_100", "levit_128s", "mobilevit_xs",
]  # fmt: skip
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    "roberta": {
        "model_type": "roberta", "architectures": ["RobertaForSequenceClassification"], "max_position_embeddings": 514,
    },
    "distilbert": {"model_type": "distilbert", "architectures": ["DistilBertForTokenClassification"]},
    "llama": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 8,
        "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816,
    },
    "qwen2": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_hidden_layers": 6,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
    },
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
    "vit": {"model_type": "vit", "architectures": ["ViTForImageClassification"]},
    "whisper": {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]},
    "electra": {"model_type": "electra", "architectures": ["ElectraForQuestionAnswering"]},
}  # fmt: skip
BATCH = 2


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only models whose name has this in it")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed peakmem is compiled; so is this one after the first
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for what in _models(Path(folder)):
            if arguments.only not in what:
                continue
            row = _one(what, Path(folder))
            rows.append(row)
            took = f"{row['seconds']:6.1f} s {row['cpu_seconds']:6.1f} s CPU"
            print(f"{row['model']:48} {took} {row['allocated']:>15,} {row['reserved']:>15,}  {row['says']}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(rows, indent=2))
    if not rows:
        raise SystemExit(f"no model has {arguments.only!r} in its name")
    seconds = statistics.median(row["seconds"] for row in rows)
    cpu = statistics.median(row["cpu_seconds"] for row in rows)
    equal = sum(row["says"].startswith("equal") for row in rows)
    load = os.getloadavg()[0]
    print(f"{len(rows)} models, {equal} equal, median {seconds:.1f} s, {cpu:.1f} s of CPU; load {load:.1f}")


def _models(folder: Path) -> list[str]:
    for name, config in TRANSFORMERS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    return [
        *(f"torchvision:{name}" for name in TORCHVISION),
        *(f"timm:{name}" for name in TIMM),
        *(f"hf:{folder / name}" for name in TRANSFORMERS),
    ]


def _one(what: str, folder: Path) -> dict[str, Any]:
    script = folder / "script.py"
    words = [what, "--batch", str(BATCH), "--steps", "3", "--no-range", "--json", "-", "--force"]
    started, cpu = time.monotonic(), _cpu()
    done = _peakmem("predict", *words, "--save-script", str(script))
    seconds, cpu = time.monotonic() - started, _cpu() - cpu
    name = what.replace(str(folder) + "/", "")
    row = {"model": name, "seconds": seconds, "cpu_seconds": cpu, "allocated": 0, "reserved": 0}
    if done.returncode:
        return row | {"says": "FAILED: " + done.stderr.strip().replace("\n", " | ")[:600]}
    forecast = json.loads(done.stdout)
    found = forecast["peak"]["allocated"], forecast["peak"]["reserved"]
    by_values = any(
        "size of" in assumption["what"] or "nms" in assumption["what"] for assumption in forecast["assumptions"]
    )
    expected = _with_run(script) if by_values else _alone(script)
    how = "peakmem run" if by_values else "script"
    says = f"equal ({how})" if expected == found else f"DIFFERS from {how}: {expected}"
    return row | {"allocated": found[0], "reserved": found[1], "says": says}


def _cpu() -> float:
    """CPU seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _peakmem(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "peakmem", *words], capture_output=True, text=True, check=False)


def _with_run(script: Path) -> tuple[int, int] | None:
    done = _peakmem("run", "--steps", "3", "--no-range", "--json", "-", str(script))
    if done.returncode:
        return None
    peak = json.loads(done.stdout)["peak"]
    return peak["allocated"], peak["reserved"]


def _alone(script: Path) -> tuple[int, int] | None:
    """What the script reads from torch on the virtual GPU, with nothing watching it."""
    facts, device = probe(sys.executable), find_device("a100-80")
    variables = environment(
        library=ensure_library(facts),
        device=device,
        facts=facts,
        options=Options(capacity=device.total_memory, context=0, cudnn="likely", true_byte=1),
    )
    done = subprocess.run([sys.executable, str(script)], env=variables, capture_output=True, text=True, check=False)
    found = [re.search(rf"max_memory_{name} (\d+)", done.stdout) for name in ("allocated", "reserved")]
    return (int(found[0][1]), int(found[1][1])) if found[0] and found[1] else None


if __name__ == "__main__":
    main()
