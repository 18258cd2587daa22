"""`offload compare` end to end: what it prints, its data, its exit status, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload.documents import shipped_topologies
from tests.commands import ROOT, run

PLAN = "examples/llama-3.1-70b-desktop.yaml"


def data(*arguments: str, status: int = 0):
    done = run("compare", *arguments, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_shipped_server_is_listed():
    done = run("compare", PLAN, "--all", COLUMNS="160")
    assert done.returncode == 0
    for name in shipped_topologies():
        assert name in done.stdout
    assert "aws-p3-16xlarge: does not fit: hbm0 lacks 5.6 GB" in done.stdout
    assert "hbm0 is unified0" in done.stdout and "What is open" in done.stdout
    found = data("llama-3.2-1b:q8_0", "--all")
    assert {one["server"] for one in found["entries"]} == {*shipped_topologies()}, "of a model in words too"


def test_the_same_as_step_says():
    found = data(PLAN, "--on", "desktop-4090,gh200")
    step = json.loads(run("step", PLAN, "-t", "gh200", "--json").stdout)
    entry = next(one for one in found["entries"] if one["server"] == "gh200")
    assert entry["rank"] == 1 and entry["expected"]["value"] == step["overlapped"]["seconds"]
    assert entry["floor"] == step["floor"]["seconds"]


def test_the_order_of_servers_does_not_matter():
    names = ["desktop-4090", "gh200", "dgx-spark", "aws-p3-16xlarge"]
    found, again = data(PLAN, "--on", ",".join(names)), data(PLAN, "--on", ",".join(reversed(names)))
    assert found == again
    assert [one["rank"] for one in found["entries"]] == [1, 2, 3, None]


def test_a_model_in_words():
    done = run("compare", "llama-3.1-8b:bf16", "--on", "dgx-h100,desktop-4090", "--batch", "4")
    assert done.returncode == 0 and "batch 4" in done.stdout and "of several GPUs the first" in done.stderr
    refused = data("llama-3.1-8b:bf16", "--on", "desktop-4090,dgx-h100", "--compute", "gpu3")
    assert refused["entries"][1]["state"] == "cannot be laid out" and "gpu3" in refused["entries"][1]["why"]


def test_plans_on_one_server():
    found = data(PLAN, "examples/kv-on-the-host.yaml", "--on", "desktop-4090")
    (change,) = found["changes"]
    assert change["from"] == PLAN and change["binding"][0] and change["changed"]
    row = change["changed"][0]
    assert row["difference"] == pytest.approx(row["after"] - row["before"])
    done = run("compare", PLAN, "examples/kv-on-the-host.yaml", "--on", "desktop-4090")
    assert "From llama-3.1-70b-desktop to kv-on-the-host" in done.stdout and "before and after" in done.stdout


def test_a_plans_own_server_without_on():
    found = data(PLAN, "examples/three-tiers.yaml")
    assert {one["server"] for one in found["entries"]} == {"desktop-4090"}


def test_nothing_fits():
    found = data("llama-3.1-70b:bf16", "--on", "gcp-n1-t4-flexgen", "--gpu-layers", "79", status=1)
    assert found["entries"][0]["state"] == "does not fit" and found["entries"][0]["memory"][0]["missing"] >= 0
    assert "Nothing fits" in run("compare", "llama-3.1-70b:bf16", "--on", "gcp-n1-t4-flexgen", "--gpu-layers",
                                 "79").stdout  # fmt: skip


def test_settings_are_in_the_plans_own_names():
    plain = data(PLAN, "--on", "dgx-spark,gh200")
    changed = data(PLAN, "--on", "dgx-spark,gh200", "--set", "workload.batch=4", "--set",
                   "placement.weights={hbm0: 20 layers, dram0: rest}")  # fmt: skip
    for one, other in zip(plain["entries"], changed["entries"], strict=True):
        assert one["tokens_per_step"] == 1 and other["tokens_per_step"] == 4


def test_meters(tmp_path: Path):
    path = tmp_path / "meters.yaml"
    path.write_text("meters:\n  money: {per_hour: 12 USD}\n")
    found = data(PLAN, "--on", "gh200,desktop-4090", "--meters", str(path), "--meter", "energy: 350 W", "--by", "money")
    assert [one["name"] for one in found["meters"]] == ["money", "energy"] and found["unit"] == "USD/token"
    entry = found["entries"][0]
    assert entry["meters"][0]["per_step"]["value"] == pytest.approx(12 / 3600 * entry["expected"]["value"])
    done = run("compare", PLAN, "--on", "gh200", "--meter", "wear: 100 TB written to ssd0")
    assert "an estimate from your coefficients" in done.stdout and "never" in done.stdout


@pytest.mark.parametrize("words, said", [
    ((PLAN, "--on", "gh20"), 'no topology "gh20"'),
    ((PLAN, "--on", "gh200,gh200"), "given twice"),
    ((PLAN, "--on", "gh200,,dgx-h100"), "missing"),
    ((PLAN, PLAN), "given twice"),
    ((PLAN, "--on", "gh200", "--all"), "not allowed with"),
    ((PLAN, "--by", "speed"), "nothing to rank by"),
    ((PLAN, "--meter", "energy 3 W"), "--meter: "),
    ((PLAN, "--meters", "no-such.yaml"), "no such file"),
    ((PLAN, "--gpu-layers", "3"), "already says"),
    (("llama-3.1-8b:q8_0",), "on which servers"),
    (("lama-3.1-8b:q8_0", "--all"), "lama-3.1-8b"),
    (("no-such.yaml", "--all"), "no such file"),
    ((PLAN, "--all", "--set", "workload.bach=3"), 'Did you mean "batch"'),
    ((PLAN, "--meter", "a: 1 W", "--meter", "a: 2 W"), "two meters"),
])  # fmt: skip
def test_refused(words, said):
    done = run("compare", *words)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_every_key_is_documented():
    text = (ROOT / "docs" / "comparing.md").read_text()
    found = data(PLAN, "examples/three-tiers.yaml", "--on", "desktop-4090,aws-p3-16xlarge,gh200,dgx-h100",
                 "--meter", "wear: 1 TB written to ssd0", "--meter", "energy: 3 W")  # fmt: skip

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if not key.startswith(("hbm", "dram", "ssd", "local")):
                    yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert not [key for key in dict.fromkeys(keys(found)) if f"`{key}`" not in text]


def test_narrow_screens():
    done = run("compare", PLAN, "--on", "gh200,desktop-4090,aws-p3-16xlarge", COLUMNS="60")
    assert done.returncode == 0 and max(len(line) for line in done.stdout.splitlines()) <= 60
