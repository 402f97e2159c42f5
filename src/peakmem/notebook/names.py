"""Which names a cell takes from the cells before it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

_BRANCHES = ("body", "orelse", "finalbody", "handlers", "cases")
"""Parts of a statement that may be left out when it runs."""


def names_read(source: str) -> frozenset[str]:
    """The names that a cell reads, or may read, before it gives them a value itself.

    A name that gets its value in one branch alone, or in a loop, still counts where it is read after that. What a
    function's body reads is looked for when the function is called, so there a name counts only where no statement of
    the cell gives it a value.

    Raises:
        SyntaxError: the cell is no Python.
    """
    tree = ast.parse(source)
    reader = _Reader()
    made = reader.run(tree.body, frozenset())
    return frozenset((reader.now | (reader.later - made)) - set(dir(builtins)))


class _Reader:
    """Follows a cell as it runs.

    Attributes:
        now: names read by the cell itself, which it had not given a value.
        later: names read by bodies of functions, which are not their own.
    """

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.later: set[str] = set()

    def run(self, statements: Iterable[ast.AST], made: frozenset[str]) -> frozenset[str]:
        """Follow statements; `made` are the names that have a value before, the result those that have one after."""
        for statement in statements:
            made = self._statement(statement, made)
        return made

    def _statement(self, node: ast.AST, made: frozenset[str]) -> frozenset[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._read([node.args, *node.decorator_list, *([node.returns] if node.returns else [])], made)
            self._function(node.args, node.body)
            return made | {node.name}
        if isinstance(node, ast.ClassDef):
            self._read([*node.bases, *node.keywords, *node.decorator_list], made)
            self.run(node.body, made)
            return made | {node.name}
        if isinstance(node, ast.With | ast.AsyncWith):
            self._read(node.items, made)
            return self.run(node.body, made | _given(node.items))
        branches = [getattr(node, name) for name in _BRANCHES if isinstance(getattr(node, name, None), list)]
        if not branches:
            self._read([node], made)
            return made | _given([node])
        inside = {id(statement) for branch in branches for statement in branch}
        head = [part for part in ast.iter_child_nodes(node) if id(part) not in inside]
        self._read(head, made)
        given = _given(head) | ({node.name} if isinstance(node, ast.ExceptHandler) and node.name else frozenset())
        for branch in branches:
            self.run(branch, made | given)
        return made

    def _read(self, nodes: Iterable[ast.AST], made: frozenset[str]) -> None:
        """Note what expressions read."""
        for node in nodes:
            if isinstance(node, ast.Lambda):
                self._read([node.args], made)
                self._function(node.args, [node.body])
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                self._read(ast.iter_child_nodes(node), made | _given(ast.walk(node)))
            else:
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del):
                    self.now |= {node.id} - made
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    self.now |= {node.target.id} - made
                self._read(ast.iter_child_nodes(node), made)

    def _function(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        inner = _Reader()
        own = {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
        nodes = [node for statement in body for node in ast.walk(statement)]
        shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        made = inner.run(body, frozenset(own))
        every = made | _given(nodes) - shared
        self.later |= (inner.now - (every - shared)) | (inner.later - (every - shared))


def _given(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Names that get a value in nodes, inner functions and comprehensions left out."""
    given: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            given.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            given |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                given.add(node.id)
            if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
                given.add(node.name)
            given |= _given(ast.iter_child_nodes(node))
    return frozenset(given)
