"""However a script ends, the report is true and the exit code right."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from peakmem.vgpu.catalogue import find_device
from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch

STEP = """
import torch
model = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    model(torch.randn(4, 10).cuda()).sum().backward()
    optimizer.step()
"""


def test_a_script_that_raises(script):
    path = script(STEP + "step()\nraise ValueError('no such file: data.csv')\n")
    target = path.with_name("forecast.json")
    done = run_peakmem("run", "--json", target, path)
    assert done.code == 3
    error = json.loads(target.read_text())["error"]
    assert (error["type"], error["message"]) == ("ValueError", "no such file: data.csv")
    assert error["line"] == f"{path}:9"
    assert "the script failed at" in done.out


def test_a_script_that_exits_with_a_code_of_its_own(script):
    done = run_peakmem("run", "--json", "-", script(STEP + "step()\nimport sys; sys.exit(7)\n"))
    assert done.code == 3
    assert done.json["error"]["message"] == "the command ended with exit code 7"


def test_a_script_that_exits_well(script):
    done = run_peakmem("run", "--json", "-", script(STEP + "step()\nimport sys; sys.exit()\n"))
    assert done.code == 0 and done.json["error"] is None and len(done.json["steps"]) == 1


def test_a_script_that_does_not_parse(script):
    done = run_peakmem("run", script("def f(:\n"))
    assert done.code == 3 and "SyntaxError" in done.err


def test_a_script_on_the_cpu(script):
    done = run_peakmem("run", script("import torch\ntorch.ones(3).sum()\n"))
    assert done.code == 2
    assert "the script ended without using the GPU" in done.err


def test_a_script_without_torch(script):
    done = run_peakmem("run", script("print('hello')\n"))
    assert done.code == 2 and "without importing PyTorch" in done.err


def test_a_script_that_is_killed(script):
    done = run_peakmem("run", script(STEP + "import os\nstep()\nos.kill(os.getpid(), 9)\n"))
    assert done.code == 3 and "ended by signal 9" in done.err


def test_inference_runs_to_its_end(script):
    text = "import torch\nm = torch.nn.Linear(64, 64).cuda()\nwith torch.no_grad():\n    m(torch.randn(8, 64).cuda())\n"
    forecast = run_peakmem("run", "--json", "-", script(text)).json
    assert forecast["steps"] == [] and forecast["stopped"] == "end"
    assert forecast["peak"]["step"] is None and forecast["peak"]["phase"] == "forward"


def test_training_in_a_subprocess_with_workers(script, tmp_path):
    script(
        """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 10**6
    def __getitem__(self, i): return torch.randn(10), 1
def main():
    model = torch.nn.Linear(10, 2).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2, pin_memory=True):
        torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
if __name__ == "__main__":
    try: main()
    finally: print("cleaned up")
""",
        "inner.py",
    )
    outer = script("import subprocess, sys\nsubprocess.run([sys.executable, 'inner.py'], check=True)\nprint('after')\n")
    done = run_peakmem("run", "--output", "log", "--json", "-", outer, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["stopped"] == "enough" and done.json["steady"]
    assert (tmp_path / "log").read_text().split("\n")[-3:] == ["cleaned up", "after", ""]


def test_a_script_that_swallows_everything_is_ended_all_the_same(script):
    text = (
        STEP + "while True:\n    try:\n        step()\n    except BaseException: break\nimport time; time.sleep(1000)\n"
    )
    done = run_peakmem("run", "--json", "-", script(text), timeout=120)
    assert done.code == 0 and done.json["stopped"] == "enough"


def test_ctrl_c_reports_what_was_seen(script):
    path = script(STEP + "step()\nprint('stepped', flush=True)\nimport time; time.sleep(1000)\n")
    log = path.with_name("log")
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", "run", "--output", str(log), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(1200):
        if log.exists() and "stepped" in log.read_text():
            break
        time.sleep(0.1)
        # The log is written line by line through a buffer: the model's own progress is enough to go on.
        if process.poll() is not None:
            break
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out and "Traceback" not in err
    assert subprocess.run(["pgrep", "-f", str(path)], capture_output=True, check=False).stdout == b""


def test_two_optimizers_and_accumulated_gradients(script):
    text = """
import torch
first, second = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 64).cuda()
one, two = torch.optim.Adam(first.parameters()), torch.optim.Adam(second.parameters())
for _ in range(100):
    for _ in range(3):
        second(first(torch.randn(8, 64).cuda())).sum().backward()
    one.step(); two.step(); one.zero_grad(); two.zero_grad()
"""
    forecast = run_peakmem("run", "--json", "-", script(text)).json
    assert {(s["optimizers"], s["backwards"]) for s in forecast["steps"]} == {(2, 3)}
    assert any("accumulated over 3 backward passes" in note for note in forecast["notes"])


def test_a_caught_out_of_memory_error_is_told_and_fits(script):
    text = (
        STEP
        + "try:\n    torch.empty(1 << 40, device='cuda')\nexcept torch.OutOfMemoryError: pass\nstep(); step(); step()\n"
    )
    done = run_peakmem("run", "--json", "-", script(text))
    assert done.code == 0
    assert done.json["verdict"] == "fits" and done.json["oom"]["caught"] and done.json["ooms"] == 1


def test_a_card_that_is_too_small_names_the_place():
    done = run_peakmem("run", "--memory", "4GiB", "--json", "-", EXAMPLES / "gpt2.py")
    forecast = done.json
    oom = forecast["oom"]
    assert done.code == 1 and forecast["verdict"] == "does_not_fit"
    assert (oom["phase"], oom["module"], oom["step"]) == ("forward", "lm_head", 1)
    assert oom["line"].startswith(str(EXAMPLES / "gpt2.py"))
    assert oom["requested"] > oom["missing"] > 0
    assert oom["needed"] == forecast["peak"]["used"] > 4 << 30
    enough = run_peakmem("run", "--memory", str(oom["needed"]), "--json", "-", EXAMPLES / "gpt2.py")
    assert enough.code == 0 and enough.json["verdict"] == "tight"


def test_the_script_sees_a_gpu_by_every_usual_way(script):
    text = """
import subprocess, torch, pynvml
p = torch.cuda.get_device_properties(0)
free, total = torch.cuda.mem_get_info()
pynvml.nvmlInit()
info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
smi = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout
torch.zeros(1, device="cuda")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); end.record(); torch.cuda.synchronize()
name, count = torch.cuda.get_device_name(), torch.cuda.device_count()
print(torch.cuda.is_available(), count, name, p.total_memory, total, free < total)
print(p.major, p.minor, p.multi_processor_count, info.total - total, smi.strip(), start.elapsed_time(end) > 0)
"""
    path = script(text)
    done = run_peakmem("run", "--gpu", "4090", "--output", path.with_name("log"), path)
    assert done.code == 0, done.err
    first, second = path.with_name("log").read_text().splitlines()[-2:]
    name = "NVIDIA GeForce RTX 4090"
    total = first.split()[-2]
    assert first == f"True 1 {name} {total} {total} True"
    card = find_device("4090")
    assert card.smi_memory is not None
    # NVML counts what the driver keeps back, CUDA does not.
    assert second == f"8 9 128 {card.smi_memory - card.total_memory} {name} True"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "rtx9090"], "no GPU 'rtx9090'"),
        (["--memory", "lots"], "'lots' is not a size"),
        (["--steps", "some"], "--steps some is neither"),
        (["--memory", "100MiB"], "has no room beside the CUDA context"),
        (["--assume", "bool=maybe"], "bool=maybe"),
        (["--json", "/nowhere/x.json"], "there is no folder /nowhere"),
    ],
)
def test_bad_input_is_told_before_anything_runs(words, message):
    done = run_peakmem("run", *words, EXAMPLES / "dense.py")
    assert done.code == 2 and message in done.err
    assert len(done.err.splitlines()) <= 3
