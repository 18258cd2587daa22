"""Python functions of plain arithmetic as JavaScript, made from their own source: a page has no formula of its own.

Known are functions of numbers and lists of them: assignments, `if`, `for` over a `range`, `while`, comparisons, sums
and quotients, and calls of other such functions. Whatever else stands in a source is refused, so that what is written
means in JavaScript, to the last bit, what it means in Python: a remainder has the sign of its divisor, a place below
zero counts from the end, a division by zero and a place outside a list are errors. Whole numbers have up to 53 bits.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NoReturn, TypeGuard

from offload.errors import OffloadError

# What Python's operators and functions do where JavaScript's do otherwise.
HELPERS = """\
function py_divided(a, b) { if (b === 0) throw new RangeError("division by zero"); return a / b; }
function py_mod(a, b) {
  if (b === 0) throw new RangeError("division by zero");
  const left = a % b;
  return left !== 0 && left < 0 !== b < 0 ? left + b : left;
}
function py_floored(a, b) {
  const found = (a - py_mod(a, b)) / b, down = Math.floor(found);
  return found - down > 0.5 ? down + 1 : down;
}
function py_at(list, place) {
  const found = list[place < 0 ? place + list.length : place];
  if (found === undefined) throw new RangeError("no place " + place);
  return found;
}
function py_put(list, place, value) {
  const there = place < 0 ? place + list.length : place;
  if (!(there >= 0 && there < list.length && there === Math.floor(there))) throw new RangeError("no place " + place);
  list[there] = value;
}
function py_max(a, b) { return b > a ? b : a; }
function py_min(a, b) { return b < a ? b : a; }
function py_int(a) { if (!Number.isFinite(a)) throw new RangeError("no whole number"); return Math.trunc(a); }
function py_true(a) {
  if (typeof a !== "boolean" && typeof a !== "number") throw new TypeError("no condition");
  return a !== false && a !== 0;
}
function py_many(value, count) { return new Array(Math.max(0, count)).fill(value); }
function py_parts(list, count) { if (list.length !== count) throw new TypeError("not " + count); return list; }
"""
OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
DIVISIONS = {ast.Div: "py_divided", ast.Mod: "py_mod", ast.FloorDiv: "py_floored"}
COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "===", ast.NotEq: "!=="}
RESERVED = frozenset(
    "arguments await break case catch class const continue debugger default delete do else enum eval export extends "
    "false finally for function if implements import in instanceof interface let new null package private protected "
    "public return static super switch this throw true try typeof undefined var void while with yield Infinity NaN "
    "Math Number Array RangeError TypeError".split()
)


def scripted(functions: Sequence[Callable[..., Any]]) -> str:
    """The source of functions, and of all that they call, as JavaScript functions of the same names.

    Raises OffloadError where a source has what is not known here.
    """
    writing = _Writing()
    for one in functions:
        writing.want(one)
    while writing.waiting:
        writing.write(writing.waiting.pop(0))
    return "\n".join([HELPERS + "\n".join(writing.constants), *writing.written, ""])


class _Writing:
    """What is written of some functions. known : by name, the function or the constant that it stands for."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.waiting: list[FunctionType] = []
        self.constants: list[str] = []
        self.written: list[str] = []

    def want(self, function: Any) -> None:
        """Let a function be written."""
        if not isinstance(function, FunctionType):
            raise OffloadError(f"{function!r} has no source that a page can run.")
        if self._new(function.__name__, function):
            self.waiting.append(function)

    def write(self, function: FunctionType) -> None:
        """Write a function."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError):  # a lambda's source is part of another's
            raise OffloadError(f"the source of {function.__name__} is not there to be read.") from None
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
            raise OffloadError(f"{function.__name__} is no plain function.")
        self.written.append(_Function(self, function, tree).text())

    def constant(self, name: str, value: Any) -> None:
        """Let a number of a module, or a tuple of them, be written."""
        shown = f"[{', '.join(map(number, value))}]" if isinstance(value, tuple) else number(value)
        if self._new(name, value):
            self.constants.append(f"const {name} = {shown};")

    def _new(self, name: str, value: Any) -> bool:
        if name in RESERVED or name.startswith("py_"):
            raise OffloadError(f'"{name}" is taken in JavaScript.')
        if name in self.known:
            if self.known[name] is not value and (callable(value) or self.known[name] != value):
                raise OffloadError(f'"{name}" stands for two things.')
            return False
        self.known[name] = value
        return True


def number(value: Any) -> str:
    """A number as JavaScript reads it, to the same bits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float) or value != value or isinstance(value, int) and abs(value) > 2**53:
        raise OffloadError(f"{value!r} is no number that a page can hold.")
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _is_of_lists(annotation: ast.expr | None) -> bool:
    """Whether an argument is annotated as a list."""
    text = "" if annotation is None else ast.unparse(annotation)
    return text.startswith(("Sequence", "list", "tuple"))


def _makes_list(value: ast.expr) -> bool:
    """Whether a value is written as a list, or as one so many times."""
    return isinstance(value, ast.List | ast.Tuple) or isinstance(value, ast.BinOp) and _makes_list(value.left)


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment and what each gets, as far as that is written there."""
    found = []
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            found += list(zip(target.elts, node.value.elts, strict=False))
        elif not isinstance(target, ast.Tuple):
            found.append((target, node.value))
    return found


class _Function:
    """One function as it is written."""

    def __init__(self, writing: _Writing, function: FunctionType, tree: ast.FunctionDef):
        self.writing, self.function, self.tree = writing, function, tree
        given = tree.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
            self._refuse(tree, "arguments of this kind")
        self.arguments = [one.arg for one in given.args]
        stored = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        self.own = [one for one in dict.fromkeys(stored) if one not in self.arguments]
        for one in (*self.arguments, *self.own):
            if one in RESERVED or one.startswith("py_") or "$" in one:
                self._refuse(tree, f'the name "{one}"')
        self.lists = {one.arg for one in given.args if _is_of_lists(one.annotation)} | {
            target.id for one in ast.walk(tree) if isinstance(one, ast.Assign) for target, value in _pairs(one)
            if isinstance(target, ast.Name) and _makes_list(value)}  # fmt: skip
        self.temporary = 0

    def text(self) -> str:
        defaults = self.tree.args.defaults
        plain = len(self.arguments) - len(defaults)
        given = [*self.arguments[:plain], *(f"{name} = {self._constant(value)}" for name, value in
                                            zip(self.arguments[plain:], defaults, strict=True))]  # fmt: skip
        lines = [f"function {self.function.__name__}({', '.join(given)}) {{"]
        if self.own:
            lines.append(f"  let {', '.join(self.own)};")
        for place, one in enumerate(self.tree.body):
            if not (place == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                lines += self._indented(self._statement(one))
        return "\n".join([*lines, "}"])

    def _refuse(self, node: ast.AST, what: str = "") -> NoReturn:
        told = what or f"`{ast.unparse(node)}`"
        raise OffloadError(f"{self.function.__name__}, line {getattr(node, 'lineno', 1)} of it: a page runs no {told}.")

    @staticmethod
    def _indented(lines: Sequence[str]) -> list[str]:
        return [f"  {line}" for line in lines]

    def _made(self) -> str:
        self.temporary += 1
        return f"${self.temporary}"

    # Statements.

    def _body(self, statements: Sequence[ast.stmt]) -> list[str]:
        return self._indented([line for one in statements for line in self._statement(one)])

    def _statement(self, node: ast.stmt) -> list[str]:
        if isinstance(node, ast.Assign):
            return self._assigned(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            old = ast.Name(node.target.id, ast.Load())
            return [f"{node.target.id} = {self._binary(node, old, node.op, node.value)};"]
        if isinstance(node, ast.Return):
            return [f"return {self._value(node.value)};" if node.value is not None else "return;"]
        if isinstance(node, ast.If):
            rest = ["} else {", *self._body(node.orelse)] if node.orelse else []
            return [f"if ({self._condition(node.test)}) {{", *self._body(node.body), *rest, "}"]
        if isinstance(node, ast.For) and not node.orelse and isinstance(node.target, ast.Name):
            return self._counted(node, node.target.id)
        if isinstance(node, ast.While) and not node.orelse:
            return [f"while ({self._condition(node.test)}) {{", *self._body(node.body), "}"]
        if isinstance(node, ast.Break | ast.Continue):
            return ["break;" if isinstance(node, ast.Break) else "continue;"]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return [f"{self._value(node.value)};"]
        return self._refuse(node)

    def _assigned(self, node: ast.Assign) -> list[str]:
        target = node.targets[0]
        if len(node.targets) > 1:  # a = b = value
            names = [one.id if isinstance(one, ast.Name) else self._refuse(node) for one in node.targets]
            return [f"{' = '.join(names)} = {self._value(node.value)};"]
        if not isinstance(target, ast.Tuple):
            return [self._put(target, self._value(node.value))]
        # All of the right side is worked out before any of the left side changes.
        if isinstance(node.value, ast.Tuple):
            if len(node.value.elts) != len(target.elts):
                self._refuse(node)
            made = [self._made() for _ in target.elts]
            values = [self._value(one) for one in node.value.elts]
            first = ", ".join(f"{one} = {value}" for one, value in zip(made, values, strict=True))
        else:
            whole = self._made()
            first = f"{whole} = py_parts({self._value(node.value)}, {len(target.elts)})"
            made = [f"{whole}[{place}]" for place in range(len(target.elts))]
        return [f"const {first};", *(self._put(one, value) for one, value in zip(target.elts, made, strict=True))]

    def _put(self, target: ast.expr, value: str) -> str:
        if isinstance(target, ast.Name):
            return f"{target.id} = {value};"
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice | ast.Tuple):
            return f"py_put({self._value(target.value)}, {self._value(target.slice)}, {value});"
        return self._refuse(target)

    def _counted(self, node: ast.For, name: str) -> list[str]:
        """A loop over a range, which is worked out once and whose counter the body cannot change."""
        called = node.iter
        if not isinstance(called, ast.Call) or not (self._is_builtin(called.func, "range")
                and 1 <= len(called.args) <= 2 and not called.keywords):  # fmt: skip
            self._refuse(node.iter)
        at, end = self._made(), self._made()
        first, last = ("0", self._value(called.args[0])) if len(called.args) == 1 else map(self._value, called.args)
        return [f"for (let {at} = {first}, {end} = {last}; {at} < {end}; {at} += 1) {{", f"  {name} = {at};",
                *self._body(node.body), "}"]  # fmt: skip

    # Values and conditions.

    def _value(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Name):
            return self._named(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node, node.left, node.op, node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return f"(-{self._number(node.operand)})"
        if isinstance(node, ast.Compare | ast.BoolOp) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._boolean(node)
        if isinstance(node, ast.IfExp):
            return f"({self._condition(node.test)} ? {self._value(node.body)} : {self._value(node.orelse)})"
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice | ast.Tuple):
            return f"py_at({self._value(node.value)}, {self._value(node.slice)})"
        if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(one, ast.Starred) for one in node.elts):
            return f"[{', '.join(map(self._value, node.elts))}]"
        if isinstance(node, ast.Call):
            return self._called(node)
        return self._refuse(node)

    def _number(self, node: ast.expr) -> str:
        """A value that is no list: with these, operators do something else in JavaScript."""
        listed = isinstance(node, ast.Name) and (
            node.id in self.lists
            or node.id not in self.own and isinstance(self.function.__globals__.get(node.id), tuple)
        )  # fmt: skip
        return self._refuse(node) if listed or _makes_list(node) else self._value(node)

    def _constant(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float):
            return self._refuse(node)
        return number(node.value)

    def _named(self, node: ast.Name) -> str:
        if node.id in self.arguments or node.id in self.own:
            return node.id
        value = self.function.__globals__.get(node.id)
        if not isinstance(value, int | float | tuple):
            self._refuse(node)
        self.writing.constant(node.id, value)
        return node.id

    def _binary(self, node: ast.AST, left: ast.expr, how: ast.operator, right: ast.expr) -> str:
        if isinstance(how, ast.Mult) and isinstance(left, ast.List) and len(left.elts) == 1:
            return f"py_many({self._constant(left.elts[0])}, {self._value(right)})"
        a, b = self._number(left), self._number(right)
        if type(how) in OPERATORS:
            return f"({a} {OPERATORS[type(how)]} {b})"
        return f"{DIVISIONS[type(how)]}({a}, {b})" if type(how) in DIVISIONS else self._refuse(node)

    def _condition(self, node: ast.expr) -> str:
        """What Python takes as true: a number other than zero too, but nothing else than numbers."""
        if isinstance(node, ast.Compare):
            return self._boolean(node)
        if isinstance(node, ast.BoolOp):
            joint = " && " if isinstance(node.op, ast.And) else " || "
            return f"({joint.join(map(self._condition, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self._condition(node.operand)}"
        return f"py_true({self._number(node)})"

    def _boolean(self, node: ast.expr) -> str:
        """A comparison, or several of them: as a value `a or b` is one of its parts, so that these must be true or
        false themselves.
        """
        if isinstance(node, ast.BoolOp):
            joint = " && " if isinstance(node.op, ast.And) else " || "
            return f"({joint.join(map(self._boolean, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self._condition(node.operand)}"
        if not isinstance(node, ast.Compare):
            return self._refuse(node)
        if any(not isinstance(one, ast.Name | ast.Constant) for one in node.comparators[:-1]):
            self._refuse(node)  # what stands between two comparisons is worked out once
        if any(type(how) not in COMPARED for how in node.ops):
            self._refuse(node)
        values = [self._number(one) for one in (node.left, *node.comparators)]
        told = [f"{a} {COMPARED[type(how)]} {b}" for a, how, b in zip(values, node.ops, values[1:], strict=False)]
        return f"({' && '.join(told)})"

    def _is_builtin(self, node: ast.expr, *names: str) -> TypeGuard[ast.Name]:
        return (isinstance(node, ast.Name) and node.id in names and node.id not in self.own
                and node.id not in self.arguments and node.id not in self.function.__globals__)  # fmt: skip

    def _called(self, node: ast.Call) -> str:
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
            self._refuse(node)
        given = [self._value(one) for one in node.args]
        if self._is_builtin(node.func, "max", "min") and len(given) > 1:
            text, called = given[0], node.func.id
            for one in given[1:]:
                text = f"py_{called}({text}, {one})"
            return text
        if self._is_builtin(node.func, "len", "abs", "int") and len(given) == 1:
            name = node.func.id
            return f"{given[0]}.length" if name == "len" else f"{'Math.abs' if name == 'abs' else 'py_int'}({given[0]})"
        if not isinstance(node.func, ast.Name) or node.func.id in self.own or node.func.id in self.arguments:
            self._refuse(node)
        function = self.function.__globals__.get(node.func.id)
        if not isinstance(function, FunctionType) or function.__name__ != node.func.id:
            self._refuse(node)
        wanted, free = function.__code__.co_argcount, len(function.__defaults__ or ())
        if not wanted - free <= len(given) <= wanted:
            self._refuse(node)
        self.writing.want(function)
        return f"{node.func.id}({', '.join(given)})"
