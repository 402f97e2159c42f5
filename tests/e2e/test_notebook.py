"""Notebooks: run as they are, the magics in a kernel, and the notebook of the examples from top to bottom."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytestmark = [
    pytest.mark.torch,
    # jupyter_client warns of its own way to reach a kernel, which is a matter of its next versions.
    pytest.mark.filterwarnings("ignore:.*Kernel is running over TCP.*"),
]

MODEL = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1000, 100)
        self.last = nn.Linear(100, 10)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Net()
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(1024, 1000)"""
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.74 GiB of which 1.00 GiB is "
    "free. Including non-PyTorch memory, this process has 13.74 GiB memory in use. Of the allocated memory 13.00 GiB "
    "is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated."
)
TRAINING = """model.to(device)
for step in range(5):
    loss = model(data[:256].to(device)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()"""


def execute(cells, folder: Path):
    """Run cells in a new kernel; errors stay in the cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return run_notebook(notebook, folder)


def run_notebook(notebook, folder: Path):
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell) -> str:
    """What a cell printed and showed, as text."""
    texts = [output["text"] if "text" in output else output["data"].get("text/plain", "") for output in cell.outputs]
    return "\n".join(texts)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One kernel, through which every magic has gone."""
    cells = {
        "load": "%load_ext peakmem",
        "usage": "%peakmem",
        "model": MODEL,
        "early explain": "%peakmem explain",
        "by name": "forecast = %peakmem predict model --batch 256 --input 1000 --optimizer adam --loss mean --gpu t4",
        "by name, on the CPU": "%peakmem predict model --device cpu --batch 256 --input 1000 --loss mean",
        "field": "print(forecast.peak.allocated, type(forecast).__name__)",
        "shown": "forecast",
        "on the CPU": f"%%peakmem --gpu t4\n{TRAINING}",
        "cell": f"%%peakmem --gpu t4\ndevice = 'cuda'\n{TRAINING}",
        "from start": f"%%peakmem --from-start --gpu t4\n{TRAINING}",
        "kernel as it was": "print(next(model.parameters()).device, len(optimizer.state), device)",
        "text": "%peakmem conf explain expandable_segments:True",
        "bad option": "%peakmem predict model --batch many",
        "bad model": "%peakmem predict resnet --batch 2",
        "bad quote": "%peakmem predict 'model",
        "generator": "numbers = (n for n in range(3))",
        "not sent": "%%peakmem\nfor n in numbers:\n    print(n)",
        "no Python": "%%peakmem\nprint(1",
        "failing": "%%peakmem --gpu t4\nx = torch.zeros(3, device='cuda')\nraise ValueError('of the cell')",
        "no memory": "%%peakmem --memory 1GiB\nx = torch.zeros(2**30, device='cuda')",
        "torch ran out": f"raise torch.OutOfMemoryError({OUT_OF_MEMORY!r})",
        "explain": "%peakmem explain",
    }
    done = execute(list(cells.values()), tmp_path_factory.mktemp("notebook"))
    return dict(zip(cells, done, strict=True))


def test_the_magics_say_how_they_are_used(kernel):
    assert not kernel["load"].outputs
    assert "%%peakmem --from-start" in text_of(kernel["usage"])


def test_a_model_is_asked_about_by_its_name(kernel, tmp_path):
    script = tmp_path / "nets.py"
    script.write_text(MODEL)  # Net is a function that returns a module, as far as peakmem predict is concerned
    target = tmp_path / "forecast.json"
    words = ("--batch", "256", "--input", "1000", "--optimizer", "adam", "--loss", "mean", "--gpu", "t4")
    done = run_peakmem("predict", f"{script}:Net", *words, "--json", str(target))
    assert done.code == 0, done.err
    expected = json.loads(target.read_text())["peak"]["allocated"]
    assert text_of(kernel["field"]).split() == [str(expected), "Forecast"]


def test_a_forecast_is_a_picture_and_a_report(kernel):
    [output] = kernel["shown"].outputs
    assert "fits on Tesla T4" in output["data"]["text/plain"]
    assert "<svg" in output["data"]["text/html"]


def test_a_model_is_asked_about_for_the_cpu(kernel):
    text = text_of(kernel["by name, on the CPU"])
    assert "resident at the peak" in text and "GPU" not in text


def test_a_cell_runs_with_the_names_of_the_notebook_and_leaves_them_alone(kernel):
    assert "fits on Tesla T4" in text_of(kernel["cell"])
    assert "cell.py:4" in text_of(kernel["cell"])
    assert text_of(kernel["kernel as it was"]).split() == ["cpu", "0", "cpu"]


def test_all_cells_from_the_start_take_what_the_cell_alone_takes(kernel):
    lines = {
        name: next(line for line in text_of(kernel[name]).splitlines() if "max_memory_allocated" in line)
        for name in ("cell", "from start")
    }
    assert lines["cell"] == lines["from start"]
    assert "notebook.ipynb[3]:11" in text_of(kernel["from start"])


def test_a_cell_that_trains_on_the_cpu_is_told_why(kernel):
    assert "in this kernel, device is 'cpu'" in text_of(kernel["on the CPU"])
    assert "--from-start" in text_of(kernel["on the CPU"])


def test_other_commands_print(kernel):
    text = text_of(kernel["text"])
    assert "accepts this string" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("early explain", "no cell of this notebook has failed"),
        ("bad option", "Invalid value for '-b' / '--batch'"),
        ("bad model", "'resnet' names no model"),
        ("bad quote", "No closing quotation"),
        ("not sent", "the cell uses 'numbers', of the type generator"),
        ("no Python", "line 1 of the cell is no Python"),
    ],
)
def test_errors_are_one_message(kernel, name, words):
    outputs = [output for output in kernel[name].outputs if output["output_type"] != "display_data"]
    assert [output["output_type"] for output in outputs] == ["stream"]
    assert outputs[0]["text"].startswith("UsageError: ")
    assert words in outputs[0]["text"]
    assert "Traceback" not in outputs[0]["text"]


def test_a_cell_that_fails_or_does_not_fit_is_shown_as_such(kernel):
    assert "the script failed at cell.py:2" in text_of(kernel["failing"])
    assert "ValueError: of the cell" in text_of(kernel["failing"])
    assert "does not fit" in text_of(kernel["no memory"])
    assert "cell.py:1" in text_of(kernel["no memory"])


def test_the_last_error_of_the_notebook_is_explained(kernel):
    assert "this is not fragmentation" in " ".join(text_of(kernel["explain"]).split())


def test_a_notebook_is_run_as_a_script_is(tmp_path):
    cells = [
        "!pip install nothing\n%matplotlib inline\nimport argparse",
        MODEL,
        "%%bash\nexit 1",
        f"%%time\n{TRAINING}",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = tmp_path / "train.ipynb"
    nbformat.write(notebook, path)
    script = tmp_path / "train.py"
    script.write_text(f"{MODEL}\n{TRAINING}\n")
    found = {}
    for name in (path, script):
        target = tmp_path / f"{name.suffix[1:]}.json"
        done = run_peakmem("run", "--gpu", "t4", "--json", str(target), str(name))
        assert done.code == 0, done.err
        found[name.suffix] = json.loads(target.read_text())
    assert found[".ipynb"]["peak"]["allocated"] == found[".py"]["peak"]["allocated"]
    assert found[".ipynb"]["peak"]["reserved"] == found[".py"]["peak"]["reserved"]
    assert any(holder["line"] == "train.ipynb[4]:4" for holder in found[".ipynb"]["holders_at_peak"])
    assert found[".ipynb"]["command"][1:] == [str(path)]


def test_the_notebook_of_the_examples_runs_from_top_to_bottom(tmp_path):
    shutil.copy(EXAMPLES / "peakmem_colab.ipynb", tmp_path)
    notebook = nbformat.read(tmp_path / "peakmem_colab.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    cells = run_notebook(notebook, tmp_path)
    for cell in cells:
        kinds = [output["output_type"] for output in cell.outputs]
        assert "error" not in kinds, cell.source
        assert not any("UsageError" in output.get("text", "") for output in cell.outputs), cell.source

    def cell(start: str):
        return next(found for found in cells if found.source.startswith(start))

    assert "the virtual GPU works" in text_of(cell("%peakmem doctor"))
    assert "1,863,680 bytes" in text_of(cell("counted"))
    assert "does not fit on Tesla T4" in text_of(cell("forecast ="))
    assert "out of memory in step 11, backward" in text_of(cell("forecast ="))
    assert "expandable_segments:True makes it fit" in text_of(cell("%peakmem tune"))
    assert "fits" in text_of(cell("tuned ="))
    assert any("image/png" in output.get("data", {}) for output in cell("%matplotlib").outputs)
    assert "fits on Tesla T4" in text_of(cell("%%peakmem"))
