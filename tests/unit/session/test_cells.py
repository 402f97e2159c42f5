"""Notebooks as Python, and what of them is refused."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.session.command import RUN_NOTEBOOK, as_typed, resolve, script_of
from peakmem.session.inside.cells import code_cells, python_of


def notebook(*sources):
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# text"]}, *cells]})


def test_code_cells_keep_their_numbers_among_all_cells():
    assert code_cells(notebook("a = 1", ["b = 2\n", "c = 3"])) == [(2, "a = 1"), (3, "b = 2\nc = 3")]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"cells": 1}', '{"cells": [1]}', '{"cells": [{}]}', "null"])
def test_what_is_no_notebook_is_refused(text):
    with pytest.raises(ValueError, match="not a Jupyter notebook of format 4"):
        code_cells(text)


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("if a:\n    !pip install b\nx", "if a:\n    pass\nx"),
        ("files = !ls *.py\nt = %timeit -o f()", "files = []\nt = []"),
        ("model?\nmodel.fit??\n?print", "pass\npass\npass"),
        ("%%time\ntrain()", "pass\ntrain()"),
        ("%%bash\nrm -rf data", ""),
        ("\n%%writefile net.py\nimport torch", ""),
        ("%%peakmem --gpu t4\ntrain()", ""),
        ("x = (7\n  % 3)", "x = (7\n  % 3)"),
        ("print('a?')\nb = 'c' if d else '?'", "print('a?')\nb = 'c' if d else '?'"),
    ],
)
def test_lines_of_ipython_are_left_out(cell, python):
    assert python_of(cell) == python


@given(st.text(alphabet="ab=%!?\n .()", max_size=60))
def test_lines_stay_where_they_are(cell):
    python = python_of(cell)
    assert python == "" or len(python.split("\n")) == len(cell.splitlines())


def test_a_notebook_is_run_by_our_own_program_which_the_user_need_not_see(tmp_path):
    path = tmp_path / "train.ipynb"
    path.write_text(notebook("x = 1"))
    command = resolve((str(path), "--lr", "1"))
    assert command == (sys.executable, str(RUN_NOTEBOOK), str(path), "--lr", "1")
    assert as_typed(command) == (sys.executable, str(path), "--lr", "1")
    assert script_of(command) == str(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a Jupyter notebook of format 4"),
        (notebook("x = 1", "for"), "cell 3 of"),
        (notebook("await x"), None),
    ],
)
def test_a_notebook_that_can_not_run_is_refused_before(tmp_path, content, message):
    path = tmp_path / "train.ipynb"
    path.write_text(content)
    if message is None:
        with pytest.raises(PeakmemError, match="'await' outside function"):
            resolve((str(path),))
        return
    with pytest.raises(PeakmemError) as error:
        resolve((str(path),))
    assert message in error.value.message
    assert error.value.hint


def test_a_misspelt_notebook_is_suggested(tmp_path):
    (tmp_path / "train.ipynb").write_text("{}")
    with pytest.raises(PeakmemError) as error:
        resolve((str(tmp_path / "tran.ipynb"),))
    assert error.value.hint == f"did you mean {tmp_path / 'train.ipynb'}?"
