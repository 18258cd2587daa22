"""What lies behind the GPU: weights in host memory, slower memories for KV, formats that a server cannot compute."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from offload import cli
from offload.documents import load_topology, parse_document
from offload.documents.topology_file import read_topology
from offload.errors import ModelError
from offload.memory import answer_memory, serving_of
from offload.memory_behind import Behind, Drives, Hosting, Way, least_seconds
from offload.memory_server import format_notes, machine_of
from offload.models import catalogue
from offload.models.lengths import parse_lengths
from offload.models.ranks import layer_bytes, tensor_pieces
from offload.models.serving import alignment_bytes, power_of_two_bytes, serving_budget
from offload.topology import Topology

LLAMA = catalogue["llama-3.1-70b"]
DESKTOP = ["memory", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--requests", "4x2000"]
TEXTBOOK = ["memory", "llama-3.1-70b", "--kv-budget", "14GB", "--requests", "18x2000"]


def box(text: str) -> Topology:
    return read_topology(parse_document(text, "box.yaml"), name="box")


def data(capsys, *words: str) -> dict:
    status = cli.main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert status == (0 if answer["fits"] else 1)
    return answer


def text(capsys, *words: str) -> str:
    assert cli.main(list(words)) < 2
    return " ".join(capsys.readouterr().out.split())


def refused(capsys, *words: str) -> str:
    assert cli.main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


# --- weights in host memory ---


@pytest.mark.parametrize("name", sorted(catalogue))
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (4, 1), (4, 4)])
def test_pieces_are_the_layers(name, tp, ep):
    """Rounded up tensor by tensor, they are no less than the layer's, and by no more than a byte of each tensor."""
    model = catalogue[name]
    for pieces, layer in zip(tensor_pieces(model, "fp8", tp, ep), layer_bytes(model, "fp8", tp), strict=True):
        over = sum(pieces) - layer.on_rank(tp, ep)
        assert 0 <= over <= len(pieces) and (over == 0 or tp > 1)


def test_the_gpu_keeps_the_first_layers_and_two_buffers():
    whole = serving_of(LLAMA, "bf16", 10**12)
    hosted = serving_of(LLAMA, "bf16", 10**12, gpu_layers=30)
    each = whole.layers[0].on_rank(1, 1)
    lines = {line.what: line.bytes for line in serving_budget(hosted).tightest.lines}
    assert lines["weights of layers"] == 30 * each
    assert lines["2 buffers for weights of 50 layers in host memory"] == 2 * each
    gained = serving_budget(hosted).tightest.left - serving_budget(whole).tightest.left
    assert gained == 48 * each
    assert serving_budget(hosted).tightest.growing == serving_budget(whole).tightest.growing, "KV stays on the GPU"


def test_buffers_are_as_large_as_the_largest_layer_and_no_more_than_the_layers():
    model = catalogue["deepseek-v3"]
    layers = [layer.on_rank(1, 1) for layer in layer_bytes(model, "fp8")]
    assert len(set(layers)) > 1
    for kept, buffers, count in ((0, 3, 3), (model.layers - 1, 3, 1), (model.layers, 3, 0)):
        lines = serving_budget(serving_of(model, "fp8", 10**13, gpu_layers=kept, buffers=buffers)).tightest.lines
        found = [line.bytes for line in lines if "buffer" in line.what]
        assert found == ([count * max(layers[kept:])] if count else [])


def test_host_memory_as_a_command(capsys):
    host = data(capsys, *DESKTOP, "--gpu-layers", "30")["host"]
    sizes = [size for layer in tensor_pieces(LLAMA, "q4_k_m")[30:] for size in layer]
    lines = {line["what"]: line["bytes"] for line in host["lines"]}
    assert alignment_bytes(sizes, 4096) == 0 and lines == {"offloaded tensors": sum(sizes)}, "whole pages as they are"
    assert host["step_bytes"] == sum(sizes)
    assert host["step_seconds"] == pytest.approx(sum(sizes) / 31.507692e9, rel=1e-6)
    assert host["capacity"] == 96 * 2**30 and host["missing"] == 0 and host["total"] == sum(lines.values())
    words = text(capsys, *DESKTOP, "--gpu-layers", "30")
    assert "2 buffers for weights of 50 layers in host memory" in words
    assert "It fits:" in words and "of host memory (103 GB (96.0 GiB))" in words
    assert "Each step brings 25.6 GB of weights to the GPUs, at least 813 ms at peak rate" in words


def test_copies_powers_of_two_and_the_page_cache(capsys):
    words = ["--gpu-layers", "30", "--mmap", "--pinned", "powers", "--copies", "2", "--host-kv", "20 GB"]
    answer = data(capsys, *DESKTOP, *words)
    sizes = [size for layer in tensor_pieces(LLAMA, "q4_k_m")[30:] for size in layer]
    assert [line["bytes"] for line in answer["host"]["lines"]] == [
        sum(sizes), sum(sizes), 2 * power_of_two_bytes(sizes), sum(sizes), 20 * 10**9]  # fmt: skip
    missing = 3 * sum(sizes) + 2 * power_of_two_bytes(sizes) + 20 * 10**9 - 96 * 2**30
    assert answer["host"]["missing"] == missing > 0 and not answer["fits"]
    assert answer["requests"]["now"] == 4, "on the GPU all of them fit"
    assert "It does not fit: 4.34 GB (4.04 GiB) more than the 103 GB (96.0 GiB)" in text(capsys, *DESKTOP, *words)


def test_each_rank_has_its_part_in_host_memory():
    lengths = parse_lengths("4x2000")
    behind = Behind(hosting=Hosting(10), ways=tuple(Way("link", 1e9, (rank,)) for rank in range(4)))
    answer = answer_memory(LLAMA, "bf16", 10**11, lengths, tp=2, pp=2, behind=behind)
    pieces = [sum(layer) for layer in tensor_pieces(LLAMA, "bf16", 2)]
    assert answer.host.step_bytes == 2 * sum(pieces[10:])
    assert answer.host.step_seconds == sum(pieces[40:]) / 1e9, "the second stage has all of its layers there"


def test_no_host_memory_where_nothing_is_there():
    lengths = parse_lengths("4x2000")
    behind = Behind(host=10**12, hosting=Hosting(80))
    assert answer_memory(LLAMA, "bf16", 10**12, lengths, behind=behind).host is None
    with pytest.raises(ModelError, match="link: a rate of 0 B/s"):
        Way("link", 0.0)
    with pytest.raises(ModelError, match="pinned is"):
        Hosting(1, "sometimes")


# --- tiers ---


def test_the_least_time_is_that_of_the_slowest_thing():
    ways = (Way("a", 10.0, (0,)), Way("b", 20.0, (1,)), Way("shared", 25.0))
    assert least_seconds(ways, [100, 100]) == (10.0, "a")
    assert least_seconds(ways, [10, 190]) == (9.5, "b")
    assert least_seconds(ways[2:], [100, 100]) == (8.0, "shared")
    assert least_seconds((), [1]) == (None, "")


def test_tiers_of_a_server(capsys):
    host, drives = data(capsys, *DESKTOP, "--flops", "100 TFLOP/s")["tiers"]
    each = 2000 * 327_680
    assert (host["name"], host["capacity"], host["request_bytes"]) == ("host memory", 96 * 2**30, each)
    assert host["positions"] == 96 * 2**30 // 327_680 and host["requests"] == 96 * 2**30 // each
    assert host["fetch_seconds"] == pytest.approx(each / 31.507692e9, rel=1e-6) and host["bound"] == "pcie0.hbm0"
    assert drives["fetch_seconds"] == pytest.approx(each / 7.876923e9, rel=1e-6) and drives["bound"] == "m2.socket0"
    assert host["break_even"] == pytest.approx(each / host["recompute_seconds"]) == drives["break_even"]
    words = text(capsys, *DESKTOP, "--flops", "100 TFLOP/s")
    assert "at least 20.8 ms" in words and "Rates are taken as peaks: a fetch takes at least this long." in words
    assert "fetching may be quicker from host memory and drives" in words


def test_weights_in_host_memory_leave_less_for_kv(capsys):
    answer = data(capsys, *DESKTOP, "--gpu-layers", "30")
    assert answer["tiers"][0]["capacity"] == answer["host"]["capacity"] - answer["host"]["total"]


def test_tiers_in_words(capsys):
    words = ["--host-kv", "100GB", "--link", "25GB/s", "--nvme-kv", "2TB", "--nvme-rate", "7GB/s"]
    answer = data(capsys, *TEXTBOOK, *words)
    host, drives = answer["tiers"]
    each = 2000 * 327_680
    assert (host["requests"], host["fetch_seconds"]) == (10**11 // each, each / 25e9)
    assert (drives["requests"], drives["fetch_seconds"], drives["bound"]) == (2 * 10**12 // each, each / 7e9, "drives")
    assert host["recompute_seconds"] is host["break_even"] is None


def test_fetching_that_is_slower_than_computing(capsys):
    words = text(capsys, *TEXTBOOK, "--host-kv", "1GB", "--link", "0.5GB/s", "--flops", "400 TFLOP/s")
    assert "even at peak rate it is slower from host memory" in words
    assert "fetch of one" in text(capsys, *TEXTBOOK, "--host-kv", "1GB")
    assert "not known" in text(capsys, *TEXTBOOK, "--host-kv", "1GB")


def test_ranks_share_host_memory_and_have_a_link_each():
    lengths = parse_lengths("fixed 2000")
    alone, shared = (
        answer_memory(LLAMA, None, 14 * 10**9, lengths, tp=tp, behind=Behind(
            host_kv=10**11, ways=tuple(Way("link", 25e9, (rank,)) for rank in range(tp)), drives=Drives(
                10**12, (Way("drives", 7e9),)))).tiers
        for tp in (1, 8)
    )  # fmt: skip
    assert shared[0].kv.positions == alone[0].kv.positions, "8 KV heads over 8 ranks: the same bytes in all"
    assert shared[0].kv.fetch_seconds == pytest.approx(alone[0].kv.fetch_seconds / 8)
    assert shared[1].kv.fetch_seconds == pytest.approx(alone[1].kv.fetch_seconds), "drives are shared"
    copies = answer_memory(LLAMA, None, 14 * 10**9, lengths, tp=16, behind=Behind(host_kv=10**11)).tiers[0]
    assert copies.kv.positions == alone[0].kv.positions // 2 and copies.kv.fetch_seconds is None


def test_links_that_ranks_share():
    """Two GPUs behind one switch: its link to host memory carries both parts, each GPU's own only one."""
    server = box("""
        switches: {socket: {kind: socket}, sw: {kind: pcie_switch}}
        memories:
          h0: {kind: hbm, capacity: 80 GB, rate: 1000 GB/s}
          h1: {kind: hbm, capacity: 80 GB, rate: 1000 GB/s}
          dram: {kind: dram, at: socket, capacity: 500 GB, rate: 45 GB/s}
          ssd: {kind: nvme, capacity: 4 TB, count: 2, read: 3 GB/s}
          old: {kind: nvme, capacity: 9 TB, read: unknown}
        processors: {g0: {kind: gpu, memory: h0}, g1: {kind: gpu, memory: h1}, c: {kind: cpu, memory: dram}}
        links:
          up: {between: [socket, sw], rate: 30 GB/s}
          p0: {between: [sw, h0], rate: 25 GB/s}
          p1: {between: [sw, h1], rate: 20 GB/s}
          m2: {between: [ssd, socket], rate: 8 GB/s}
          m3: {between: [old, socket], rate: unknown}
    """)
    machine = machine_of(server, 2)
    assert least_seconds(machine.behind.ways, [10 * 10**9, 10 * 10**9]) == (pytest.approx(20 / 30), "up.sw")
    assert least_seconds(machine.behind.ways, [1, 10 * 10**9]) == (pytest.approx(0.5), "p1.h1")
    assert least_seconds(machine.behind.drives.ways, [3 * 10**9, 3 * 10**9]) == (pytest.approx(6 / 8), "m2.socket")
    assert machine.behind.drives.capacity == 8 * 10**12, "a drive without a known peak is no tier"
    assert machine.behind.host == 500 * 10**9 and machine.capacity == 80 * 10**9 and machine.link == Way("p1", 20e9)
    assert least_seconds(machine_of(server, 1).behind.ways, [10**9]) == (pytest.approx(1 / 25), "p0.h0")


def test_more_ranks_than_gpus(capsys):
    assert cli.main([*DESKTOP, "--tp", "3"]) == 2
    assert "desktop-4090 has 1 GPU, and these ranks need 3. Lower --tp" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["desktop-4090", "gh200", "dgx-h100"])
def test_a_fetch_waits_for_the_link_of_its_gpu(name):
    """To one GPU no less than its narrowest link takes at peak rate."""
    machine = machine_of(load_topology(name), 1)
    assert least_seconds(machine.behind.ways, [10**9])[0] >= 10**9 / machine.link.peak


def test_one_memory_for_gpu_and_host_is_no_tier_and_its_drive_is():
    behind = machine_of(load_topology("dgx-spark"), 1).behind
    assert behind.host is None and behind.ways == () and behind.drives.capacity == 4 * 10**12


# --- formats ---

OLD = """
memories: {h0: {kind: hbm, capacity: 24 GB, rate: 1000 GB/s}, dram: {kind: dram, rate: 40 GB/s, capacity: 64 GB}}
processors: {g0: {kind: gpu, memory: h0, flops: {bf16: 70 TFLOP/s}}, c: {kind: cpu, memory: dram}}
links: {p0: {between: [dram, h0], pcie: 4 x16}}
"""


def test_formats_that_a_gpu_lacks(capsys, tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text(OLD)
    words = ["memory", "llama-3.1-8b:fp8", "--on", str(path), "--kv-format", "fp8", "--requests", "2x2000"]
    told = [one for one in data(capsys, *words)["warnings"] if "arithmetic" in one]
    assert len(told) == 2 and "weights in fp8 would be stored so" in told[0] and "a KV cache in fp8" in told[1]
    assert all("converted to 16 bits" in one and "some engines refuse" in one for one in told)
    words = ["memory", "llama-3.1-8b:q4_k_m", "--on", str(path), "--requests", "2x2000"]
    assert not [one for one in data(capsys, *words)["warnings"] if "arithmetic" in one]


def test_which_formats_need_hardware():
    old, desktop, spark = box(OLD), load_topology("desktop-4090"), load_topology("dgx-spark")
    silent = box(OLD.replace(", flops: {bf16: 70 TFLOP/s}", ""))
    for weights, lacking in (("fp8-128x128", [old]), ("mxfp8", [old]), ("nvfp4", [old, desktop]), ("bf16", []),
                             ("mxfp4", [old, desktop]), ("int4-g128", []), (None, [])):  # fmt: skip
        for server in (old, desktop, spark, silent):
            assert bool(format_notes(server, weights, "f16")) == (server in lacking), (weights, server.name)
    assert format_notes(old, "bf16", "fp8-head") and format_notes(desktop, None, "nvfp4")


# --- what is refused ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu-layers", "81"], "has 80 layers"),
        (["--buffers", "3"], "--buffers: about weights in host memory"),
        (["--mmap", "--copies", "2"], "--mmap and --copies: about weights"),
        (["--host-kv", "20"], "--host-kv: "),
        (["--nvme-rate", "7 GB"], "--nvme-rate: "),
        (["--nvme-rate", "0 GB/s"], '--nvme-rate: "0 GB/s" is no rate at which anything comes'),
        (["--link", "0 GB/s"], '--link: "0 GB/s" is no rate'),
        (["--flops", "0 FLOP/s"], '--flops: "0 FLOP/s" is no rate'),
        (["--pinned", "maybe", "--gpu-layers", "3"], "--pinned"),
    ],
)
def test_options_that_are_refused(capsys, words, said):
    assert said in refused(capsys, *DESKTOP, *words)


def test_options_that_are_refused_for_kv_alone(capsys):
    assert "would take nothing of it" in refused(capsys, *TEXTBOOK, "--gpu-layers", "3")
    assert "--nvme-kv SIZE" in refused(capsys, *TEXTBOOK, "--nvme-rate", "7 GB/s")


def test_states_alone_make_tiers_without_positions():
    from offload.models import Cache, State
    from offload.models.architecture import Layer

    layer = Layer((), Cache("none"), State(elements=1000))
    model = replace(LLAMA, layers=2, stack=(layer, layer), name="states")
    tier = answer_memory(model, None, 80_000, parse_lengths("fixed 9"), behind=Behind(host_kv=16_000)).tiers[0]
    assert tier.kv.positions is None and tier.kv.requests == 2


# --- one memory, and links beside the memory ---


@pytest.mark.parametrize("words", [["--gpu-layers", "10"], ["--host-kv", "20 GB"], ["--host-memory", "64 GB"]])
def test_one_memory_is_not_counted_twice(capsys, words):
    error = refused(capsys, "memory", "llama-3.1-8b", "--on", "dgx-spark", "--requests", "4x2000", *words)
    assert error.startswith(f"offload: {words[0]}: GPU and host of dgx-spark work in one memory")


def test_a_given_link_leaves_the_rate_of_host_memory(capsys):
    """Beyond what the memory gives, a faster link brings nothing sooner."""
    peak = next(way.peak for way in machine_of(load_topology("desktop-4090"), 1).behind.ways if way.ranks is None)
    each = 2000 * 327_680
    for link in ("900 GB/s", "10 GB/s"):
        answer = data(capsys, *DESKTOP, "--gpu-layers", "30", "--link", link)
        rate = min(float(link.split()[0]) * 1e9, peak)
        tier = next(one for one in answer["tiers"] if one["name"] == "host memory")
        assert tier["fetch_seconds"] == pytest.approx(each / rate)
        assert answer["preemption"]["swap"] == pytest.approx(2 * each / rate)
        assert answer["preemption"]["link_rate"] == rate and answer["host"]["step_seconds"] == pytest.approx(
            answer["host"]["step_bytes"] / rate)  # fmt: skip


def test_groups_of_ranks_keep_weights_of_their_own_in_host_memory():
    """ep 8 over tp 1 is eight GPUs: each keeps the attention and its eighth of the experts, whichever tp there is."""
    model, lengths = catalogue["deepseek-v3"], parse_lengths("4x4000")
    machine = machine_of(load_topology("dgx-h100"), 8)
    found = {}
    for tp in (1, 8):
        behind = replace(machine.behind, hosting=Hosting(gpu_layers=0))
        found[tp] = answer_memory(model, "fp8", machine.capacity, lengths, tp=tp, ep=8, behind=behind)
    experts = 58 * 256 * 3 * 7168 * 2048
    for answer in found.values():
        assert answer.host.total > experts and answer.host.step_bytes > experts
    one, all_of_them = (found[tp].host for tp in (1, 8))
    assert one.step_bytes > all_of_them.step_bytes, "eight copies of the attention"
    assert one.step_seconds > all_of_them.step_seconds
    alone, together = (found[tp].tiers[0] for tp in (1, 8))
    assert 0 < alone.kv.positions < together.kv.positions, "an eighth of less, where all ranks keep the whole latent"
