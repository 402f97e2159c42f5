"""Which operators belong to which phase and layer, on a stand-in for TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from peakmem.session.inside.tensorflow_phases import Phases


class Graph:
    def __init__(self) -> None:
        self.operations: list[SimpleNamespace] = []

    def make(self, *names: str) -> None:
        self.operations += [SimpleNamespace(name=name) for name in names]

    def get_operations(self) -> list[SimpleNamespace]:
        return self.operations


class Tensorflow:
    """As much of TensorFlow as is asked for: a graph that is being traced, or none."""

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.scope = ""
        self.entered: list[str] = []

        class GradientTape:
            def gradient(tape, target: Any, sources: Any, unconnected: Any = None) -> Any:  # noqa: N805
                if self.graph is not None:
                    self.graph.make("gradient_tape/MatMul", "AddN")
                return [f"gradient of {source}" for source in sources]

        self.GradientTape = GradientTape

    def executing_eagerly(self) -> bool:
        return self.graph is None

    def enter(self, kind: str, name: str) -> int:
        self.entered.append(name)
        return len(self.entered) - 1

    def leave(self, before: int) -> None:
        del self.entered[before:]

    @contextmanager
    def tracing(self) -> Iterator[Graph]:
        self.graph = Graph()
        try:
            yield self.graph
        finally:
            self.graph = None


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Tensorflow:
    found = Tensorflow()
    ops = ModuleType("tensorflow.python.framework.ops")
    vars(ops).update(get_default_graph=lambda: found.graph, get_name_scope=lambda: found.scope)
    for name in ("tensorflow", "tensorflow.python", "tensorflow.python.framework"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, ops.__name__, ops)
    return found


def phases_of(tensorflow: Tensorflow, taken: list[Any] | None = None) -> Phases:
    told = [] if taken is None else taken
    phases = Phases(tensorflow, tensorflow, lambda sources, found: told.append((sources, found)))
    phases.install()
    return phases


def test_what_is_traced_while_gradients_are_taken_is_the_backward_pass(tensorflow: Tensorflow) -> None:
    taken: list[Any] = []
    phases = phases_of(tensorflow, taken)
    with tensorflow.tracing() as graph:
        graph.make("net/MatMul")
        assert tensorflow.GradientTape().gradient("loss", ["w"]) == ["gradient of w"]
        graph.make("later")
        with phases.phase("optimizer"):
            graph.make("adam/Sub")
    assert phases.names == {"backward": {"gradient_tape/MatMul", "AddN"}, "optimizer": {"adam/Sub"}}
    assert not taken


def test_an_optimizer_that_takes_the_gradients_itself_keeps_them_apart(tensorflow: Tensorflow) -> None:
    phases = phases_of(tensorflow)
    with tensorflow.tracing() as graph, phases.phase("optimizer"):
        tensorflow.GradientTape().gradient("loss", ["w"])
        graph.make("adam/Sub")
    assert phases.names["backward"] == {"gradient_tape/MatMul", "AddN"}
    assert phases.names["optimizer"] == {"adam/Sub"}


def test_outside_of_functions_the_context_tells_and_gradients_are_handed_on(tensorflow: Tensorflow) -> None:
    taken: list[Any] = []
    phases = phases_of(tensorflow, taken)
    tensorflow.GradientTape().gradient("loss", ["w"], unconnected="zero")
    assert taken == [(["w"], ["gradient of w"])]
    with phases.phase("optimizer"):
        assert tensorflow.entered == ["optimizer"]
    assert tensorflow.entered == []
    assert phases.names == {"backward": set(), "optimizer": set()}


def test_scopes_lead_to_layers(tensorflow: Tensorflow, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scope:
        def __init__(self, name: str, caller: Any = None) -> None:
            self.name, self.caller = name, caller

        def __enter__(self) -> Scope:
            tensorflow.scope = f"{self.name}_1"
            return self

    core = ModuleType("keras.src.backend.tensorflow.core")
    vars(core)["name_scope"] = Scope
    for name in ("keras", "keras.src", "keras.src.backend", "keras.src.backend.tensorflow"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, core.__name__, core)
    phases = phases_of(tensorflow)
    phases.watch_layers()
    Scope("eager", SimpleNamespace(path="eager")).__enter__()
    with tensorflow.tracing():
        assert isinstance(Scope("dense", SimpleNamespace(path="net/dense")).__enter__(), Scope)
        Scope("adam", SimpleNamespace(name="adam")).__enter__()
        Scope("nobody").__enter__()
    assert phases.layers == {"dense_1": "net/dense", "adam_1": "adam"}


def test_another_keras_is_left_alone(tensorflow: Tensorflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    phases = phases_of(tensorflow)
    phases.watch_layers()
    assert phases.layers == {}
