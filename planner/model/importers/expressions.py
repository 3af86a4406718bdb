"""Evaluates expressions in model families: a safe subset of Python.

It has integers, strings, lists, arithmetic, comparisons, `and`, `or`, `not`, `a if b else c`, subscripts, and
the functions that the caller allows. Nothing else of Python is reachable.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from planner.memoize import memoize

LONGEST = 400  # characters
LARGEST = 2**63  # of a number
LONGEST_RESULT = 10_000  # of a text or a list
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_NUMBERS_ONLY = (ast.Mult, ast.Mod, ast.FloorDiv)


class ExpressionError(Exception):
    """An expression that cannot be parsed or evaluated."""


@memoize
def parse_expression(text: str) -> ast.expr:
    """Parses an expression into a syntax tree."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of {len(text):,} characters; it has at most {LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text!r} is no expression") from None


def evaluate_text(
    text: str, look_up: Callable[[str], Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Evaluates an expression; `look_up` returns the value of a name, which may contain dots."""
    try:
        return _evaluate_node(parse_expression(text), look_up, functions)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise ExpressionError(f"{text!r}: {type(error).__name__}: {str(error)[:100]}") from None


def _evaluate_node(
    node: ast.expr, look_up: Callable[[str], Any], functions: Mapping[str, Callable[..., Any]]
) -> Any:
    """Evaluates one node of an expression's syntax tree."""

    def evaluate_part(child: ast.expr) -> Any:
        """Evaluates a child node."""
        return _evaluate_node(child, look_up, functions)

    match node:
        case ast.Constant(value):
            return value
        case ast.Name() | ast.Attribute():
            return look_up(_dotted_name(node))
        case ast.BoolOp(op, parts):
            result: Any = None
            for part in parts:
                result = evaluate_part(part)
                if bool(result) is isinstance(op, ast.Or):
                    break
            return result
        case ast.UnaryOp(ast.Not(), part):
            return not evaluate_part(part)
        case ast.UnaryOp(ast.USub(), part):
            return -evaluate_part(part)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            first, second = evaluate_part(left), evaluate_part(right)
            if isinstance(op, _NUMBERS_ONLY) and not (isinstance(first, int) and isinstance(second, int)):
                raise TypeError("it multiplies and divides whole numbers")
            return _check_result_size(_OPERATORS[type(op)](first, second))
        case ast.Compare(left, [op], [right]):
            return _OPERATORS[type(op)](evaluate_part(left), evaluate_part(right))
        case ast.IfExp(test, yes, no):
            return evaluate_part(yes) if evaluate_part(test) else evaluate_part(no)
        case ast.Subscript(part, index):
            return evaluate_part(part)[evaluate_part(index)]
        case ast.List(parts) | ast.Tuple(parts):
            return [evaluate_part(part) for part in parts]
        case ast.Call(ast.Name(name), parts, []) if name in functions:
            return functions[name](*map(evaluate_part, parts))
    raise ExpressionError(f"{ast.unparse(node)!r} is no part of an expression")


def _check_result_size(result: Any) -> Any:
    """Returns an operator's result; raises OverflowError if it could fill the memory."""
    if isinstance(result, int | float) and abs(result) > LARGEST:
        raise OverflowError("a number beyond 64 bits")
    if isinstance(result, str | list) and len(result) > LONGEST_RESULT:
        raise OverflowError(f"more than {LONGEST_RESULT:,} characters or items")
    return result


def _dotted_name(node: ast.expr) -> str:
    """Dotted name that a syntax node spells."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(of, name):
            return f"{_dotted_name(of)}.{name}"
    raise ExpressionError(f"{ast.unparse(node)!r} is no name")
