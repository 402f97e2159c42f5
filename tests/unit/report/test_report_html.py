"""The HTML report: its data add up, the page is self-contained, and a real browser draws it without an error."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "trace"))
from trace_samples import DATA, real_snapshots
from training_trace import CAPACITY, CONTEXT, training_trace

from peakmem.errors import PeakmemError
from peakmem.report import html_data
from peakmem.report.html import embed, render_html, write_html
from peakmem.report.html_data import report_data
from peakmem.report.html_model import ReportData
from peakmem.trace.load import load_trace
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")


def traces() -> dict[str, Trace]:
    return {
        "training": training_trace(),
        "plain": load_trace(DATA / "plain.pickle"),
        "streams": load_trace(DATA / "streams.pickle"),
        "ring": load_trace(DATA / "ring.pickle"),
        "empty": Trace(),
    }


@pytest.fixture(params=list(traces()))
def data(request: pytest.FixtureRequest) -> ReportData:
    return report_data(traces()[request.param], title=f"{request.param}.peakmem")


def test_groups_add_up_to_allocated_at_every_sample(data: ReportData) -> None:
    line = data.timeline
    assert np.sum(np.asarray(line.groups), axis=0).tolist() == line.allocated
    assert sum(group.at_peak for group in data.groups) == data.statements[0].allocated
    assert min(map(min, line.groups)) >= 0


def test_every_statement_closes(data: ReportData) -> None:
    for one in data.statements:
        assert one.requested + one.rounding == one.allocated
        assert one.allocated + one.pending == one.active
        assert one.active + one.stranded == one.reserved
        assert one.reserved + one.context == one.used


def test_segments_holders_and_tree_add_up_to_the_same_peak(data: ReportData) -> None:
    peak = data.statements[0]
    segments = data.segments
    assert segments.total == peak.reserved
    assert segments.stranded == peak.stranded
    assert sum(block[1] for segment in segments.segments for block in segment.blocks) == peak.active
    assert sum(holder["size"] for holder in data.holders) + data.holders_left["size"] == peak.allocated
    assert data.tree.size == peak.allocated
    assert sum(part.size for part in data.tree.parts) == data.tree.size


def test_stranded_memory_is_shared_among_those_who_hold_it() -> None:
    data = report_data(training_trace(), title="x")
    segments = data.segments
    held = segments.stranded - segments.free_segments
    assert abs(sum(pinner.stranded for pinner in segments.pinners) - held) <= len(segments.pinners)


def test_a_long_run_is_thinned_out_and_keeps_its_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = training_trace(steps=12)
    replay = Replay(trace)
    monkeypatch.setattr(html_data, "_SAMPLES", 60)
    line = report_data(trace, title="x").timeline
    assert len(line.moment) <= 70 < len(replay)
    assert max(line.allocated) == replay.peak("allocated").allocated
    assert max(line.reserved) == replay.peak("reserved").reserved
    assert replay.peak_moment("allocated") in line.moment
    assert (line.moment[0], line.moment[-1]) == (0, len(replay) - 1)


def test_a_snapshot_without_roles_says_so() -> None:
    data = report_data(traces()["plain"], title="x")
    assert not data.by_role
    assert any("no roles" in note for note in data.notes)
    assert any(group.title.startswith("train.py:") for group in data.groups)


def test_names_from_a_trace_never_become_markup() -> None:
    nasty = "</script><img src=x onerror=alert(1)>"
    data = report_data(training_trace(), title=nasty)
    page = render_html(data)
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert json.loads(embed(data))["title"] == nasty


def test_the_page_is_self_contained() -> None:
    page = render_html(report_data(training_trace(), title="x"))
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!data:)", page)
    assert not re.search(r"@import|url\((?!data:)|fetch\(|XMLHttpRequest|WebSocket|import\(", page)
    assert "default-src 'none'" in page


def test_a_report_does_not_replace_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text("precious")
    with pytest.raises(PeakmemError, match="exists already"):
        write_html(training_trace(), path, title="x")
    assert path.read_text() == "precious"


PROBE = (Path(__file__).parent / "probe.html").read_text()


def browse(page: str, tmp_path: Path, *, width: int = 1280) -> tuple[str, dict[str, Any], str]:
    """Open a page in Chromium; returns the document as it is then, what the probe saw, and the console."""
    assert BROWSER is not None
    inner = tmp_path / "page.html"
    probed = page.replace("<body>", "<body>" + PROBE, 1)
    if width < 500:  # no window is narrower, but a frame is
        frame = f'<iframe style="width:{width}px;height:900px" srcdoc="{html.escape(probed)}"></iframe>'
        probed = f"<!doctype html><body>{frame}</body>"
    inner.write_text(probed)
    arguments = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},1000", "--virtual-time-budget=3000", "--dump-dom", inner.as_uri(),
    ]  # fmt: skip
    done = subprocess.run([BROWSER, *arguments], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, json.loads(html.unescape(found.group(1))), console


@needs_browser
@pytest.mark.chromium
@pytest.mark.parametrize("name", ["training", "plain", "streams", "empty"])
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_the_report_without_an_error(tmp_path: Path, name: str, width: int) -> None:
    trace = traces()[name]
    data = report_data(trace, title=f"{name}.peakmem")
    document, probe, console = browse(render_html(data), tmp_path, width=width)
    assert probe["problems"] == [] and console == ""
    assert 'data-ready="true"' in document
    assert probe["overflow"] <= 0
    assert sorted(probe["themes"]) == ["dark", "light"]
    shown = {key: int(size) for key, size in re.findall(r'data-key="(\w+)" data-bytes="(\d+)"', document)}
    peak = data.statements[0]
    assert shown == {key: getattr(peak, key) for key in shown} and len(shown) >= 9
    groups = {key: int(size) for key, size in re.findall(r'data-group="(\w+)" data-bytes="(\d+)"', document)}
    assert groups == {group.key: group.at_peak for group in data.groups if group.key in groups}
    assert sum(groups.values()) == peak.allocated
    holders = re.search(r'<table id="holders".*?</table>', document, re.DOTALL)
    assert holders is not None
    in_table = [int(size) for size in re.findall(r'data-bytes="(\d+)"', holders.group())]
    assert in_table == [holder["size"] for holder in data.holders]
    if name != "empty":
        assert probe["timelineColors"] > 10 and probe["segmentColors"] > 3
        assert "reserved" in probe["tip"] and "event " in probe["tip"]
        assert "segment" in probe["segmentTip"]
        assert probe["zoomed"] and probe["back"] and probe["byTime"] and probe["flameGrew"]
        assert probe["filtered"] == 0


@needs_browser
@pytest.mark.chromium
@pytest.mark.parametrize("name", ["training", "plain"])
def test_the_report_fits_a_phone(tmp_path: Path, name: str) -> None:
    _, probe, console = browse(render_html(report_data(traces()[name], title=name)), tmp_path, width=360)
    assert probe["problems"] == [] and console == ""
    assert probe["overflow"] <= 0
    assert probe["wide"] == []


@needs_browser
@pytest.mark.chromium
def test_the_statement_of_the_training_run_holds_its_context_and_capacity(tmp_path: Path) -> None:
    document, probe, _ = browse(render_html(report_data(training_trace(), title="t")), tmp_path)
    assert f'data-key="context" data-bytes="{CONTEXT}"' in document
    assert f'data-key="capacity" data-bytes="{CAPACITY}"' in document
    assert "step 2, backward" in document
    assert "encoder.layers" in probe["tip"] or "train.py" in probe["tip"]


@needs_browser
@pytest.mark.chromium
@pytest.mark.parametrize("path", real_snapshots(), ids=lambda path: path.stem)
def test_a_browser_draws_real_snapshots(tmp_path: Path, path: Path) -> None:
    data = report_data(load_trace(path), title=path.name)
    document, probe, console = browse(render_html(data), tmp_path)
    assert probe["problems"] == [] and console == ""
    assert f'data-key="reserved" data-bytes="{data.statements[0].reserved}"' in document
