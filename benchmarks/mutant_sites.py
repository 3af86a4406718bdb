"""Places of a source file that a mutant can change: comparisons, conditions, sums, numbers, results."""

from __future__ import annotations

import ast

COMPARED = {ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="}
COMPARED_WORDS = {ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
LOOKS = ("bargap", "opacity", "thickness", "width")  # of a chart's lines and bars: style, and nothing it says
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


class Sites(ast.NodeVisitor):
    """Every place in the bodies of functions that can be changed, as (start, end, new, what)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.data = text.encode()
        self.found: list[tuple[int, int, str, str]] = []
        self.depth = 0

    def at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.at(node)
        return self.data[start:end].decode()

    def add(self, node: ast.expr | ast.stmt, new: str, what: str) -> None:
        if self.depth:
            self.found.append((*self.at(node), new, what))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.depth += 1
        for part in node.body:  # not the decorators, defaults and types
            self.visit(part)
        self.depth -= 1

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is for people; that there is one is up to the condition above it."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Said to the type checker."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Words."""

    def visit_If(self, node: ast.If) -> None:
        if not _for_types(node.test):
            self.add(node.test, f"not ({self.source(node.test)})", "the condition of an if negated")
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self.source(node.left), self.source(node.comparators[0])
            kind = type(node.ops[0])
            new = COMPARED.get(kind) or COMPARED_WORDS[kind]
            self.add(node, f"({left} {new} {right})", f"{new} in a comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " or " if isinstance(node.op, ast.And) else " and "
        joined = word.join(f"({self.source(value)})" for value in node.values)
        self.add(node, f"({joined})", f"{word.strip()} in a condition")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not _is_text(node):
            sign = OPERATORS[type(node.op)]
            self.add(
                node, f"(({self.source(node.left)}) {sign} ({self.source(node.right)}))", f"{sign} in a sum"
            )
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
            other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
            self.add(node.func, other, f"{other} for {node.func.id}")
        if isinstance(node.func, ast.Name) and node.func.id == "Column":
            return  # how a table looks
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Without how thick, dense or pale a chart draws something, as long as that is a number and follows
        from nothing."""
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            if key is not None:
                self.visit(key)
            if not (name in LOOKS and isinstance(value, ast.Constant)):
                self.visit(value)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in ("strict", "flush"):  # of zip, an assertion; of print, a matter of time
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, float) and node.value:
            self.add(node, repr(node.value * 1.2), "a number a fifth larger")
        elif isinstance(node.value, bool):
            self.add(node, str(not node.value), f"{not node.value} for {node.value}")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self.add(node.value, "None", "nothing returned")
        self.generic_visit(node)


def _for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )
