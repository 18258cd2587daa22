"""The order of the modules: each imports only from those before it; and habits that no module may have."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "offload"
ORDER = (
    "errors",
    "displayed",
    "given",
    "tracing",
    "spans",
    "replay",
    "files",
    "ranges",
    "tracing",
    "spans",
    "replay",
    "units",
    "amplification",
    "collectives",
    "topology",
    "plan",
    "rounds",
    "copies",
    "breakeven",
    "exchanges",
    "models",
    "meters",
    "designs",
    "readers",
    "documents",
    "step",
    "row_uses",
    "brought",
    "rows",
    "compiler",
    "bounds",
    "gradients",
    "prefix",
    "pareto",
    "fluid_engine",
    "fluid",
    "lp",
    "multipath",
    "multipath_arcs",
    "tiers",
    "rerouting",
    "uncounted",
    "techniques",
    "events",
    "pipelines",
    "dependencies",
    "forms",
    "overlap",
    "messages",
    "lanes",
    "flows",
    "two_lanes",
    "laps",
    "prefetching",
    "chains",
    "unrolling",
    "schedules",
    "intervals",
    "fluid_step",
    "trace",
    "requests",
    "prompts",
    "capacity",
    "crossover",
    "undone",
    "sensitivity",
    "kv_tiers",
    "training",
    "passed",
    "study",
    "measured",
    "measured_requests",
    "need_rates",
    "need_axis",
    "need_designs",
    "need_pairs",
    "need",
    "placing",
    "curves",
    "rooflines",
    "drive_counts",
    "explain",
    "validation",
    "rankings",
    "scores",
    "memory_behind",
    "memory_requests",
    "memory",
    "memory_curve",
    "words",
    "sweeps",
    "sweeps",
    "answer",
    "costs",
    "describe",
    "topology_diff",
    "comparison",
    "importing",
    "measure",
    "why",
    "memory_server",
    "describe_model",
    "doubts",
    "checking",
    "printing",
    "graph_text",
    "replaying",
    "report_passed",
    "report_request",
    "report_crossover",
    "report_kv",
    "report_training",
    "report",
    "report_measured",
    "report_routes",
    "report_explain",
    "report_costs",
    "report_topology",
    "report_diff",
    "report_compare",
    "report_import",
    "report_measure",
    "report_replay",
    "report_why",
    "report_model",
    "report_memory",
    "report_checked",
    "report_validation",
    "report_need",
    "report_sweep",
    "report_place",
    "report_reduced",
    "products",
    "plots",
    "page",
    "displays",
    "verbs",
    "cli",
    "__main__",
)
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
KERNELS = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
           for folder in ("sweeps", "measure") for path in (PACKAGE / folder).glob("kernels*.py")}  # fmt: skip
HEAVY = {"numba", "matplotlib", "scipy", "pandas"}


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(tree: ast.AST) -> set[str]:
    """The modules of the package that a module imports, anywhere in it; a package's own are named by the package."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("offload.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            parts = (node.module or "").split(".")
            if parts == ["offload"]:
                found |= {alias.name for alias in node.names if alias.name != "__version__"}
            elif parts[0] == "offload":
                found.add(parts[1])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_keeps_to_its_layer(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "says what the idea is"
    if path == PACKAGE / "__init__.py":
        return
    own = layer(path)
    assert own in ORDER, f"give {own} its place in the order"
    allowed = set(ORDER[: ORDER.index(own) + 1])
    assert imported(tree) <= allowed, f"{own} may import only what comes before it"
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: input is refused by an OffloadError"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and own not in ("verbs", "cli", "report"):
            assert node.func.id not in ("print", "exit", "breakpoint"), f"line {node.lineno}: no printing here"
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        # What is compiled needs numba where it is defined, and is itself imported where it is needed.
        heavy = HEAVY - {"numba"} if path in KERNELS else HEAVY
        assert not {name.split(".")[0] for name in names} & heavy, f"line {node.lineno}: imported where it is needed"
        assert path in KERNELS or not set(KERNELS.values()) & set(names), f"line {node.lineno}: imported where needed"


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_kept_code_knows_of_all_that_is_compiled_into_it(path: Path):
    """A kernel takes from the package what it names in MADE_OF, with all that this takes, and nothing else."""
    module = importlib.import_module(KERNELS[path])
    named, due, left = {one.__name__ for one in getattr(module, "MADE_OF", ())}, set(), [path]
    while left:
        for node in ast.walk(ast.parse(left.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offload"):
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                found = {one for one in inside if file_of(one)} or {node.module}
                left += [file_of(one) for one in found - due]
                due |= found
    assert named == due


def file_of(name: str) -> Path | None:
    """The file of a module of the package, None of what is none."""
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def test_every_layer_exists():
    assert {layer(path) for path in MODULES} - {"__init__"} == set(ORDER)


def test_modules_stay_small():
    long = {str(p.relative_to(ROOT)): n for p in MODULES
            if (n := p.read_text(encoding="utf-8").count("\n")) > 450}
    assert not long


def test_files_that_are_shipped_hold_no_leftovers():
    """No promise for later, no path of the machine that a file was written on."""
    shipped = [*MODULES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    for folder in ("topologies", "offload/cases", "examples", "docs", "benchmarks"):
        shipped += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".yaml", ".json")]
    leftover = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError|lorem ipsum)\b|(?<![\w.])/(home|root|work|tmp)/")
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in shipped}
    found = [f"{name}: {match[0]}" for name, text in texts.items() for match in leftover.finditer(text)]
    assert not found


def test_public_names_resolve():
    import offload

    for name in offload.__all__:
        assert getattr(offload, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        _ = offload.nothing
    assert offload.floor.__name__ not in ORDER
