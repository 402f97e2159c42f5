"""`peakmem predict`: what is run is the printed script, and what is said is what that script reads from torch."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch
GOLDEN = Path(__file__).parent / "golden"
DENSE = ("dense:1000-100-100-100-100-10", "--batch", "256")


def peaks(forecast) -> tuple[int, int, int]:
    return tuple(forecast["peak"][name] for name in ("requested", "allocated", "reserved"))


def test_a_dense_network_takes_what_the_same_script_takes():
    told = run_peakmem("predict", *DENSE, "--optimizer", "adam", "--zero-grad", "backward", "--json", "-")
    same = run_peakmem("run", "--json", "-", EXAMPLES / "dense.py")
    assert told.code == same.code == 0, told.err + same.err
    assert peaks(told.json) == peaks(same.json)
    assert told.json["steps"] == same.json["steps"]
    assert told.json["roles_at_peak"] == same.json["roles_at_peak"]
    assert told.json["workload"]["parameters"] == "131,410"


def test_the_printed_script_is_what_is_run(tmp_path):
    words = ("timm:resnet10t", "--batch", "2", "--amp", "bf16", "--channels-last", "--steps", "3", "--no-range")
    pytest.importorskip("timm")
    script = tmp_path / "train.py"
    told = run_peakmem("predict", *words, "--save-script", script, "--json", "-")
    assert told.code == 0, told.err
    printed = run_peakmem("predict", *words, "--print-script")
    assert printed.out == script.read_text()
    log = tmp_path / "log"
    same = run_peakmem("run", "--steps", "all", "--no-range", "--json", "-", "--output", log, script)
    assert peaks(told.json) == peaks(same.json)
    assert f"max_memory_allocated {told.json['peak']['allocated']}" in log.read_text()


def test_golden_text():
    done = run_peakmem("predict", *DENSE, "--gpu", "4090")
    shown = re.sub(r"\d+\.\d s$", "N s", "\n".join(line.rstrip() for line in done.out.splitlines()), flags=re.M)
    shown = re.sub(r"torch \S+", "torch VERSION", shown) + "\n"
    shown, found = re.subn(r"^ host memory .*?\n\n", "", shown, flags=re.M | re.S)  # of this machine at this moment
    assert found == 1
    path = GOLDEN / "predict_dense.txt"
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    if "+cu130" not in done.out:
        pytest.skip("the golden text is that of another version of PyTorch")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ("--optimizer", "sgd:momentum=0.9", "--accumulate", "2", "--clip", "1", "--ema"),
        ("--amp", "fp16", "--offload-activations", "--deterministic", "--zero-grad", "end"),
        ("--precision", "bf16", "--optimizer", "adamw:fused", "--optimizer-in-backward"),
        ("--optimizer", "lbfgs", "--precision", "tf32"),
        ("--optimizer", "muon", "--keep-gradients", "--freeze", "0."),
    ],
)
def test_settings_are_run(words):
    done = run_peakmem("predict", "dense:64-64-64-10", "--batch", "8", *words, "--steps", "3", "--json", "-")
    assert done.code == 0, done.err
    assert len(done.json["steps"]) == 3


def test_fewer_bytes_where_settings_save_some():
    def allocated(*words: str) -> int:
        done = run_peakmem("predict", "dense:512-4096-4096-4096-8", "--batch", "2048", *words, "--json", "-")
        return done.json["peak"]["allocated"]

    plain = allocated("--zero-grad", "end")
    assert allocated("--zero-grad", "end", "--optimizer", "sgd") < plain - 2 * 4 * 4096 * 4096 * 2
    assert allocated("--zero-grad", "end", "--precision", "bf16") < 0.6 * plain
    assert allocated("--optimizer", "adamw:fused", "--optimizer-in-backward") < plain


FUNCTIONS = """
import torch
from torch import nn

def model_alone():
    return nn.Linear(32, 4)

def all_of_it():
    model = nn.Linear(32, 4)
    return model, lambda batch: torch.randn(batch, 32), lambda output: output.square().mean()

def tokens():
    return nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100))

def broken():
    raise ValueError("no such layer")
"""


@pytest.mark.parametrize(
    ("name", "words", "batch"),
    [
        ("model_alone", ("--batch", "8", "--input", "32"), "inputs 8 x 32 float32"),
        ("all_of_it", ("--batch", "16"), "inputs 16 x 32 float32"),
        ("tokens", ("--batch", "2", "--tokens", "7", "--loss", "mse"), "inputs 2 x 7 int64"),
    ],
)
def test_a_function_of_ones_own(script, name, words, batch):
    path = script(FUNCTIONS, "nets.py")
    done = run_peakmem("predict", f"{path}:{name}", *words, "--steps", "2", "--json", "-")
    assert done.code == 0, done.err
    assert done.json["workload"]["batch"] == batch


def test_errors_say_what_to_do(script):
    path = script(FUNCTIONS, "nets.py")
    wrong = run_peakmem("predict", f"{path}:model_alone", "--batch", "8", "--input", "31")
    assert wrong.code == 2
    assert "can't be trained with inputs 8 x 31 float32: mat1 and mat2 shapes" in wrong.err and "--input" in wrong.err
    none = run_peakmem("predict", f"{path}:model_alone", "--batch", "8")
    assert none.code == 2 and "--input gives the shape" in none.err
    broken = run_peakmem("predict", f"{path}:broken", "--batch", "8", "--input", "32")
    assert broken.code == 3 and "could not be built: ValueError: no such layer" in broken.err


def test_a_model_that_torchvision_does_not_have_is_not_far():
    pytest.importorskip("torchvision")
    done = run_peakmem("predict", "torchvision:resnet5O", "--batch", "8")
    assert done.code == 2
    assert "has no model 'resnet5O'" in done.err and "did you mean resnet50" in done.err


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "wonder", "auto_map": {"AutoConfig": "wonder.Config"}}, "runs no code that comes with a model"),
        ({"model_type": "brt", "architectures": ["BrtForMaskedLM"]}, "knows no model type 'brt'"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "does not say what the model is trained for"),
        ({"hidden_size": 4}, "it has no model_type"),
    ],
)
def test_configurations_that_can_not_be_used(tmp_path, config, message):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run_peakmem("predict", f"hf:{tmp_path}", "--batch", "2")
    assert done.code == 2 and message in " ".join(done.err.split())


def test_an_id_that_is_not_in_the_cache(tmp_path):
    pytest.importorskip("transformers")
    done = run_peakmem("predict", "hf:nobody/nothing", "--batch", "2", HF_HUB_CACHE=str(tmp_path))
    assert done.code == 2 and "not in the local cache" in done.err and "hf download nobody/nothing" in done.err


def test_gpt2_from_its_configuration_is_the_example(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    done = run_peakmem("predict", f"hf:{tmp_path}", "--batch", "4", "--amp", "bf16", "--json", "-")
    assert done.code == 0, done.err
    assert done.json["workload"]["parameters"] == "124,439,808"
    # examples/gpt2.py takes 4,654,318,080; here the labels are a tensor of their own, as a collator makes them.
    assert done.json["peak"]["allocated"] == 4_654_318_080 + 4 * 512 * 8


def test_a_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    model = torch.nn.Linear(1024, 1024)
    torch.save(model.state_dict(), path)
    done = run_peakmem("predict", path, "--json", "-")
    assert done.code == 0, done.err
    held = {name: size for name, size in done.json["workload"].items() if name.startswith("held")}
    parameters = 4 * 1024 * 1024 + 4096
    assert held == {
        "held with parameters": f"{parameters} bytes",
        "held with gradients": f"{2 * parameters} bytes",
        "held with states": f"{4 * parameters} bytes",
    }
    assert done.json["left_out"] == ["activations", "inputs", "workspaces"]
    shown = " ".join(done.err.split())
    assert " may fit on " in shown
    assert " at least " in shown and "without activations, inputs and workspaces" in shown
    assert run_peakmem("predict", path, "--memory", "480MiB", "--context", "472MiB").code == 1


def test_the_range_of_a_model_with_checkpointing():
    # The runs for the range are not recorded; they once ran each block again for every tensor that it keeps.
    pytest.importorskip("timm")
    done = run_peakmem("predict", "timm:vit_tiny_patch16_224", "--batch", "4", "--checkpointing", "--json", "-")
    assert done.code == 0, done.err
    span = done.json["convolution_range"]
    assert max(span.values()) < 1.1 * min(span.values())
