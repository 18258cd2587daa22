"""The DGX servers: figures, ways through eight GPUs on two sockets, shared uplinks, and one memory for GPU and CPU."""

from __future__ import annotations

import pytest

from offload.bounds import floor, load_bound
from offload.compiler import compile_step
from offload.documents import load_topology, parse_document
from offload.documents.shipped import shipped_folder
from offload.documents.topology_file import read_topology
from offload.errors import PlanError, RouteError
from offload.plan import Transfer
from offload.topology import Route, Topology
from offload.words import plan_from_words

GPUS = range(8)


@pytest.fixture(scope="module")
def server() -> Topology:
    return load_topology("dgx-h100")


@pytest.fixture(scope="module")
def spark() -> Topology:
    return load_topology("dgx-spark")


def socket(gpu: int) -> int:
    return gpu // 4


def loads(route: Route) -> dict[str, float]:
    """Expected load of each resource for a byte, over all stages."""
    found: dict[str, float] = {}
    for stage in route.stages:
        for resource, _, expected in stage.uses:
            found[resource] = found.get(resource, 0.0) + expected
    return found


# DGX H100: figures


def test_figures_of_the_h100(server: Topology) -> None:
    assert len(server.processors) == 10 and len(server.memories) == 13
    for gpu in GPUS:
        hbm, processor = server.memories[f"hbm{gpu}"], server.processors[f"gpu{gpu}"]
        assert hbm.capacity == 81559 * 2**20 and round(hbm.capacity / 2**30, 1) == 79.6
        assert hbm.cache == 50 * 2**20
        # The bus: 5120 bit x 2 x 2619 MHz, within a thousandth of the data sheet's 3.35 TB/s.
        assert hbm.rate.peak == pytest.approx(5120 / 8 * 2 * 2619e6, rel=1e-4)
        assert hbm.rate.peak == pytest.approx(3350e9, rel=1e-3)
        assert hbm.rate.sustained["copy"].value == 2570e9
        assert processor.memory == f"hbm{gpu}" and processor.peer_to_peer and processor.direct_storage
        assert {form: rate.rated for form, rate in processor.flops.items()} == {
            "bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12,
        }  # fmt: skip
        assert server.resources[f"gpu{gpu}.flops"].peak is None  # a data sheet certifies nothing


def test_rates_of_the_links(server: Topology) -> None:
    for gpu in GPUS:
        for port in (f"nvlink{gpu}.nvswitch0", f"nvlink{gpu}.hbm{gpu}"):
            assert server.resources[port].peak == 450e9
        for link in (f"pcie{gpu}.hbm{gpu}", f"up{gpu}.sw{gpu}", f"slot{gpu}.nic{gpu}"):
            assert server.resources[link].peak == pytest.approx(32e9 * 16 * 128 / 130 / 8)
        assert server.resources[f"pcie{gpu}.hbm{gpu}"].sustained_at("pinned").value == 56.2e9
    assert server.resources["upi0.socket1"].peak == 4 * 16e9 * 24 / 8
    for number in (0, 1):
        dram = server.resources[f"dram{number}"]
        assert dram.peak == 8 * 4400e6 * 8 and dram.sustained_at("pinned").value == 225e9
        # Four Gen4 drives: no more than their lanes carry, and four shares of what the vendor gives for all eight.
        assert server.resources[f"nvme{number}.socket{number}"].peak == pytest.approx(4 * 7.877e9, rel=1e-4)
        assert server.resources[f"ssd{number}.read"].sustained_at("").value * 2 == 50e9
        assert server.resources[f"ssd{number}.write"].sustained_at("").value * 2 == 25e9
        assert not server.resources[f"ssd{number}.read"].assumed
        assert server.memories[f"ssd{number}"].count == 4


def test_gaps_are_told(server: Topology) -> None:
    told = "\n".join(server.assumptions)
    assert "boot0.read: rate unknown" in told and "m2.socket0: rate unknown" in told
    assert "contradiction" not in told and "assumed equal" not in told
    text = (shipped_folder() / "dgx-h100.yaml").read_text(encoding="utf-8")
    assert "inferred" in text and "not confirmed" in text


# DGX H100: ways


def test_every_pair_of_gpus_stays_on_nvswitch(server: Topology) -> None:
    for one in GPUS:
        for other in GPUS:
            if one == other:
                continue
            route = server.route(f"hbm{one}", f"hbm{other}")
            assert len(route.stages) == 1
            assert loads(route) == {
                f"hbm{one}": 1.0, f"nvlink{one}.nvswitch0": 1.0, f"nvlink{other}.hbm{other}": 1.0, f"hbm{other}": 1.0,
            }  # fmt: skip


def test_host_memory_near_and_far(server: Topology) -> None:
    for gpu in GPUS:
        near, far = socket(gpu), 1 - socket(gpu)
        ports = {f"up{gpu}.sw{gpu}": 1.0, f"pcie{gpu}.hbm{gpu}": 1.0, f"pcie{gpu}_both": 1.0, f"hbm{gpu}": 1.0}
        assert loads(server.route(f"dram{near}", f"hbm{gpu}")) == {f"dram{near}": 1.0} | ports
        # From the far socket through UPI, past the near socket's DRAM.
        assert loads(server.route(f"dram{far}", f"hbm{gpu}")) == {f"dram{far}": 1.0, f"upi0.socket{near}": 1.0} | ports
        back = loads(server.route(f"hbm{gpu}", f"dram{far}"))
        assert f"upi0.socket{far}" in back and f"dram{near}" not in back


def test_a_cpu_reads_the_far_sockets_memory(server: Topology) -> None:
    assert loads(server.read_route("dram1", "cpu0")) == {"dram1": 1.0, "upi0.socket0": 1.0}
    assert set(loads(server.read_route("dram0", "cpu0"))) == {"dram0", "cpu0.reads"}


def test_drives_reach_a_gpu_directly_or_by_way_of_dram(server: Topology) -> None:
    direct = server.route("ssd0", "hbm2")
    assert len(direct.stages) == 1
    assert [name for name in loads(direct) if name.startswith(("dram", "upi"))] == []
    assert {"ssd0.read", "nvme0.socket0", "up2.sw2", "pcie2.hbm2"} <= set(loads(direct))
    # A bounce buffer is written and read: two bytes at the DRAM for one that arrives.
    bounced = server.route("ssd0", "hbm2", via=("dram0",))
    assert [(stage.source, stage.destination) for stage in bounced.stages] == [("ssd0", "dram0"), ("dram0", "hbm2")]
    assert loads(bounced)["dram0"] == 2.0
    assert "upi0.socket1" in loads(server.route("ssd0", "hbm7"))
    assert server.route("hbm2", "ssd0").stages[0].destination == "ssd0"


def test_drives_bounce_without_direct_storage() -> None:
    found = edited("direct_storage: true", "direct_storage: false")
    assert [stage.destination for stage in found.route("ssd1", "hbm6").stages] == ["dram1", "hbm6"]


def test_without_nvswitch_gpus_meet_over_pcie() -> None:
    """What the switch spares: the two uplinks, and UPI between the sockets."""
    text = (shipped_folder() / "dgx-h100.yaml").read_text(encoding="utf-8")
    start, end = text.index("  nvlink0..7:"), text.index("  pcie0..7:")
    found = parsed(text[:start] + text[end:])
    route = loads(found.route("hbm0", "hbm7"))
    assert {"pcie0.sw0", "up0.socket0", "upi0.socket1", "up7.sw7", "pcie7.hbm7"} <= set(route)


def test_nothing_leads_out_over_the_network_cards(server: Topology) -> None:
    for number in range(10):
        assert "hbm0" in server.reachable(f"nic{number}")
    for source in server.memories:
        for destination in server.memories:
            if source != destination:
                names = set(loads(server.route(source, destination)))
                assert not [name for name in names if name.startswith("slot")]


def test_a_drive_is_moved_first(server: Topology) -> None:
    with pytest.raises(RouteError, match="drive"):
        server.read_route("ssd0", "gpu0")


# DGX H100: what is shared


def parsed(text: str) -> Topology:
    return read_topology(parse_document(text, "dgx.yaml"), name="dgx")


def edited(old: str, new: str) -> Topology:
    text = (shipped_folder() / "dgx-h100.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    return parsed(text.replace(old, new))


def pull(topology: Topology, *pairs: tuple[str, str], size: int = 56 * 10**9) -> float:
    """The load bound where each of `pairs` (memory, GPU memory) moves `size` bytes at once [s]."""
    peaks = {name: resource.peak for name, resource in topology.resources.items() if resource.peak is not None}
    uses = [loads(topology.route(source, destination)) for source, destination in pairs]
    known = [{name: use for name, use in one.items() if name in peaks} for one in uses]
    return load_bound(peaks, [(size, one) for one in known]).seconds


def test_gpus_of_their_own_switch_do_not_share_an_uplink(server: Topology) -> None:
    assert pull(server, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(pull(server, ("dram0", "hbm0")))


def test_two_gpus_under_one_switch_halve() -> None:
    """Boards that pair GPUs, as the head of the file says them."""
    text = (shipped_folder() / "dgx-h100.yaml").read_text(encoding="utf-8")
    start, end = text.index("  pcie0..7:"), text.index("  up0..3:")
    links = ""
    for n in range(4):
        link = text[start:end].replace("pcie0..7:", f"pcie{2 * n}..{2 * n + 1}:")
        links += link.replace("[sw0..7, hbm0..7]", f"[sw{n}, hbm{2 * n}..{2 * n + 1}]")
    paired = parsed(text[:start] + links + text[end:])
    one = pull(paired, ("dram0", "hbm0"))
    assert one == pytest.approx(56e9 / paired.resources["up0.sw0"].peak)
    assert pull(paired, ("dram0", "hbm0"), ("dram0", "hbm1")) == pytest.approx(2 * one)
    assert pull(paired, ("dram0", "hbm0"), ("dram0", "hbm2")) == pytest.approx(one)
    # Between the two, bytes turn round at NVSwitch and leave the uplink alone.
    assert not [name for name in loads(paired.route("hbm0", "hbm1")) if name.startswith(("up", "pcie"))]


def test_eight_gpus_are_bound_by_what_they_share(server: Topology) -> None:
    """Buffers of one socket: all 448 GB leave one DRAM. Buffers of both: the ports are next. All far: UPI."""
    everyone = pull(server, *(("dram0", f"hbm{gpu}") for gpu in GPUS))
    assert everyone == pytest.approx(8 * 56e9 / 281.6e9)
    own = pull(server, *((f"dram{socket(gpu)}", f"hbm{gpu}") for gpu in GPUS))
    assert own == pytest.approx(56e9 / server.resources["up0.sw0"].peak)
    far = pull(server, *(("dram1", f"hbm{gpu}") for gpu in range(4)))
    assert far == pytest.approx(4 * 56e9 / 192e9)


def test_drives_are_bound_by_their_lanes(server: Topology) -> None:
    assert pull(server, ("ssd0", "hbm0")) == pytest.approx(56e9 / server.resources["nvme0.socket0"].peak)
    # Both sets for one GPU: its own link is next.
    both = pull(server, ("ssd0", "hbm0"), ("ssd1", "hbm0"))
    assert both == pytest.approx(2 * 56e9 / server.resources["pcie0.hbm0"].peak)


# DGX Spark


def test_one_memory_for_both(spark: Topology) -> None:
    memory = spark.memories["unified0"]
    assert memory.capacity == 119 * 2**30
    assert spark.processors_of("unified0") == ["cpu0", "gpu0"]
    resource = spark.resources["unified0"]
    assert resource.peak == 8533e6 * 4 * 8 == pytest.approx(273e9, rel=1e-3)
    assert resource.sustained_at("read").value == 230e9
    assert loads(spark.read_route("unified0", "gpu0")) == {"unified0": 1.0}
    assert loads(spark.read_route("unified0", "cpu0")) == {"unified0": 1.0, "cpu0.reads": 1.0}
    with pytest.raises(RouteError, match="nothing moves"):
        spark.route("unified0", "unified0")
    told = "\n".join(spark.assumptions)
    assert "cpu0.flops: bf16 rate unknown" in told and "ssd0.write: rate unknown" in told


def test_the_sparks_drive(spark: Topology) -> None:
    route = spark.route("ssd0", "unified0")
    assert len(route.stages) == 1
    assert loads(route) == {"ssd0.read": 1.0, "m2.soc0": 1.0, "unified0": 1.0}


@pytest.mark.parametrize("compute", [None, "gpu0", "cpu0"])
def test_a_step_on_the_spark_moves_nothing(compute: str | None) -> None:
    plan, server = plan_from_words("llama-3.1-70b:q8_0", "dgx-spark", compute=compute)
    assert not [task for block in plan.blocks for task in block.tasks if isinstance(task, Transfer)]
    step = compile_step(server, plan)
    # 72.73 GB of layers, 1.116 of the head and 1.342 of KV cache, less what the caches hold.
    assert floor(step).seconds == pytest.approx((72.73 + 1.116 + 1.342 - 0.1) / 273.06, rel=2e-3)
    assert floor(step, "value").seconds == pytest.approx(75.19 / (123 if compute == "cpu0" else 230), rel=2e-3)


def test_the_spark_has_no_other_memory_to_place_layers_in() -> None:
    with pytest.raises(PlanError, match="one memory"):
        plan_from_words("llama-3.1-70b:q8_0", "dgx-spark", gpu_layers=10)
