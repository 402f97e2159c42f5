"""Scripts that end, fork and fail in odd ways, and what a careless machine does to a run."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

START = """
import os, sys, torch
from torch import nn
def training(steps=3):
    model = nn.Linear(256, 512).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.randn(64, 256).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
def fill():
    torch.zeros(1).cuda()
    held = []
    for _ in range(5):
        held.append(torch.empty(1 << 30, device="cuda"))
"""


def _same_as_printed(done, log):
    printed = [line.split()[1:] for line in log.read_text().splitlines() if line.startswith("peak ")][-1]
    peak = done.json["peak"]
    assert printed == [str(peak["allocated"]), str(peak["reserved"])]


@pytest.mark.parametrize(
    "end",
    [
        "training()\nos._exit(0)\n",
        "import multiprocessing as mp\np = mp.get_context('fork').Process(target=training)\np.start(); p.join()\n",
    ],
    ids=["os._exit", "fork"],
)
def test_ends_without_exit_handlers(script, tmp_path, end):
    """A forked child that trains, and a script that leaves by os._exit, run neither `finally` nor exit handlers."""
    done = run_peakmem("run", "--steps", "all", "--output", tmp_path / "log", "--json", "-", script(START + end))
    assert done.code == 0, done.err
    assert len(done.json["steps"]) == 3 and done.json["stopped"] == "end"
    _same_as_printed(done, tmp_path / "log")


@pytest.mark.parametrize(
    "end",
    [
        "sys.excepthook = lambda kind, error, trace: print('mine')\nfill()\n",
        "try: fill()\nexcept torch.OutOfMemoryError: sys.exit(5)\n",
        "try: fill()\nexcept Exception as error: raise RuntimeError('training failed') from error\n",
    ],
    ids=["own hook", "caught", "wrapped"],
)
def test_memory_that_the_script_keeps_to_itself(script, end):
    """However the script tells it, or does not: it did not fit."""
    done = run_peakmem("run", "--memory", "8GiB", "--json", "-", script(START + end))
    assert done.code == 1, done.err
    assert done.json["verdict"] == "does_not_fit" and not done.json["oom"]["caught"]
    assert done.json["error"] is None and done.json["oom"]["needed"] > 20 << 30


def test_a_script_that_went_on_after_out_of_memory_failed_for_another_reason(script):
    end = "try: fill()\nexcept torch.OutOfMemoryError: pass\ntraining()\nsys.exit(6)\n"
    done = run_peakmem("run", "--memory", "8GiB", "--steps", "all", "--json", "-", script(START + end))
    assert done.code == 3 and done.json["oom"]["caught"]
    assert done.json["error"]["message"] == "the command ended with exit code 6"


def test_what_works_without_peakmem_works_with_it(script, tmp_path):
    """Lazy layers, traced models, step counters on the device, modules and errors with ways of their own."""
    text = """
import io
lazy = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(4)).cuda()
lazy(torch.randn(4, 8).cuda()).sum().backward()
class Own(torch.Tensor): pass
assert type(torch.ones(3, device="cuda").as_subclass(Own) * 2) is Own
traced = torch.jit.trace(nn.Linear(64, 256).cuda(), torch.randn(4, 64).cuda())
for kind in (torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.ASGD):
    optimizer = kind(traced.parameters())
    for _ in range(2):
        traced(torch.randn(32, 64).cuda()).sum().backward()
        optimizer.step()
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        optimizer.load_state_dict(torch.load(file, map_location="cuda"))
class Odd(nn.Module):
    def named_parameters(self, *args, **kwargs): raise RuntimeError("no names here")
    def forward(self, x): return x * 2
Odd()(torch.ones(3).cuda())
training()
class Mute(Exception):
    def __str__(self): raise ValueError("nothing to say")
print("so far", flush=True)
sys.stdout.buffer.write(bytes(range(256)) * 100)
sys.argv[0] = "caf\\udce9"
raise Mute if "mute" in sys.argv else ValueError("bad name \\udcff")
"""
    path = script(START + text)
    done = run_peakmem("run", "--steps", "all", "--output", tmp_path / "log", "--json", "-", path)
    assert "so far" in (tmp_path / "log").read_text(), done.err
    assert done.code == 3
    assert done.json["error"] == {"type": "ValueError", "message": "bad name ?", "line": f"{path}:43"}
    assert any("step counter" in row["what"] for row in done.json["assumptions"])
    _same_as_printed(done, tmp_path / "log")


def test_nothing_of_a_run_is_left_behind(script, tmp_path):
    """A process that left the group of the command would train on, on a virtual GPU that nobody looks at."""
    path = script(START + "if os.fork(): os._exit(0)\nos.setsid()\nimport time\nwhile True: time.sleep(1)\n")
    done = run_peakmem("run", path)
    assert done.code == 2 and "without using the GPU" in done.err
    time.sleep(0.2)
    assert subprocess.run(["pgrep", "-f", str(path)], capture_output=True, check=False).stdout == b""


def test_a_full_disk_does_not_stop_the_script_nor_lose_the_report(script):
    path = script(START + "for _ in range(2000): print('a line of text')\ntraining()\n")
    done = run_peakmem("run", "--output", "/dev/full", "--json", "/dev/full", path)
    assert "fits on" in done.out
    assert "could not be kept: No space left on device" in done.err
    assert done.code == 2 and "can't be written" in done.err


def test_options_that_keep_peakmem_out_are_named(script):
    done = run_peakmem("run", "--", "python", "-I", script("import torch\n"), PATH=_path_of_this_python())
    assert done.code == 2 and "python -I, -E and -S" in done.err


def _path_of_this_python():
    return os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "²"], "--steps ² is neither"),
        (["--timeout", "-5"], "--timeout -5 is no time"),
        (["--timeout", "nan"], "--timeout nan is no time"),
        (["--context", "100GB"], "a card of 79.26 GiB has no room"),
    ],
)
def test_odd_options(script, words, message):
    done = run_peakmem("run", *words, script("import torch\n"))
    assert done.code == 2 and message in done.err


def test_the_script_is_not_overwritten_by_its_output(script):
    path = script("import torch\n")
    done = run_peakmem("run", "--force", "--output", path, path)
    assert done.code == 2 and "would take the place of" in done.err
    assert path.read_text() == "import torch\n"


def test_no_file_is_overwritten_by_the_output(script, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    done = run_peakmem("run", "--output", notes, script("import torch\n"))
    assert done.code == 2 and "notes.txt" in done.err and "--force" in done.err
    assert notes.read_text() == "mine"


def test_ctrl_c_in_the_further_runs_keeps_the_result(script, tmp_path):
    text = """
model = nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with open(os.environ["RUNS"], "a") as file: file.write("x")
while True:
    model(torch.randn(2, 3, 16, 16).cuda()).sum().backward()
    optimizer.step()
"""
    runs = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", "run", str(script(START + text))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUNS": str(runs)},
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if runs.exists() and len(runs.read_text()) > 1:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "fits on" in out and "the result has no range" in " ".join(out.split()) and "Traceback" not in err


def test_ctrl_c_before_anything_ran_is_no_verdict(script):
    process = subprocess.Popen(
        [sys.executable, "-c", "import _thread, threading, runpy, sys\n"
         "threading.Timer(1, _thread.interrupt_main).start()\nsys.argv[0] = 'peakmem'\n"
         "runpy.run_module('peakmem', run_name='__main__')", "run", str(script("import time; time.sleep(60)\n"))],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err and "Traceback" not in err


def test_a_script_whose_name_is_no_unicode_is_measured(tmp_path):
    """PyTorch can't give its history then (2.14.1); the figures are there, and what is missing is said."""
    path = os.fsencode(tmp_path) + b"/caf\xe9 train.py"
    with open(path, "w") as file:
        file.write(START + "training()\n")
    save = tmp_path / "t.peakmem"
    words = ["run", "--steps", "all", "--output", tmp_path / "log", "--save", save, "--json", "-", os.fsdecode(path)]
    done = run_peakmem(*words)
    _same_as_printed(done, tmp_path / "log")
    if done.code == 0:  # a PyTorch that can
        assert save.exists()
    else:
        assert done.code == 2 and "t.peakmem was not written" in done.err
        assert any("what holds the memory is not known" in note for note in done.json["notes"])


def test_devices_and_links_are_written_to_and_not_replaced(tmp_path):
    from peakmem.errors import PeakmemError
    from peakmem.files import write_whole

    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(b"into it", tmp_path / "pipe", force=False)
    assert os.read(reader, 100) == b"into it"
    os.close(reader)
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write_whole(b"new", tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
    with pytest.raises(PeakmemError, match="No space left"):
        write_whole(b"x" * 100_000, "/dev/full", force=True)
    assert not os.path.isfile("/dev/full")
