"""What users believe of links, memories and overlap, and what is so: small servers whose answers are worked by hand.

The numbers are those of a list of such beliefs; `test_user_cases_listed` has the tests of the others.
"""

from __future__ import annotations

import pytest

from offload.bounds import floor
from offload.compiler import compile_step
from offload.documents import load_plan, load_topology
from offload.schedules import schedule, serial
from offload.sensitivity import missing
from offload.step import loads

SERVER = """\
switches: {socket0: {kind: socket}}
memories:
  hbm0..1: {kind: hbm, capacity: 24 GB, rate: {peak: 1000 GB/s, sustained: 1000 GB/s}}
  dram0: {kind: dram, at: socket0, capacity: 64 GB, rate: {peak: 50 GB/s, sustained: 50 GB/s}}
  ssd0: {kind: nvme, capacity: 1 TB, read: {peak: 14 GB/s, sustained: 14 GB/s}, write: unknown}
processors:
  gpu0..1: {kind: gpu, memory: hbm0..1, flops: {fp16: 100 TFLOP/s, bf16: 100 TFLOP/s}}
  cpu0: {kind: cpu, memory: dram0, flops: {fp16: unknown, bf16: unknown}, reads: {sustained: 50 GB/s}}
links:
  pcie0..1: {between: [socket0, hbm0..1], rate: {peak: 25 GB/s, sustained: 25 GB/s}}
  m2: {between: [ssd0, socket0], rate: {peak: 14 GB/s, sustained: 14 GB/s}}
"""
NVLINK = "  nv0: {between: [hbm0, hbm1], rate: {peak: 300 GB/s, sustained: 300 GB/s}}\n"


def step(folder, plan, more=""):
    (folder / "server.yaml").write_text(SERVER + more)
    (folder / "plan.yaml").write_text("topology: ./server.yaml\n" + plan)
    read, topology = load_plan(folder / "plan.yaml")
    return compile_step(topology, read)


def test_d3_the_bridge_of_two_3090_carries_56_each_way():
    links = load_topology("ws-2x3090-nvlink").links
    link = next(one for name, one in links.items() if name.startswith(("nvlink", "bridge", "nv")))
    assert link.forward.peak == link.backward.peak == pytest.approx(56.25e9, rel=0.01)


STREAMED = """\
tensors: {w: {bytes: 1 GB, home: dram0}}
repeat: 4
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, reads: w, after: fetch}
"""


def test_d9_memory_rates_of_gpus_in_turn_do_not_add_up(tmp_path):
    found = step(tmp_path, """\
tensors: {a: {bytes: 10 GB, home: hbm0}, b: {bytes: 10 GB, home: hbm1}}
tasks: {first: {compute: gpu0, reads: a}, second: {compute: gpu1, reads: b}}
""")
    assert floor(found).seconds == pytest.approx(0.02)


def test_d11_nvlink_does_not_help_what_comes_from_the_host(tmp_path):
    without, beside = step(tmp_path, STREAMED), step(tmp_path, STREAMED, NVLINK)
    assert floor(without).seconds == floor(beside).seconds == pytest.approx(4 / 25)
    assert schedule(without).seconds == schedule(beside).seconds


def test_d12_prefetch_hides_no_more_than_there_is_compute(tmp_path):
    found = step(tmp_path, STREAMED)
    assert schedule(found).seconds == pytest.approx(4 / 25) and serial(found).seconds == pytest.approx(4 / 25 + 4e-3)
    assert serial(found).seconds - schedule(found).seconds <= 4e-3 * (1 + 1e-9)


def test_d13_equal_bytes_beside_unequal_layers_are_not_hidden(tmp_path):
    """Fetches of 40 ms: beside layers of 40 ms each all are hidden, beside light and heavy ones in turn not."""
    plan = """\
tensors: {{w: {{bytes: 1 GB, home: dram0, shared: true}}}}
repeat: 2
tasks:
  fetch: {{move: w, to: hbm0}}
  light: {{compute: gpu0, time: {} ms, after: fetch}}
  fetch2: {{move: w, to: hbm0}}
  heavy: {{compute: gpu0, time: {} ms, after: fetch2}}
overlap: {{buffers: 1}}
"""
    even, uneven = (schedule(step(tmp_path, plan.format(*times))).seconds for times in ((40, 40), (1, 79)))
    assert uneven > even * 1.2


def test_d14_experts_that_run_on_the_cpu_do_not_cross_the_link(tmp_path):
    found = step(tmp_path, "tensors: {w: {bytes: 1 GB, home: dram0}}\ntasks: {run: {compute: cpu0, reads: w}}\n")
    assert floor(found).bottleneck == ("dram0",) and floor(found).seconds == pytest.approx(0.02)
    assert not any(amount for name, amount in loads(found, least=False).items() if name.startswith("pcie"))


def test_d16_a_tenth_of_the_layers_on_a_slow_tier_costs_two_thirds(tmp_path):
    """0.9 + 0.1 x 20 = 2.9 of the time of all on the GPU: times add, speeds do not."""
    plan = """\
tensors: {a: {bytes: 9 GB, home: hbm0}, b: {bytes: 1 GB, home: dram0}}
tasks: {near: {compute: gpu0, reads: a}, far: {compute: cpu0, reads: b}}
"""
    assert 0.01 / floor(step(tmp_path, plan)).seconds == pytest.approx(1 / 2.9)


def test_d27_two_hops_write_and_read_host_memory_and_the_slower_one_binds(tmp_path):
    found = step(tmp_path, """\
tensors: {w: {bytes: 14 GB, home: ssd0}}
tasks: {fetch: {move: w, to: hbm0, via: dram0}}
""")
    assert floor(found).seconds == pytest.approx(1.0) and schedule(found, ends=False).cold_seconds >= 1.0
    assert loads(found, least=False)["dram0"] == pytest.approx(28e9)


def test_d29_all_weights_of_a_mixture_need_room_though_few_are_read(tmp_path):
    plan = """\
model: {name: qwen3-30b-a3b, weights: bf16}
workload: {phase: decode, batch: 1, context: 128}
placement: {weights: {hbm0: rest}, reserve: 0 GB}
"""
    found = step(tmp_path, plan)
    assert missing(found)["hbm0"] > 30e9
    assert loads(found, least=False)["hbm0"] < 8e9


def test_d6_links_that_share_an_uplink_do_not_add_up(tmp_path):
    """Two GPUs at 25 GB/s each behind one link of 25 GB/s: 2 GB take 80 ms, and with a link each 40."""
    both = """\
tensors: {a: {bytes: 1 GB, home: dram0}, b: {bytes: 1 GB, home: dram0}}
tasks: {one: {move: a, to: hbm0}, two: {move: b, to: hbm1}}
"""
    apart = step(tmp_path, both)
    (tmp_path / "server.yaml").write_text(
        SERVER.replace("{socket0: {kind: socket}}", "{socket0: {kind: socket}, plx: {kind: pcie_switch}}")
        .replace("[socket0, hbm0..1]", "[plx, hbm0..1]")
        + "  up: {between: [socket0, plx], rate: {peak: 25 GB/s, sustained: 25 GB/s}}\n"
    )
    plan, topology = load_plan(tmp_path / "plan.yaml")
    shared = compile_step(topology, plan)
    assert floor(apart).seconds == pytest.approx(0.04)
    assert floor(shared).seconds == schedule(shared).seconds == pytest.approx(0.08)
    assert floor(shared).bottleneck == ("up.plx",)


def test_d8_the_far_half_of_what_a_socket_reads_comes_over_the_link_between_them(tmp_path):
    """10 GB, half on each socket: 0.1 s from the near memory, and 0.5 s over 10 GB/s from the far one."""
    (tmp_path / "server.yaml").write_text("""\
switches: {socket0..1: {kind: socket}}
memories:
  dram0..1: {kind: dram, at: socket0..1, capacity: 64 GB, rate: {peak: 50 GB/s, sustained: 50 GB/s}}
processors:
  cpu0..1: {kind: cpu, memory: dram0..1, flops: {fp16: unknown}, reads: {sustained: 50 GB/s}}
links:
  upi: {between: [socket0, socket1], rate: {peak: 10 GB/s, sustained: 10 GB/s}}
""")
    times, halves = [], "dram0: 50%, dram1: 50%"
    for home, who in (("dram0: 100%", "cpu0"), (halves, "cpu0"), (halves, "cpu0..1")):
        (tmp_path / "plan.yaml").write_text(
            f"topology: ./server.yaml\ntensors: {{w: {{bytes: 10 GB, home: {{{home}}}}}}}\n"
            f"tasks: {{run: {{compute: {who}, reads: w}}}}\n")  # fmt: skip
        plan, topology = load_plan(tmp_path / "plan.yaml")
        times.append(floor(compile_step(topology, plan)).seconds)
    assert times == pytest.approx([0.2, 0.5, 0.1])


def test_d10_lanes_do_not_matter_for_layers_that_stay_where_they_are(tmp_path):
    """A hidden state of 16 kB between GPUs in turn, beside 10 GB of weights on each."""
    plan = """\
tensors: {a: {bytes: 10 GB, home: hbm0}, b: {bytes: 10 GB, home: hbm1}, h: {bytes: 16 kB, home: hbm0}}
tasks:
  first: {compute: gpu0, reads: a, writes: h}
  over: {move: h, to: hbm1, after: first}
  second: {compute: gpu1, reads: [b, h], after: over}
"""
    wide = step(tmp_path, plan)
    (tmp_path / "server.yaml").write_text(SERVER.replace("25 GB/s", "3 GB/s"))
    plan_read, topology = load_plan(tmp_path / "plan.yaml")
    narrow = compile_step(topology, plan_read)
    assert floor(narrow).seconds == pytest.approx(floor(wide).seconds, rel=1e-3)
    assert serial(narrow).seconds == pytest.approx(serial(wide).seconds, rel=1e-3)


def test_d15_the_share_of_active_parameters_is_not_that_of_the_bytes(tmp_path):
    """3.3 of 30.5 billion parameters are active, and 8 of 128 experts: a token reads more than either share of the
    file, as attention, norms and the head are read whole, and keys and values too.
    """
    plan = """\
model: {name: qwen3-30b-a3b, weights: bf16}
workload: {phase: decode, batch: 1, context: 8192}
placement: {weights: {dram0: rest}, compute: cpu0, kv: dram0, reserve: 0 GB}
"""
    found = step(tmp_path, plan)
    read, held = loads(found, least=False)["dram0"], sum(found.occupied["dram0"].values())
    assert 8 / 128 * held < 3.3 / 30.5 * held < read < 0.2 * held


def test_d23_both_directions_of_a_link_read_and_write_one_memory(tmp_path):
    """1 GB up and 1 GB down: 40 ms on the full-duplex link, and 2 GB on host memory."""
    found = step(tmp_path, """\
tensors: {down: {bytes: 1 GB, home: dram0}, up: {bytes: 1 GB, home: hbm0}}
tasks: {to: {move: down, to: hbm0}, back: {move: up, to: dram0}}
""")
    assert floor(found).seconds == pytest.approx(0.04)
    assert loads(found, least=False)["dram0"] == pytest.approx(2e9)
    (tmp_path / "server.yaml").write_text(SERVER.replace("50 GB/s", "30 GB/s"))
    plan, topology = load_plan(tmp_path / "plan.yaml")
    slow = compile_step(topology, plan)
    assert floor(slow).seconds == pytest.approx(2 / 30) and floor(slow).bottleneck == ("dram0",)


def test_d28_processors_of_one_memory_share_its_rate(tmp_path):
    (tmp_path / "server.yaml").write_text("""\
memories: {unified0: {kind: unified, capacity: 128 GB, rate: {peak: 270 GB/s, sustained: 270 GB/s}}}
processors:
  gpu0: {kind: gpu, memory: unified0, flops: {fp16: unknown}, reads: {sustained: 270 GB/s}}
  cpu0: {kind: cpu, memory: unified0, flops: {fp16: unknown}, reads: {sustained: 270 GB/s}}
""")
    (tmp_path / "plan.yaml").write_text("""\
topology: ./server.yaml
tensors: {a: {bytes: 27 GB, home: unified0}, b: {bytes: 27 GB, home: unified0}}
tasks: {one: {compute: gpu0, reads: a}, two: {compute: cpu0, reads: b}}
""")
    plan, topology = load_plan(tmp_path / "plan.yaml")
    assert floor(compile_step(topology, plan)).seconds == pytest.approx(0.2)


WAYS = """\
topology: ./server.yaml
tensors: {w: {bytes: 1 GB, home: dram0}}
tasks:
  layer: {compute: cpu0, reads: w, flops: %d GFLOP, format: fp16}
---
topology: ./server.yaml
tensors: {w: {bytes: 1 GB, home: dram0}}
tasks:
  fetch: {move: w, to: hbm0}
  layer: {compute: gpu0, reads: w, flops: %d GFLOP, format: fp16, after: fetch}
"""


@pytest.mark.parametrize("batch, where_it_is, streamed", [(1, 20e-3, 40e-3), (39, 39e-3, 40e-3), (64, 64e-3, 40e-3)])
def test_d30_the_way_that_is_faster_with_one_request_is_slower_with_many(tmp_path, batch, where_it_is, streamed):
    """Half a billion weights of two bytes: a GFLOP for each request, of which the CPU does 1000 in a second."""
    (tmp_path / "server.yaml").write_text(SERVER.replace("flops: {fp16: unknown", "flops: {fp16: {peak: 1 TFLOP/s}"))
    found = []
    for text in (WAYS % (batch, batch)).split("---\n"):
        (tmp_path / "plan.yaml").write_text(text)
        read, topology = load_plan(tmp_path / "plan.yaml")
        found.append(compile_step(topology, read))
    here, there = found
    assert floor(here).seconds == pytest.approx(where_it_is) and floor(there).seconds == pytest.approx(streamed)
    assert floor(here).bottleneck == (("dram0",) if batch == 1 else ("cpu0.flops",))
    assert floor(there).bottleneck == ("pcie0.hbm0",)


def test_d32_many_small_copies_take_their_latency_each(tmp_path):
    """1,000 copies of 1 kB over 25 GB/s: 40 us of bytes, and 10 ms of 10 us each."""
    (tmp_path / "server.yaml").write_text(SERVER.replace(
        "rate: {peak: 25 GB/s, sustained: 25 GB/s}", "rate: {peak: 25 GB/s, sustained: 25 GB/s}, latency: 10 us"))
    (tmp_path / "plan.yaml").write_text("""\
topology: ./server.yaml
tensors: {h: {bytes: 1 kB, home: dram0}}
repeat: 1000
tasks:
  fetch: {move: h, to: hbm0, after: previous.layer}
  layer: {compute: gpu0, reads: h, after: fetch}
""")
    plan, topology = load_plan(tmp_path / "plan.yaml")
    found = compile_step(topology, plan)
    assert schedule(found).seconds == pytest.approx(0.01, rel=0.01)
