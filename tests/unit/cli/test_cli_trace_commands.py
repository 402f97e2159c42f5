from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

sys.path.append(str(Path(__file__).parents[1] / "trace"))
from trace_samples import DATA
from training_trace import training_trace

from peakmem.cli import diff, export, import_, report
from peakmem.errors import PeakmemError
from peakmem.trace.file import write_trace
from peakmem.trace.load import load_trace


def invoke(command: click.Command, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(training_trace(), tmp_path / "run.peakmem")


def test_import_writes_a_trace_and_says_its_peaks(tmp_path: Path) -> None:
    expected = json.loads((DATA / "plain.json").read_text())
    done = invoke(import_.command, DATA / "plain.pickle", "-o", tmp_path / "x.peakmem")
    assert done.exit_code == 0
    assert load_trace(tmp_path / "x.peakmem") == load_trace(DATA / "plain.pickle")
    assert f"{expected['allocated']['peak'] / 2**20:.2f} MiB allocated" in done.output


def test_import_tells_what_is_wrong_with_a_history(tmp_path: Path) -> None:
    done = invoke(import_.command, DATA / "ring.pickle", "-o", tmp_path / "x.peakmem")
    assert done.exit_code == 0 and "note:" not in done.output


def test_report_names_the_file_after_the_trace(trace: Path) -> None:
    done = invoke(report.command, trace)
    assert done.output.strip() == str(trace.with_suffix(".html"))
    assert "run.peakmem" in trace.with_suffix(".html").read_text()
    with pytest.raises(PeakmemError, match="exists already"):
        invoke(report.command, trace)
    assert invoke(report.command, trace, "--force").exit_code == 0


def test_report_refuses_a_device_that_is_not_there(trace: Path) -> None:
    with pytest.raises(PeakmemError, match="no device 4") as error:
        invoke(report.command, trace, "--device", "4")
    assert error.value.hint == "it has: 0"


def test_export_writes_both_formats(trace: Path, tmp_path: Path) -> None:
    assert invoke(export.command, trace, "--format", "snapshot", "-o", tmp_path / "s.pickle").exit_code == 0
    assert len(load_trace(tmp_path / "s.pickle").events) == len(load_trace(trace).events)
    assert invoke(export.command, trace, "--format", "perfetto").exit_code == 0
    made = json.loads((tmp_path / "run.perfetto.json").read_text())
    slices = [event["name"] for event in made["traceEvents"] if event["ph"] == "X"]
    assert slices.count("forward") == 3 and "step 3" in slices
    roles = {key for event in made["traceEvents"] if event["name"] == "by role" for key in event["args"]}
    assert {"parameter", "activation", "optimizer_state"} <= roles


def test_export_never_writes_over_its_own_source(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(PeakmemError, match="the trace itself"):
        invoke(export.command, trace, "--format", "snapshot", "-o", trace, "--force")
    assert trace.read_bytes() == before


def test_diff_prints_tables_or_json(trace: Path, tmp_path: Path) -> None:
    other = write_trace(training_trace(batch=40), tmp_path / "other.peakmem")
    text = invoke(diff.command, trace, other).output
    assert "by role" in text and "activation" in text and "encoder.layers" in text
    made = json.loads(invoke(diff.command, trace, other, "--json", "-").output)
    assert made["schema"] == "peakmem/diff/1" and made["peak"]["allocated"]["change"] > 0


@pytest.mark.parametrize("name", ["diff", "export", "import", "report"])
def test_help_has_an_example(name: str) -> None:
    command = {"diff": diff, "export": export, "import": import_, "report": report}[name].command
    done = invoke(command, "--help")
    assert done.exit_code == 0 and f"peakmem {name} " in done.output
