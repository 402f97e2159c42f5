"""Which names a cell takes from the cells before it."""

from __future__ import annotations

import pytest

from peakmem.notebook.names import names_read


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("y = model(x)", {"model", "x"}),
        ("model = Net()\nmodel(x)", {"Net", "x"}),
        ("model = model.cuda()", {"model"}),
        ("step += 1", {"step"}),
        ("import torch\ntorch.zeros(n)", {"n"}),
        ("from a import b as c\nc(d)", {"d"}),
        ("for x in loader:\n    print(x, len(x))", {"loader"}),
        ("[f(x) for x in xs if x > low]", {"f", "xs", "low"}),
        ("{k: v for k, v in pairs.items()}", {"pairs"}),
        ("def train():\n    optimizer.step()\ntrain()", {"optimizer"}),
        ("def train():\n    optimizer.step()\noptimizer = make()\ntrain()", {"make"}),
        ("def f(x, y=size):\n    z = x + y\n    return z * scale", {"size", "scale"}),
        ("def f():\n    global count\n    count = 1 + count", {"count"}),
        ("f = lambda x: x * w", {"w"}),
        (
            "class Net(Base, metaclass=Meta):\n    width = 3\n    def f(self):\n        return self.g(h)",
            {"Base", "Meta", "h"},
        ),
        ("with open(path) as file:\n    data = file.read()", {"path"}),
        ("try:\n    run()\nexcept Problem as error:\n    print(error)", {"run", "Problem"}),
        ("@wrap\ndef f() -> Kind:\n    return 1", {"wrap", "Kind"}),
        ("if fresh:\n    model = Net()\nmodel(x)", {"fresh", "Net", "model", "x"}),
        ("for x in xs:\n    y = f(x)\n    g(y)", {"xs", "f", "g"}),
        ("match a:\n    case [b, *c]:\n        print(b, c)\n    case _:\n        print(d)", {"a", "d"}),
        ("def f():\n    def g():\n        return a\n    a = 1\n    return g", set()),
        ("def f():\n    if a:\n        b = 1\n    return b", {"a"}),
        ("if (n := count()) > 3:\n    print(n)", {"count"}),
        ("del model", {"model"}),
        ("x[i].y = z", {"x", "i", "z"}),
        ("print(f'{a:>{b}}')", {"a", "b"}),
        ("", set()),
    ],
)
def test_names(cell, names):
    assert names_read(cell) == names


def test_no_python():
    with pytest.raises(SyntaxError):
        names_read("x = (")
