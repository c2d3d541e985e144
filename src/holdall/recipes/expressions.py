"""The expressions of recipes: numbers from a configuration, conditions, and calls of operations.

They have the syntax of Python, of which only the harmless part is known: nothing but lookups, arithmetic, comparisons
and the functions that the caller hands in.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from holdall.errors import ContentError

__all__ = ["Call", "Misuse", "Names", "check_expression", "describe_call", "evaluate", "find_key", "parse_call"]
__all__ += ["require_text"]

Names = Mapping[str, Any]
Call = tuple[str, tuple[str, ...]]  # a function and the texts of its arguments

_LONGEST = 1000  # characters; a recipe that someone else wrote is untrusted too
_MOST = 1 << 62  # of a number that is stated or computed
_DEEPEST = 40  # parts of an expression that lie in each other
_MOST_ITEMS = 1 << 12  # of a list, with those of the lists in it
_DEEPEST_LIST = 8  # lists that lie in each other

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_WORDS = {"true": True, "false": False, "null": None}


class Misuse(ContentError):
    """An operation or a function gets values of the wrong kind: a mistake in the recipe, which has a place."""


def check_expression(text: str) -> None:
    """Raise ContentError if ``text`` is no expression, or has a part that recipes do not know."""
    level: list[ast.AST] = [_parse(text)]
    for _ in range(_DEEPEST):
        for node in level:
            _check_part(node, text)
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ContentError(f"{text!r} has more than {_DEEPEST} parts in each other")


def _check_part(node: ast.AST, text: str) -> None:
    if not isinstance(node, _KNOWN):
        raise ContentError(f"{text!r} has a part that recipes do not know: {type(node).__name__.lower()}")
    if isinstance(node, ast.Call) and (node.keywords or not isinstance(node.func, ast.Name)):
        raise ContentError(f"{text!r}: a call is a name and its values, such as has('lm_head.weight')")
    if isinstance(node, ast.Constant) and not _is_plain(node.value):
        raise ContentError(
            f"{text!r} states {type(node.value).__name__} {ast.unparse(node)[:40]}: a value is a text of Unicode, "
            f"a number up to {_MOST}, true, false or null"
        )


def _is_plain(value: object) -> bool:
    """Whether a constant is one that a recipe may state."""
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) <= _MOST)


def evaluate(text: str, names: Names, functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Return the value of an expression. A name that is not there is None, with which nothing can be computed.

    >>> evaluate("head_dim or hidden_size // heads", {"hidden_size": 64, "heads": 4})
    16
    >>> evaluate("rope.kind == 'yarn' and not tied", {"rope": {"kind": "yarn"}, "tied": False})
    True
    """
    check_expression(text)
    try:
        return _Evaluation(names, functions or {}).visit(_parse(text).body)
    except ContentError:
        raise
    except (TypeError, ZeroDivisionError, OverflowError, LookupError, ValueError, RecursionError) as error:
        raise Misuse(f"{text!r} has no value: {error}") from None


def parse_call(text: str) -> Call:
    """Parse an operation: a name, alone or with its arguments, which stay expressions.

    >>> parse_call("permute(heads // 2)"), parse_call("transpose")
    (('permute', ('heads // 2',)), ('transpose', ()))
    """
    body = _parse(text).body
    if isinstance(body, ast.Name):
        return body.id, ()
    if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Name) or body.keywords:
        raise ContentError(f"{text!r} is no operation: a name, or a name with its values in parentheses")
    check_expression(text)
    arguments = tuple(ast.unparse(argument) for argument in body.args)
    for argument in arguments:  # spelled with spaces, they are longer
        check_expression(argument)
    return body.func.id, arguments


def describe_call(call: Call) -> str:
    """Spell an operation.

    >>> describe_call(("permute", ("heads // 2",)))
    'permute(heads // 2)'
    """
    name, arguments = call
    return f"{name}({', '.join(arguments)})" if arguments else name


def require_text(value: object, what: str) -> str:
    """Return ``value``, which is a text; raises Misuse if it is something else."""
    if not isinstance(value, str):
        raise Misuse(f"{what} is {value!r}, not a text")
    return value


def find_key(names: Names, key: str) -> Any:
    """Return the value of a dotted key: a key with dots, or a path into mappings; None if it is not there.

    >>> find_key({"a.b": 1}, "a.b"), find_key({"a": {"b": 2}}, "a.b"), find_key({}, "a.b")
    (1, 2, None)
    """
    if key in names:
        return names[key]
    head, dot, rest = key.partition(".")
    while dot:
        inner = names.get(head)
        if isinstance(inner, Mapping):
            return find_key(inner, rest)
        word, dot, rest = rest.partition(".")
        head = f"{head}.{word}"
    return None


def _parse(text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        raise ContentError(f"an expression of {len(text)} characters; at most {_LONGEST}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python only warns of, such as a stray backslash
            return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
        raise ContentError(f"{text!r} is no expression") from None


def _check_items(items: list[Any]) -> list[Any]:
    """Return a list that was made; raises ContentError for one that grows beyond all lists of models."""
    level, count = items, 0
    for _ in range(_DEEPEST_LIST):
        count += len(level)
        inner = [each for each in level if isinstance(each, list)]
        if count > _MOST_ITEMS or count + sum(map(len, inner)) > _MOST_ITEMS:
            raise Misuse(f"a list has more than {_MOST_ITEMS} items")
        if not inner:
            return items
        level = [item for each in inner for item in each]
    raise Misuse(f"more than {_DEEPEST_LIST} lists lie in each other")


def _plain(value: Any) -> Any:
    """Return the list that an array of metadata is."""
    return value.tolist() if hasattr(value, "tolist") else value


class _Evaluation(ast.NodeVisitor):
    """Computes the value of a checked expression."""

    def __init__(self, names: Names, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.names = names
        self.functions = functions

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        return _WORDS[node.id] if node.id in _WORDS else _plain(find_key(self.names, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        found = _plain(find_key(self.names, ast.unparse(node)))
        if found is None and isinstance(inner := self.visit(node.value), str | int | float | list):
            raise ContentError(f"{ast.unparse(node.value)} is {inner!r}, and should be a table")
        return found

    def visit_List(self, node: ast.List) -> list[Any]:
        return _check_items([self.visit(item) for item in node.elts])

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        return self.visit(node.value)[self.visit(node.slice)]

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self.visit(node.body if self.visit(node.test) else node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        value = None
        for part in node.values:
            value = self.visit(part)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        return not value if isinstance(node.op, ast.Not) else -self._number(value, node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = (self._number(self.visit(side), side) for side in (node.left, node.right))
        value = _ARITHMETIC[type(node.op)](left, right)
        if abs(value) > _MOST if isinstance(value, int) else not isfinite(value):
            raise OverflowError(f"a number beyond {_MOST}")
        return (
            int(value)
            if isinstance(value, float) and type(left) is type(right) is int and value.is_integer()
            else value
        )

    def visit_Compare(self, node: ast.Compare) -> bool:
        left = self.visit(node.left)
        for op, side in zip(node.ops, node.comparators, strict=True):
            right = self.visit(side)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True

    def visit_Call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        if node.func.id not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise Misuse(f"there is no function {node.func.id!r} here; there are: {known}")
        return self.functions[node.func.id](*map(self.visit, node.args))

    def _number(self, value: Any, node: ast.expr) -> Any:
        if value is None:
            raise ContentError(f"{ast.unparse(node)} is needed, and is not stated")
        if not isinstance(value, (int, float)):
            raise ContentError(f"{ast.unparse(node)} is {value!r}, not a number")
        return value


_KNOWN = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Subscript, ast.IfExp, ast.Call),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Load),
    *_ARITHMETIC,
    *_COMPARISONS,
)
