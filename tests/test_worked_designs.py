"""Worked examples through the designs: a plan on a small server whose figures are those of the example.

W43 five loads of a step, W44 three tiers, W45 buffers take the room of layers, W56 speculation (in
`test_phases_plans`), W65 the batch that hides streaming, W75 a decode step of 80 layers.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from offload.bounds import floor, load_seconds
from offload.capacity import layers_that_fit
from offload.compiler import compile_step
from offload.designs import Placement, Portion, Workload, plan_model
from offload.documents import load_plan
from offload.models import kv_bytes, weigh
from offload.overlap import compare_forms
from offload.readers.huggingface import model_of
from offload.schedules import schedule, serial
from offload.step import loads
from offload.topology import Link, Memory, Processor, Switch, Topology
from tests.boxes import GB, rate
from tests.weights_box import REST, blocks, compiled, server
from tests.worked.__main__ import cases_of

DATA = Path(__file__).resolve().parent / "data" / "worked_examples.yaml"
WORKED = {one["id"]: one for one in cases_of(str(DATA))}


def inputs(name):
    return WORKED[name]["inputs"]


def exactly(name, key):
    """The exact value of an example."""
    for table in (WORKED[name].get("exact", {}), WORKED[name]["expected"]):
        for part in key.split("."):
            table = table.get(part) if isinstance(table, dict) else None
        if table is not None:
            return float(Fraction(table))
    raise KeyError(key)


def test_w43_one_plan_and_what_three_forms_say_of_its_loads(tmp_path):
    """Compute 5 s, to the GPU 4, from it 1, to the drive 2, from it 3: published 5, released 7 and 9, in turn 15."""
    given = inputs("W43")
    (tmp_path / "plan.yaml").write_text(f"""\
topology: ./box.yaml
tensors:
  weights: {{bytes: {given["ctog"]} GB, home: dram0}}
  cache: {{bytes: {given["gtoc"]} GB, home: hbm0}}
  out: {{bytes: {given["ctod"]} GB, home: dram0}}
  in: {{bytes: {given["dtoc"]} GB, home: ssd0}}
tasks:
  ctog: {{move: weights, to: hbm0}}
  gtoc: {{move: cache, to: dram0}}
  ctod: {{move: out, to: ssd0}}
  dtoc: {{move: in, to: dram0}}
  comp: {{compute: gpu0, flops: {given["comp"]} TFLOP, format: bf16}}
overlap: full
""", encoding="utf-8")
    fast = "{peak: 1000000 GB/s, sustained: 1000000 GB/s}"
    one = "{peak: 1 GB/s, sustained: 1 GB/s}"
    (tmp_path / "box.yaml").write_text(f"""\
switches: {{socket0: {{kind: socket}}}}
memories:
  hbm0: {{kind: hbm, rate: {fast}}}
  dram0: {{kind: dram, at: socket0, rate: {fast}}}
  ssd0: {{kind: nvme, read: {one}, write: {one}}}
processors: {{gpu0: {{kind: gpu, memory: hbm0, flops: {{bf16: {{peak: 1 TFLOP/s, sustained: 1 TFLOP/s}}}}}}}}
links:
  pcie0: {{between: [socket0, hbm0], rate: {one}}}
  m2: {{between: [ssd0, socket0], rate: {fast}}}
""", encoding="utf-8")  # fmt: skip
    plan, topology = load_plan(tmp_path / "plan.yaml")
    step = compile_step(topology, plan)
    by_resource = load_seconds(step).resource_seconds
    named = {"comp": "gpu0.flops", "ctog": "pcie0.hbm0", "gtoc": "pcie0.socket0", "ctod": "ssd0.write",
             "dtoc": "ssd0.read"}  # fmt: skip
    times = {name: by_resource[resource] for name, resource in named.items()}
    assert times == pytest.approx(given)
    assert floor(step).seconds == schedule(step).seconds == exactly("W43", "max_of_five")
    said = {row.name: row.seconds for row in compare_forms(times).rows}
    for form, key in (("flexgen paper", "max_of_five"), ("flexgen prefill", "grouped_prefill"),
                      ("flexgen decode", "grouped_decode")):  # fmt: skip
        assert said[form] == pytest.approx(exactly("W43", key), rel=1e-12)
    assert serial(step).seconds == pytest.approx(exactly("W43", "sum"), rel=1e-12)


def test_w44_three_tiers():
    """300 GB in blocks of 4 GB: 80 in HBM, 128 in DRAM, 92 on a drive of 7 GB/s that passes DRAM twice: 92/7 s."""
    given = inputs("W44")
    topology = server(link=given["link_bw"], drive=given["nvme_bw"], dram=given["dram_bw"])
    size = 4 * GB
    hbm, dram = given["hbm_free"] // size, given["host_free"] // size
    step = compiled(topology, blocks(given["weight_bytes"] // size, size),
                    {"hbm0": Portion("layers", hbm), "dram0": Portion("layers", dram), "ssd0": REST}, compute="gpu0")
    stored = {name: sum(value for part, value in parts.items() if part == "layer weights")
              for name, parts in step.occupied.items()}  # fmt: skip
    assert [stored[name] for name in ("hbm0", "dram0", "ssd0")] == [
        exactly("W44", key) for key in ("gpu_bytes", "host_bytes", "nvme_bytes")]  # fmt: skip
    by_resource = load_seconds(step, "value").resource_seconds
    for resource, key in (("pcie0.hbm0", "link"), ("ssd0.read", "nvme"), ("dram0", "dram")):
        assert by_resource[resource] == pytest.approx(exactly("W44", f"resource_time.{key}"), rel=1e-12)
    assert floor(step).seconds == pytest.approx(exactly("W44", "T"), rel=1e-12)
    assert schedule(step).seconds == pytest.approx(exactly("W44", "T"), rel=1e-12)


def test_w45_buffers_take_the_room_of_layers():
    """32 layers where 10 fit: with 2 buffers 8 stay and 24 are streamed."""
    given = inputs("W45")
    topology = server(room=given["layers_that_fit"] * GB)
    step = compiled(topology, blocks(given["layers"], GB), {"hbm0": Portion("layers", 1), "dram0": REST},
                    compute="gpu0")  # fmt: skip
    most = next(one for one in layers_that_fit(step) if one.memory == "hbm0")
    assert most.most == exactly("W45", "resident")
    full = compiled(topology, blocks(given["layers"], GB), {"hbm0": Portion("layers", most.most), "dram0": REST},
                    compute="gpu0")  # fmt: skip
    assert full.occupied["hbm0"] == {"layer weights": 8 * GB, "buffers": given["buffers"] * GB}
    assert full.occupied["dram0"]["layer weights"] == exactly("W45", "streamed") * GB


def test_w65_the_batch_that_hides_streaming():
    """140 GB over 25 GB/s, 140 GFLOP for each sequence at 990 TFLOP/s: 39,600 take as long, whatever the size."""
    given = inputs("W65")
    count = 100
    batch = int(exactly("W65", "batch_exact"))

    def step(batch, link=given["link_bw"], scale=1):
        model = blocks(count, given["streamed_bytes"] // count // scale, 2 * given["active_params"] / count / scale)
        topology = server(link=link, flops=given["peak_flops"], hbm=1e18)
        return compiled(topology, model, {"dram0": REST}, compute="gpu0", workload=Workload(batch=batch, context=1))

    for scale in (1, 7):
        assert set(floor(step(batch, scale=scale)).bottleneck) == {"pcie0.hbm0", "gpu0.flops"}
        assert floor(step(batch - 1, scale=scale)).bottleneck == ("pcie0.hbm0",)
        assert floor(step(batch + 1, scale=scale)).bottleneck == ("gpu0.flops",)
    hidden = round(given["compute_time"] * given["peak_flops"] / (2 * given["active_params"]))  # 0.7 s of arithmetic
    wide = floor(step(hidden, link=exactly("W65", "link_bw_to_hide")))
    assert wide.seconds == pytest.approx(given["compute_time"], rel=1e-12)
    assert set(wide.bottleneck) == {"pcie0.hbm0", "gpu0.flops"}


def test_w75_a_decode_step_of_80_layers():
    """Layers of 1.7 GB whose positions keep 4,096 B, 68 GB of room: 38 stay and 42 come, 2.856 s over the link.

    A model has more than the example counts: norms among its weights, arithmetic of attention, rows of embeddings, new
    keys and values, and a head; they are taken off where figures are compared.
    """
    given = inputs("W75")
    model = model_of({
        "model_type": "llama", "num_hidden_layers": given["layers"], "hidden_size": 10_000, "intermediate_size": 23_554,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 1000,
        "tie_word_embeddings": False, "max_position_embeddings": 4096,
    }, "w75")  # fmt: skip
    weighed = weigh(model, "bf16")
    assert set(weighed.layers) == {given["layer_weight_bytes"]}
    assert kv_bytes(model, "f16") == given["kv_bytes_per_token_layer"]
    batch, context = given["batch"], given["context"]
    cache, rows = given["layers"] * batch * context * given["kv_bytes_per_token_layer"], batch * 10_000 * 2
    end = weighed.head + weighed.norm
    room = given["hbm_for_weights"] + cache + end
    topology = Topology.build(
        name="box", title="box",
        memories=[Memory("hbm0", "hbm", room, rate(given["hbm_bw"])), Memory("dram0", "dram", None, rate(1e15),
                                                                             at="socket0")],
        processors=[Processor("gpu0", "gpu", "hbm0", {"bf16": rate(given["peak_flops"])})],
        switches=[Switch("socket0")],
        links=[Link("pcie0", "socket0", "hbm0", rate(given["link_bw"]), rate(given["link_bw"]), "pcie")],
    )  # fmt: skip

    def step(layers):
        placement = Placement((("hbm0", Portion("layers", layers)), ("dram0", REST)), "gpu0", reserve=0)
        plan = plan_model(model, topology, Workload(batch=batch, context=context), placement, weights="bf16")
        return compile_step(topology, plan)

    most = next(one.most for one in layers_that_fit(step(1)) if one.memory == "hbm0")
    assert most == exactly("W75", "resident") and given["layers"] - most == exactly("W75", "streamed")
    found = step(most)
    busy = loads(found, least=False)
    assert (busy["pcie0.hbm0"] - rows) / given["link_bw"] == pytest.approx(exactly("W75", "link_time"), rel=1e-12)
    new = given["layers"] * batch * given["kv_bytes_per_token_layer"]
    hbm = busy["hbm0"] - end - new - 2 * rows + rows  # embeddings arrive
    assert hbm / given["hbm_bw"] == pytest.approx(exactly("W75", "hbm_time"), rel=1e-6)
    flops = given["layers"] * batch * 2 * (given["active_params_per_layer"] - 2 * 10_000)  # norms multiply nothing
    pairs = given["layers"] * batch * context * 4 * 48 * 128
    assert busy["gpu0.flops"] == flops + pairs + batch * 2 * 10_000 * 1000
    assert flops / given["peak_flops"] == pytest.approx(exactly("W75", "flop_time"), rel=1e-4)
    assert floor(found).bottleneck == ("pcie0.hbm0",)
    assert floor(found).seconds == pytest.approx(exactly("W75", "lower_bound"), rel=1e-5)
    alone = serial(found).seconds
    assert alone == pytest.approx(exactly("W75", "no_overlap"), rel=1e-4)
    assert batch / floor(found).seconds == pytest.approx(exactly("W75", "tokens_per_s_upper"), rel=1e-5)
    assert floor(found).seconds <= schedule(found).seconds < alone
