"""Which names a cell takes from the cells before it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable


def names_read(source: str) -> frozenset[str]:
    """The names that a cell reads before it gives them a value itself.

    What a function's body reads is looked for when the function is called, so there a name counts only where no
    statement of the cell gives it a value.

    Raises:
        SyntaxError: the cell is no Python.
    """
    tree = ast.parse(source)
    made: set[str] = set()
    read: set[str] = set()
    later: set[str] = set()
    for statement in tree.body:
        now, in_functions = _read(statement)
        read |= now - made
        later |= in_functions
        made |= _made([statement])
    return frozenset((read | (later - made)) - set(dir(builtins)))


def _read(node: ast.AST) -> tuple[set[str], set[str]]:
    """Names that are read at once, and names that the bodies of functions read."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        now, later = _read_all([node.args, *node.decorator_list, *([node.returns] if node.returns else [])])
        return now, later | (set().union(*_read_all(node.body)) - _local(node.args, node.body))
    if isinstance(node, ast.Lambda):
        now, later = _read_all([node.args])
        return now, later | (set().union(*_read(node.body)) - _local(node.args, []))
    if isinstance(node, ast.ClassDef):
        in_body, later = _read_all(node.body)
        now, later_outside = _read_all([*node.bases, *node.keywords, *node.decorator_list])
        return (in_body - _made(node.body)) | now, later | later_outside
    now, later = _read_all(ast.iter_child_nodes(node))
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
        local = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        return now - local, later - local
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del):
        now.add(node.id)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        now.add(node.target.id)
    return now, later


def _read_all(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    now: set[str] = set()
    later: set[str] = set()
    for node in nodes:
        inner_now, inner_later = _read(node)
        now |= inner_now
        later |= inner_later
    return now, later


def _local(arguments: ast.arguments, body: list[ast.stmt]) -> set[str]:
    """Names that belong to a function."""
    named = {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
    return named | (_made(body) - _declared_global(body))


def _made(statements: Iterable[ast.AST]) -> set[str]:
    """Names that statements give a value, those of inner functions and classes left out."""
    made: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            made |= {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.Lambda | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            continue
        else:
            if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
                made.add(statement.id)
            if isinstance(statement, ast.ExceptHandler) and statement.name:
                made.add(statement.name)
            if isinstance(statement, ast.MatchAs | ast.MatchStar) and statement.name:
                made.add(statement.name)
            made |= _made(ast.iter_child_nodes(statement))
    return made


def _declared_global(body: Iterable[ast.AST]) -> set[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
