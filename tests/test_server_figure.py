"""The figure of a server: parts in their places, widths by rate, colours by utilisation, up to 72 GPUs."""

from __future__ import annotations

import re

import pytest

from offload import evaluate, load_plan, plots
from offload.documents import load_topology, shipped_topologies
from offload.errors import PlotError
from offload.plots import style
from offload.plots.places import places
from offload.topology.resources import directions, widest
from tests.figures import assert_clear, bars, compiled, line, written
from tests.rack import write_racks

DRIVES = "examples/llama-3-70b-from-two-drives.yaml"
DESKTOP = "examples/llama-3.1-70b-desktop.yaml"
EIGHT = "examples/eight-gpus-read-one-socket.yaml"


def test_a_server_of_too_many_parts_is_refused(tmp_path):
    some = "switches: {s0..399: {kind: socket}}\nmemories:\n" \
           "  dram0..399: {kind: dram, at: s0..399, capacity: 64 GB, rate: 80 GB/s}\n" \
           "  hbm0: {kind: hbm, rate: 1 TB/s}\n" \
           "processors: {gpu0: {kind: gpu, memory: hbm0}}\nlinks: {pcie0: {between: [s0, hbm0], rate: 25 GB/s}}\n"
    (tmp_path / "many.yaml").write_text(some)
    with pytest.raises(PlotError, match="has 802 memories, switches and processors, more than the 800 that are drawn"):
        plots.server(load_topology(tmp_path / "many.yaml"))


@pytest.mark.few
@pytest.mark.parametrize("name", shipped_topologies())
def test_every_shipped_server_is_drawn_whole(name):
    topology = load_topology(name)
    axes = plots.server(topology)
    figure = axes.get_figure()
    assert_clear(figure)
    place = places(topology, 162)
    assert set(place.nodes) == {*topology.memories, *topology.switches}
    boxes = {id(node): node for node in place.nodes.values()}.values()
    for number, one in enumerate(boxes):
        assert 0 <= one.x - one.wide / 2 and one.x + one.wide / 2 <= 162 + 1e-9
        assert 0 < one.bottom < one.top < place.high
        for other in list(boxes)[:number]:
            apart = abs(one.x - other.x) >= (one.wide + other.wide) / 2 - 1e-9 or abs(one.y - other.y) >= (
                one.high + other.high) / 2 - 1e-9  # fmt: skip
            assert apart, f"{one.name} stands on {other.name}"
    shown = {one.get_label() for one in axes.get_lines()}
    for link, _ in place.links:
        rows = [link.name] if link.half_duplex else [row for row, _, _ in directions(link)]
        assert set(rows) <= shown, f"{link.name} is drawn, both ways"
    alone = {name for node in boxes for name in node.names[1:]}
    missing = {link.name for link in topology.links.values()} - {link.name for link, _ in place.links}
    assert all({topology.links[one].a, topology.links[one].b} & alone for one in missing), "another stands for it"
    said = " ".join(written(figure)).split("Without room")[0]
    for one in topology.processors.values():
        assert one.name in said or re.search(rf"{one.name.rstrip('0123456789')}\d+\.\.\d+", said), one.name


@pytest.mark.parametrize("name", ["dgx-h100", "mi300x-8gpu", "desktop-4090"])
def test_parts_stand_in_their_places(name):
    topology = load_topology(name)
    nodes = places(topology, 162).nodes
    for memory in topology.memories.values():
        if memory.at is not None:
            assert nodes[memory.name].bottom == pytest.approx(nodes[memory.at].top), "host memory is upon its socket"
    for link in topology.links.values():
        a, b = nodes[link.a], nodes[link.b]
        if {a.kind, b.kind} in ({"switch", "gpu"}, {"socket", "gpu"}, {"socket", "switch"}):
            upper, lower = (a, b) if a.kind == "socket" or b.kind == "gpu" else (b, a)
            assert upper.y > lower.y
            assert upper.x - upper.wide / 2 <= lower.x <= upper.x + upper.wide / 2, "below what it hangs on"
    gpus = [node for node in nodes.values() if node.kind == "gpu"]
    assert len({node.y for node in gpus}) == 1 and len({node.wide for node in gpus}) == 1


def test_width_is_the_root_of_the_rate():
    topology = load_topology("dgx-h100")
    axes = plots.server(topology)
    widths = {one.get_label(): one.get_linewidth() for one in axes.get_lines()}
    nvlink, pcie = widths["nvlink0.nvswitch0"], widths["pcie0.hbm0"]
    rates = [widest(topology.links[name].forward) for name in ("nvlink0", "pcie0")]
    assert nvlink / pcie == pytest.approx((rates[0] / rates[1]) ** 0.5)
    assert line(axes, "m2.socket0").get_linestyle() != "-" and "rate not known" in written(axes.get_figure())
    legend = {text.get_text(): handle for text, handle in
              zip(axes.get_legend().get_texts(), axes.get_legend().legend_handles, strict=True)}  # fmt: skip
    assert legend["450 GB/s each way"].get_linewidth() == pytest.approx(nvlink)


def test_colour_is_the_utilisation():
    from matplotlib.colors import to_hex

    plan, topology = load_plan(EIGHT)
    study = evaluate(topology, plan)
    axes = plots.server(topology, study=study)
    share = {row.name: row.share for row in study.resources}
    legend = {text.get_text(): to_hex(handle.get_facecolor()) for text, handle in
              zip(axes.get_legend().get_texts(), axes.get_legend().legend_handles, strict=True)
              if text.get_text().startswith("busy")}  # fmt: skip
    dark = [style.luminance(legend[f"busy {part} %"]) for part in (0, 25, 50, 75, 100)]
    assert dark == sorted(dark, reverse=True) and len(set(dark)) == 5, "ever darker"
    busy = line(axes, "upi0.socket1")
    assert share["upi0.socket1"] == pytest.approx(1, abs=1e-3) and to_hex(busy.get_color()) == legend["busy 100 %"]
    assert to_hex(line(axes, "nvlink0.nvswitch0").get_color()) == legend["busy 0 %"]
    assert style.luminance(line(axes, "pcie0.hbm0").get_color()) < style.luminance(legend["busy 0 %"])
    bound = {row.name for row in study.resources if row.binding}
    edges = {one.get_label() for one in axes.patches if one.get_linewidth() > 2 and one.get_label()}
    assert bound == {"dram0"} and {text for text in edges if text.startswith("dram0")}
    assert "upi0.socket1 is busy for 100 % of a step" in axes.get_figure().get_label()


def test_what_binds_has_a_border():
    step, study = compiled(DRIVES)
    axes = plots.server(step.topology, study=study)
    bound = {row.name for row in study.resources if row.binding}
    assert bound == {"m2.socket0"}
    assert line(axes, "binds: m2.socket0").get_linewidth() > line(axes, "m2.socket0").get_linewidth()


@pytest.mark.few
@pytest.mark.parametrize(("sockets", "each"), [(36, 2), (8, 9), (1, 72), (72, 1), (2, 1)])
def test_servers_of_up_to_72_gpus(sockets, each, tmp_path):
    topology = load_topology(write_racks(tmp_path, sockets, each))
    axes = plots.server(topology)
    assert_clear(axes.get_figure())
    said = written(axes.get_figure())
    if sockets * each == 72:
        assert "gpu0..71" in said and "hbm0..71, 186 GB each" in said and "c2c0..71" in said
    assert len(bars(axes, "gpu0")) == 1 and len(bars(axes, f"gpu{sockets * each - 1}")) == 1


def test_a_server_without_sockets(tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text("""title: Two memories and a link
memories:
  dram0: {kind: dram, capacity: 64 GB, rate: {peak: 50 GB/s, source: made up}}
  hbm0: {kind: hbm, capacity: 24 GB, rate: {peak: 900 GB/s, source: made up}}
processors: {gpu0: {kind: gpu, memory: hbm0, source: made up}}
links: {pcie0: {between: [dram0, hbm0], pcie: 4 x16, source: made up}}
""", encoding="utf-8")  # fmt: skip
    topology = load_topology(path)
    nodes = places(topology, 162).nodes
    assert nodes["dram0"].y > nodes["hbm0"].y and nodes["dram0"].x == pytest.approx(nodes["hbm0"].x)
    assert_clear(plots.server(topology).get_figure())
