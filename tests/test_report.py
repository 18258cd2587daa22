"""The report of a study, as text and as data. The studies here are put together by hand from round figures."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from offload import __version__, report
from offload.answer import refusal_to_json, to_json
from offload.bounds import Floor, Term
from offload.schedules import Schedule, Serial
from offload.sensitivity import Change, NextBottleneck
from offload.study import MemoryRow, Moved, ResourceRow, Study, Throughput

# A token reads 20 GB from host memory at 100 GB/s, then 10 GB from the GPU's at 1000 GB/s: 200 ms + 10 ms.
CHAIN = (Term("dram0", 20e9, "B", 100e9, 0.200), Term("hbm0", 10e9, "B", 1000e9, 0.010))


def chain_study() -> Study:
    return Study(
        title="a model, 8 layers on the GPU and 16 on the CPU",
        topology="box",
        topology_title="A box with one GPU",
        workload={"phase": "decode", "batch": 1, "context": 4096},
        moves=(
            Moved("layer weights", 20e9, "dram0", None, "layer", "cpu0", 16),
            Moved("layer weights", 10e9, "hbm0", None, "layer", "gpu0", 8),
            Moved("hidden row", 16384.0, "dram0", "hbm0", "step", "gpu0"),
        ),
        floor=Floor(0.210, "cycle", ("dram0", "hbm0"), 0.200, 0.210, 0.2101, CHAIN),
        floor_sustained=Floor(
            0.270, "cycle", ("dram0", "hbm0"), 0.260, 0.270, 0.2701,
            (Term("dram0", 20e9, "B", 80e9, 0.250), Term("hbm0", 10e9, "B", 500e9, 0.020)),
        ),
        serial=Serial(0.271, 0.272),
        overlapped=Schedule(0.2705, 0.25, 0.3, 0.2706, "2 buffers", 0.25, 0.3),
        hideable_share=0.5,
        hideable_among_transfers=0.0,
        tokens_per_s=Throughput(1 / 0.210, 1 / 0.2705, 1 / 0.271, 1 / 0.2705),
        resources=(
            ResourceRow("dram0", "memory", 20e9, 20e9, "B", 100e9, 80e9, False, 0.2, 0.25, 0.924, True),
            ResourceRow("hbm0", "memory", 10e9, 10e9, "B", 1000e9, 500e9, True, 0.01, 0.02, 0.074, True),
            ResourceRow(
                "gpu0.flops", "processor", 1.5e10, 1.5e10, "FLOP", None, 1.2e14, True, None, 1.25e-4, 5e-4, False
            ),
        ),
        memory=(
            MemoryRow("hbm0", 24 * 2**30, 12_000_000_000, {"layer weights": 10_000_000_000, "KV cache": 2_000_000_000}),
            MemoryRow("dram0", 64 * 2**30, 20_000_000_000, {"layer weights": 20_000_000_000}),
        ),
        next_bottleneck=NextBottleneck("hbm0", 21.0),
        changes=(
            Change("dram0 with twice the rate", 0.1455, 1.859, 0.11),
            Change("pcie0 with twice the rate", 0.2704, 1.0004, 0.21),
            Change("1 buffer", 0.541, 0.5, 0.21),
        ),
        not_modelled=("kernel launches",),
        assumptions=("hbm0: sustained is 50 % of peak",),
        first_limit="hbm0 fills first: room for 9,000 more positions",
    )  # fmt: skip


def printed(study: Study, width: int = 100, write=report.write_text) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    write(study, console)
    return console.file.getvalue()


def test_sections_stand_in_order():
    text = printed(chain_study())
    headings = [
        "a model, 8 layers on the GPU and 16 on the CPU",
        "on A box with one GPU (box)",
        "workload: decode, batch 1, context 4096",
        "Read or moved each step",
        "Resources",
        "Floor: no schedule on this machine is faster",
        "The same at sustained rates",
        "Times",
        "What overlap can hide",
        "Memory",
        "What would change it",
        "Not modelled",
        "Assumptions",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_a_chain_is_printed_as_formula_numbers_and_result():
    text = printed(chain_study())
    assert "A token passes these one after another: times add." in text
    start = text.index("T >= sum along the chain of load / peak\n")
    lines = [" ".join(line.split()) for line in text[start:].splitlines()[1:4]]
    assert lines == ["dram0 20 GB / 100 GB/s = 200 ms", "+ hbm0 10 GB / 1 TB/s = 10 ms", "= 210 ms"]
    assert "The load floor alone, for any order of the tasks: 200 ms." in text
    assert "Were dram0 no limit, hbm0 would bind and the floor be 21 x as fast" in text


def test_a_load_floor_names_its_ties_and_what_caches_spare():
    tied = (Term("a", 10e9, "B", 1e9, 10.0), Term("b", 20e9, "B", 2e9, 10.0))
    text = printed(replace(chain_study(), floor=Floor(10.0, "load", ("a", "b"), 10.0, 0.0, 10.0, tied)))
    assert "These bind together" in text
    assert "T >= max over resources of load / peak" in text
    assert "chain through one token alone" not in text
    spared = Floor(9.0, "load", ("a",), 9.0, 8.0, 9.5, (Term("a", 10e9, "B", 1e9, 9.0),),
                   (Term("a", 1e9, "B", 1e9, 1.0),))  # fmt: skip
    lines = [" ".join(line.split()) for line in printed(replace(chain_study(), floor=spared)).splitlines()]
    start = lines.index("a 10 GB / 1 GB/s = 10 s")
    assert lines[start + 1 : start + 3] == ["- 1 s that caches may spare", "= 9 s"]
    assert "The chain through one token alone: 8 s." in lines


def test_steps_in_flight_and_pure_latency_are_terms():
    terms = (Term("a", 10e9, "B", 1e9, 10.0), Term("latency", 0.0, "", 0.0, 2.0))
    text = printed(replace(chain_study(), floor=Floor(3.0, "cycle", ("a",), 2.5, 3.0, 12.0, terms, (), 4)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    start = lines.index("T >= sum along the chain of load / peak, over 4 steps in flight")
    assert lines[start + 1 : start + 5] == ["a 10 GB / 1 GB/s = 10 s", "+ latency 2 s", "/ 4 steps in flight", "= 3 s"]


def test_a_step_without_any_peak_rate_proves_nothing():
    study = chain_study()
    unproved = replace(
        study,
        floor=Floor(0.0, "load", (), 0.0, 0.0, 0.0),
        tokens_per_s=replace(study.tokens_per_s, floor=None),
    )
    assert "Nothing is proved" in printed(unproved)
    assert to_json(unproved)["tokens_per_s"]["floor"] is None


def test_assumed_and_missing_figures_are_marked():
    text = printed(chain_study())
    assert "500 GB/s*" in text and "120 TFLOP/s*" in text and "80 GB/s*" not in text
    assert "* assumed" in text
    assert 'peak "-": not known' in text
    known = replace(chain_study(), resources=chain_study().resources[:1])
    assert "assumed: a usual share" not in printed(known) and "not known" not in printed(known)


def test_least_loads_below_expected_ones_are_said():
    study = chain_study()
    row = replace(study.resources[0], least=15e9)
    assert "The floor counts 15 GB on dram0" in printed(replace(study, resources=(row,)))
    assert "The floor counts" not in printed(study)


def test_expected_time_has_its_interval_and_serial_its_warning():
    text = printed(chain_study())
    assert "Expected between 250 ms and 300 ms (3.33 to 4 tokens/s)" in text
    assert "no upper bound on a real machine" in text
    assert "per sequence" not in text
    study = chain_study()
    single = replace(study, overlapped=replace(study.overlapped, low=0.2705, high=0.2705))
    assert "No interval" in printed(single)
    many = replace(study, tokens_per_s=Throughput(40.0, 30.0, 20.0, 7.5))
    assert "Expected per sequence: 7.5 tokens/s." in printed(many)


def test_overlap_says_both_kinds_and_the_cases_without_one():
    text = printed(chain_study())
    assert "Behind compute: 50 % of the time" in text
    assert "Among transfers: nothing" in text
    none = printed(replace(chain_study(), hideable_share=None, hideable_among_transfers=None))
    assert "Nothing is transferred, so there is nothing to hide" in none
    disk = printed(replace(chain_study(), hideable_among_transfers=0.25))
    assert "25 % of the sum of their times" in disk


def test_memory_has_both_units_parts_and_what_breaks_first():
    text = printed(chain_study())
    assert "12.0 GB (11.2 GiB)" in text and "25.8 GB (24.0 GiB)" in text and "KV cache" in text
    assert "\nhbm0 fills first: room for 9,000 more positions.\n" in text
    assert "DOES NOT FIT" not in text and "MISSING" not in text


def test_what_does_not_fit_is_loud_and_has_no_times_when_refused():
    study = chain_study()
    full = replace(study, memory=(replace(study.memory[0], missing=3_000_000_000), study.memory[1]))
    for write in (report.write_text, report.write_refusal):
        text = printed(full, write=write)
        assert text.index("DOES NOT FIT: hbm0 lacks 3.00 GB (2.79 GiB).") < text.index("Read or moved")
        assert "MISSING 3.00 GB" in text
    refusal = printed(full, write=report.write_refusal)
    assert "--ignore-capacity" in refusal
    assert "tokens/s" not in refusal and "Floor" not in refusal
    answer = refusal_to_json(full)
    assert answer["fits"] is False and "floor" not in answer and "tokens_per_s" not in answer
    assert answer["memory"][0]["missing"] == 3_000_000_000


def test_changes_say_what_buys_nothing_and_what_is_slower():
    text = printed(chain_study())
    lines = text[text.index("What would change it") :].splitlines()
    gains = {line.split("  ")[0].strip(): line for line in lines}
    assert "1.86 x" in gains["dram0 with twice the rate"]
    assert gains["pcie0 with twice the rate"].rstrip().endswith("buys nothing")
    assert "0.5 x, slower" in gains["1 buffer"]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_console(width):
    text = printed(chain_study(), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.isascii() and "\x1b" not in text
    squeezed = "".join(text.split())
    for figure in ("20GB", "200ms", "120TFLOP/s*", "25.8GB(24.0GiB)", "1.86x"):
        assert figure in squeezed


def test_names_from_files_reach_the_terminal_harmless():
    study = replace(chain_study(), title="[bold]x[/bold] \x1b[31mred :smile:", topology_title="Gerät")
    text = printed(study)
    assert "[bold]x[/bold] ?[31mred :smile:" in text and "Gerät" in text


def test_text_is_the_same_every_time():
    assert printed(chain_study()) == printed(chain_study())


def test_json_has_the_promised_keys():
    answer = json.loads(json.dumps(to_json(chain_study()), allow_nan=False))
    promised = {
        "format": None,
        "offload_version": None,
        "title": None,
        "topology": None,
        "workload": None,
        "moves": {"what", "bytes", "from", "to", "every", "runs_on"},
        "floor": {"seconds", "rule", "bottleneck", "load_seconds", "cycle_seconds", "cold_seconds"},
        "floor_sustained": {"seconds", "cold_seconds"},
        "serial": {"seconds", "cold_seconds"},
        "overlapped": {"seconds", "low", "high", "cold_seconds", "policy"},
        "hideable_share": None,
        "hideable_among_transfers": None,
        "tokens_per_s": {"floor", "overlapped", "serial", "per_sequence"},
        "resources": {
            "name", "kind", "load", "unit", "peak", "sustained", "assumed",
            "peak_seconds", "sustained_seconds", "share",
        },
        "memory": {"name", "capacity", "used", "parts"},
        "next_bottleneck": {"name", "gain"},
        "changes": {"what", "seconds", "gain"},
        "not_modelled": None,
        "assumptions": None,
    }  # fmt: skip
    for key, inner in promised.items():
        value = answer[key]
        if inner:
            assert inner <= set(value[0] if isinstance(value, list) else value), key
    assert answer["format"] == 1 and answer["offload_version"] == __version__ and answer["fits"] is True
    assert answer["moves"][2] == {
        "what": "hidden row", "bytes": 16384.0, "from": "dram0", "to": "hbm0",
        "every": "step", "count": 1, "runs_on": "gpu0",
    }  # fmt: skip
    assert answer["memory"][0]["parts"] == {"layer weights": 10_000_000_000, "KV cache": 2_000_000_000}
    assert answer["floor"]["bottleneck"] == ["dram0", "hbm0"]


def test_json_holds_no_number_that_json_lacks():
    numpy = pytest.importorskip("numpy")
    study = replace(
        chain_study(),
        hideable_share=float("nan"),
        next_bottleneck=None,
        serial=Serial(numpy.float64(1.5), float("inf")),
        workload={"batch": numpy.int64(4), "list": (1, 2)},
    )
    answer = json.loads(json.dumps(to_json(study), allow_nan=False))
    assert answer["hideable_share"] is None and answer["next_bottleneck"] is None
    assert answer["serial"] == {"seconds": 1.5, "cold_seconds": None}
    assert answer["workload"] == {"batch": 4, "list": [1, 2]}
