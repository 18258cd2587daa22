"""One's own servers beside shipped ones: the list of those that are named, with what they cost; `check` by name."""

from __future__ import annotations

import json

from offload.cli import main

OFFER = """title: An offer
source: an offer (memory)
price: {{value: {price} USD, source: a quote (memory)}}
power: {{value: 0.9..1.2 kW, source: a supply (memory)}}
switches: {{socket0: {{kind: socket}}}}
memories:
  hbm0: {{use: {gpu}}}
  dram0: {{kind: dram, at: socket0, capacity: 512 GiB, rate: 4800 MT/s x 8}}
processors: {{gpu0: {{use: {gpu}, memory: hbm0}}, cpu0: {{kind: cpu, memory: dram0}}}}
links: {{pcie0: {{use: pcie-5-x16, between: [socket0, hbm0]}}}}
"""


def test_offers_are_listed_with_their_prices_as_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for name, gpu, price in (("a", "h100-sxm", 31000), ("b", "h200-sxm", 38000)):
        (tmp_path / f"{name}.yaml").write_text(OFFER.format(gpu=gpu, price=price), encoding="utf-8")
    names = [str(tmp_path / "a.yaml"), "gh200", str(tmp_path / "b.yaml"), "gh200"]
    assert main(["topology", "list", *names]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[2:5]] == ["a", "gh200", "b"]
    at = lines.index(["Price", "and", "power"])
    assert lines[at + 3 : at + 6] == [["a", "31,000", "USD", "1,050", "W", "(900", "to", "1,200)"], ["gh200", "-", "-"],
                                      ["b", "38,000", "USD", "1,050", "W", "(900", "to", "1,200)"]]  # fmt: skip
    assert main(["topology", "list", "--json", *names]) == 0
    rows = json.loads(capsys.readouterr().out)["topologies"]
    assert [(row["name"], row["price"] and row["price"]["value"]) for row in rows] == [
        ("a", 31000), ("gh200", None), ("b", 38000)]  # fmt: skip


def test_a_list_of_what_is_not_there_says_so(capsys):
    assert main(["topology", "list", "dgx-h10"]) == 2
    assert "dgx-h100" in capsys.readouterr().err


def test_check_takes_a_shipped_name_and_a_file_of_that_name_first(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "gh200"]) == 0
    assert "gh200.yaml: topology, sound" in capsys.readouterr().out
    (tmp_path / "gh200").write_text("memories: 3\n", encoding="utf-8")
    assert main(["check", "gh200"]) == 2
    assert "gh200.yaml" not in capsys.readouterr().out
