"""Files that the docs show are read as they stand, and every example runs."""

import re
from pathlib import Path

import pytest

from offload.cli import main
from offload.documents import load_plan, load_topology, plan_shape, topology_shape
from offload.documents.shapes import Shape

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)


def test_every_file_on_the_page_is_read(tmp_path):
    assert len(BLOCKS) == 3
    for number, text in enumerate(BLOCKS):
        path = tmp_path / f"shown{number}.yaml"
        path.write_text(text, encoding="utf-8")
        if "memories:" in text:
            assert load_topology(path).route("ssd0", "hbm0").stages
        else:
            plan, topology = load_plan(path)
            assert plan.blocks and topology.name == "desktop-4090"


def keys():
    for module in (plan_shape, topology_shape):
        for shape in vars(module).values():
            if isinstance(shape, type) and issubclass(shape, Shape) and shape is not Shape:
                for name, field in shape.model_fields.items():
                    key = field.alias or name
                    if key not in ("$schema", "unknown", "source"):
                        yield pytest.param(key, id=f"{shape.__name__}.{key}")


@pytest.mark.parametrize("key", list(keys()))
def test_every_key_is_on_the_page(key):
    assert re.search(rf"\b{re.escape(key)}\b", PAGE), "say what it means and what it defaults to"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_runs(path, capsys):
    assert main(["step", str(path)]) == 0
    assert "Floor" in capsys.readouterr().out


def test_the_page_shows_the_example_by_hand():
    shown = next(block for block in BLOCKS if "fetch:" in block)
    real = (ROOT / "examples" / "by-hand.yaml").read_text(encoding="utf-8")
    assert all(line in real for line in shown.splitlines())
