"""All worked examples, and the runner itself: it compares every figure, and no case of the file is a special one."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import worked
from tests.worked import differences, load_kinds
from tests.worked.__main__ import main
from tests.worked_numbers import WORKED as CASES

ROOT = Path(__file__).resolve().parent.parent
KNOWN = [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] in load_kinds()]
WITH_RATES = [pytest.param(case, id=case["id"]) for case in CASES if "caps" in case["inputs"]
              and case["kind"] in load_kinds()]  # fmt: skip


@pytest.mark.parametrize("case", KNOWN)
def test_worked_example(case):
    assert differences(case) == []


def test_every_kind_is_known():
    assert sorted({case["kind"] for case in CASES} - set(load_kinds())) == []


def test_the_copy_here_is_whole():
    assert len(CASES) == 84 and len({case["id"] for case in CASES}) == 84


# --- the runner ---


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all figures and words in a table of answers."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from leaves(one, (*path, index))
    else:
        yield path


def changed(value: Any) -> Any:
    """A figure a thousandth off, the other word, the other truth."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        try:
            return str(Fraction(value) * Fraction(1001, 1000))
        except ValueError:
            return value + "x"
    return value * 1.001 if value else 1


def with_leaf_changed(case: Mapping[str, Any], table: str, path: tuple) -> dict[str, Any]:
    found = copy.deepcopy(dict(case))
    inside = found[table]
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = changed(inside[path[-1]])
    return found


@pytest.mark.parametrize("case", KNOWN)
def test_every_figure_is_compared(case, monkeypatch):
    answers = load_kinds()[case["kind"]](case["inputs"])
    monkeypatch.setitem(worked.KINDS, case["kind"], lambda inputs: answers)
    for table in ("expected", "exact"):
        for path in leaves(case.get(table, {})):
            wrong = differences(with_leaf_changed(case, table, path))
            assert len(wrong) == 1 and str(path[0]) in wrong[0], (table, path)
    for key in case["expected"]:
        monkeypatch.setitem(worked.KINDS, case["kind"], lambda inputs, key=key: {**answers, key: None})
        assert differences(case), key
        fewer = {name: value for name, value in answers.items() if name != key}
        monkeypatch.setitem(worked.KINDS, case["kind"], lambda inputs, fewer=fewer: fewer)
        assert f"{key}: no answer" in differences(case)


def run(tmp_path: Path, *tables: Any) -> tuple[int, list[str]]:
    names = []
    for number, table in enumerate(tables):
        path = tmp_path / f"cases{number}.yaml"
        path.write_text(table if isinstance(table, str) else yaml.safe_dump(table), encoding="utf-8")
        names.append(str(path))
    return main(names), names


RIGHT = next(case for case in CASES if case["id"] == "W01")


def test_right_answers_exit_0(tmp_path, capsys):
    assert run(tmp_path, {"cases": [RIGHT]}, {"cases": [RIGHT, RIGHT]})[0] == 0, "two files"
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == ["ok    W01 load_bound_case: single link D/B"] * 3 and out[3:] == ["3 of 3 cases pass"]


def test_a_wrong_answer_exits_1(tmp_path, capsys):
    wrong = with_leaf_changed(RIGHT, "expected", ("T",))
    assert run(tmp_path, {"cases": [RIGHT]}, {"cases": [wrong]})[0] == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("ok ") and out[1].startswith("FAIL  W01") and out[1].endswith("T: 1/2, not 0.5005")
    assert out[2] == "1 of 2 cases pass"


def test_an_unknown_kind_fails(tmp_path, capsys):
    assert run(tmp_path, {"cases": [{**RIGHT, "kind": "perpetuum_mobile"}]})[0] == 1
    assert "FAIL  W01 perpetuum_mobile: single link D/B: unknown kind: perpetuum_mobile" in capsys.readouterr().out


def test_inputs_that_make_no_sense_fail(tmp_path, capsys):
    assert run(tmp_path, {"cases": [{**RIGHT, "inputs": {"caps": {}}}, RIGHT]})[0] == 1
    told = capsys.readouterr().out.splitlines()[0]
    assert told == "FAIL  W01 load_bound_case: single link D/B: inputs has no transfers"


def wrong_inputs(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """(path, value) of what no formula is to be asked, in each place of a case's inputs."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from wrong_inputs(one, (*path, key))
        yield path, []
        yield path, 5
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from wrong_inputs(one, (*path, index))
        yield path, {"a": 1}
    elif not isinstance(value, str):
        for wrong in ("abc", float("inf"), float("nan"), {}, "1e9", 10**5000):
            yield path, wrong
        if not isinstance(value, bool):
            yield path, True
    else:
        yield path, 5
        yield path, ["a"]


def with_input(case: Mapping[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(dict(case))
    inside = found
    for key in ("inputs", *path)[:-1]:
        inside = inside[key]
    inside[("inputs", *path)[-1]] = value
    return found


@pytest.mark.few
@pytest.mark.parametrize("case", KNOWN)
def test_inputs_of_another_kind_fail_in_words(case):
    """In each place: texts, infinite numbers, truths and other containers, told with their place."""
    for path, value in islice(wrong_inputs(case["inputs"]), 300):
        told = differences(with_input(case, path, value))
        assert told and told[0].startswith("inputs"), (path, value, told)
        assert all("Error" not in one and len(one) < 700 for one in told), told
    for key in case["inputs"]:
        renamed_key = {f"{name}x" if name == key else name: one for name, one in case["inputs"].items()}
        assert f'unknown key "{key}x"' in differences({**case, "inputs": renamed_key})[0]
    assert differences({**case, "inputs": {**case["inputs"], "surplus": 1}}) and differences({**case, "inputs": {}})
    assert 'unknown key "expcted"' in differences({**case, "expcted": {}})[0]


@pytest.mark.few
@pytest.mark.parametrize("case", KNOWN)
def test_other_sizes_of_inputs_are_answered_or_refused(case):
    """Zeros, negative and huge numbers in each place: in words, and soon."""
    places = list(leaves(case["inputs"]))
    for path in places[:6] if "commodities" in case["inputs"] else places:
        for value in (0, -1, 10**9, 10**300, 1e300, 5e-324):
            told = differences(with_input(case, path, value))
            assert all("Error" not in one for one in told), (path, value, told)


@pytest.mark.few
@pytest.mark.parametrize(("change", "told"), [
    ({"expected": {"T": float("inf")}}, "expected T: inf is no finite number"),
    ({"expected": {"T": float("nan")}}, "expected T: nan is no finite number"),
    ({"expected": {"T": 0.5, "resource_time": {}}}, "expected resource_time: an empty table"),
    ({"exact": {"resource_time": {}}}, "exact resource_time: an empty table"),
    ({"rtol": float("inf")}, "rtol: inf is no number from 0 to 0.1"), ({"rtol": 1e9}, "rtol: 1000000000.0 is no"),
    ({"rtol": float("nan")}, "rtol: nan"), ({"rtol": "x"}, "rtol: 'x'"), ({"rtol": None}, "rtol: None"),
    ({"rtol": True}, "rtol: True"), ({"rtol": -1}, "rtol: -1"), ({"rtol": [1]}, "rtol: [1]"),
    ({"rtol": 10**400}, "rtol: 1000"),
    ({"exact": {"T": "1/0"}}, "exact T: '1/0' is no fraction"),
    ({"exact": {"T": "x/y"}}, "exact T: 'x/y' is no fraction"),
    ({"exact": {"T": "1e999999999"}}, "is no fraction"), ({"exact": [1]}, "exact : {"),
    ({"exact": {"T": 10**400}}, "exact T: 1/2, not 1000"), ({"expected": {"T": 1e308}}, "T: 1/2, not 1e+308"),
    ({"kind": ["a"]}, "unknown kind: ['a']"), ({"kind": {}}, "unknown kind: {}"),
    ({"kind": None}, "unknown kind: None"),
    ({"kind": "x" * 10**6}, "unknown kind: xxx"), ({"surplus": 1, "x y": 2}, 'unknown key "surplus"'),
    ({"title": "a\nb", "rtol": 5}, "rtol: 5"),
])  # fmt: skip
def test_cases_that_cannot_fail_fail(tmp_path, capsys, change, told):
    case = {**RIGHT, **change}
    found = differences(case)
    assert found and any(told in one for one in found), found
    assert run(tmp_path, {"cases": [case, RIGHT]})[0] == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("FAIL  W01 ") and len(lines[0]) < 900 and lines[1].startswith("ok ")


def test_all_keys_of_a_case_are_known(tmp_path, capsys):
    """Those of the schema, rtol as YAML writes 1e-12 (a text), and an answer that is empty for good."""
    case = {**RIGHT, "certificate": {"pcie": 1}, "note": "x", "exact": {}, "rtol": "1e-12", "section": "1.1"}
    assert run(tmp_path, {"version": 1, "units": {}, "cases": [case]})[0] == 0
    nothing = {"caps": {"a": 1}, "transfers": [{"bytes": 0, "use": {"a": 1}}]}
    case = {**RIGHT, "inputs": nothing, "expected": {"bottleneck": []}, "exact": {}}
    assert differences(case) == []
    case["inputs"] = {"caps": {"a": 1}, "transfers": [{"bytes": 1, "use": {"a": 1}}]}
    assert differences(case) == ["bottleneck: ['a'], not []"]


@pytest.mark.few
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", 'no list of "cases"'),
        ("cases: []", '"cases" is empty'),
        ("cases: [{id: A}]", "case 1 lacks one of"),
        ("cases: [{id: A, kind: k, inputs: {}, expected: {}}]", "inputs and expected are tables"),
        ("cases: [", "while parsing"), ("[" * 3000, "too deep"),
        ("cases: " + "[" * 100 + "]" * 100, "within each other"),
        ("cases: &a [*a]", "within each other"), ("cases: [!!bool x]", ""), ("cases: [!!timestamp x]", ""),
        ("cases: [!!int x]", ""), ("cases: [!!python/object:os.x {}]", "could not determine"), ("cases: {}", "no list"),
        ("{}", "no list"), ("cases: [{}]", "case 1 lacks one of"), ("cases: [5]", "case 1 lacks one of"),
        ("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
         "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
         "e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n",
         "more than 1,000,000 values"),
    ],
)
def test_a_bad_file_exits_2(tmp_path, capsys, text, told):
    assert run(tmp_path, {"cases": [RIGHT]}, text)[0] == 2
    written = capsys.readouterr().err
    assert told in written and written.count("\n") == 1 and "cases1.yaml: " in written


def test_no_file_exits_2(tmp_path, capsys):
    assert main([]) == 2 and "python -m tests.worked FILE" in capsys.readouterr().err
    assert main([str(tmp_path / "none.yaml")]) == 2
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00\x81")
    assert main([str(tmp_path / "bytes.yaml")]) == 2


def test_it_runs_as_a_module(tmp_path):
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump({"cases": [with_leaf_changed(RIGHT, "expected", ("T",))]}), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "tests.worked", str(path)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (1, "0 of 1 cases pass", "")


# --- other names, another order, other sizes ---


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Resources under other names, wherever they are named; lists of names sorted again."""
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        found = [renamed(one, names) for one in value]
        return sorted(found) if all(isinstance(one, str) and one in names for one in value) else found
    return names.get(value, value) if isinstance(value, str) else value


def turned_round(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Transfers, commodities, flows, tasks and resources in the opposite order; routes stay, the first is the fixed."""
    turned = ("transfers", "commodities", "flows", "tasks", "caps")
    return {
        key: value if key not in turned else value[::-1] if isinstance(value, list) else dict(reversed(value.items()))
        for key, value in inputs.items()
    }


def scaled(value: Any, factor: Fraction, keys: tuple[str, ...] = ()) -> Any:
    """Figures times a factor: all, or those below the keys."""
    if isinstance(value, Mapping):
        return {key: scaled(one, factor, () if not keys or key in keys else keys)
                if not keys or key in keys or isinstance(one, Mapping | list) else one
                for key, one in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [scaled(one, factor, keys) for one in value]
    if keys:
        return value
    if isinstance(value, str):
        return str(Fraction(value) * factor)
    found = Fraction(str(value)) * factor
    return int(found) if found.denominator == 1 else float(found)


POWERS = {"rates": 1, "price_normalised": -1, "dT_dB": -1}  # of a factor on all capacities and amounts; times have 0


@pytest.mark.parametrize("case", WITH_RATES)
def test_names_of_resources_mean_nothing(case):
    resources = list(case["inputs"]["caps"])
    names = {name: f"row{len(resources) - place:03d}" for place, name in enumerate(resources)}
    other = {**case, **{key: renamed(case.get(key, {}), names) for key in ("inputs", "expected", "exact")}}
    assert differences(other) == []


@pytest.mark.parametrize("case", WITH_RATES)
def test_order_means_nothing(case):
    assert differences({**case, "inputs": turned_round(case["inputs"])}) == []


@pytest.mark.parametrize("case", WITH_RATES)
def test_units_mean_nothing(case):
    for factor in (Fraction(7), Fraction(1, 8)):
        inputs = scaled(case["inputs"], factor, ("caps", "bytes", "work"))
        other = {**case, "inputs": inputs}
        for table in ("expected", "exact"):
            other[table] = {
                key: scaled(one, factor ** POWERS[key]) if key in POWERS else one
                for key, one in case.get(table, {}).items()
            }
        assert differences(other) == []


def test_the_changes_above_change_something():
    case = {"caps": {"a": 2, "b": 3}, "transfers": [{"bytes": 5, "use": {"a": 1}}, {"bytes": 6, "use": {"b": 2}}]}
    assert scaled(case, Fraction(2), ("caps", "bytes")) == {
        "caps": {"a": 4, "b": 6}, "transfers": [{"bytes": 10, "use": {"a": 1}}, {"bytes": 12, "use": {"b": 2}}]
    }  # fmt: skip
    assert renamed(case, {"a": "z"})["transfers"][0] == {"bytes": 5, "use": {"z": 1}}
    assert renamed(["a", "b"], {"a": "z", "b": "y"}) == ["y", "z"]
    assert turned_round(case)["transfers"][0]["bytes"] == 6 and list(turned_round(case)["caps"]) == ["b", "a"]


# --- other numbers, against answers found another way ---

small, rate, count = st.integers(1, 50), st.integers(1, 10**12), st.integers(1, 1000)


def passes(kind: str, inputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The kind's runner, asked for numbers of no file; Fractions expected are met exactly."""
    assert differences({"kind": kind, "inputs": inputs, "expected": expected, "exact": expected}) == []


@given(rate, st.integers(1, 10**9), rate, st.lists(count, min_size=1, max_size=3, unique=True))
def test_other_batches(weights, kv, link, batches):
    wanted = {}
    for batch in batches:
        seconds = Fraction(weights, link) + sum(Fraction(kv, link) for _ in range(batch))
        wanted[batch] = {"step_time": seconds, "tokens_per_s": batch / seconds}
        assert batch / seconds < Fraction(link, kv)
    inputs = {"weight_stream_bytes": weights, "kv_stream_bytes_per_seq": kv, "link_bw": link, "batches": batches}
    passes("batching", inputs, {"by_batch": wanted, "limit_tokens_per_s": Fraction(link, kv)})


@given(st.integers(0, 100), st.integers(0, 9), rate, rate)
def test_other_drafts(percent, draft, weights, link):
    accept = Fraction(percent, 100)
    # n tokens are kept where the first n are and the next is not; one more comes from the pass itself.
    tokens = sum((n + 1) * accept**n * (1 - accept if n < draft else 1) for n in range(draft + 1))
    inputs = {"accept": percent / 100, "draft_len": draft, "weight_bytes": weights, "link_bw": link}
    seconds = Fraction(weights, link)
    passes("spec_decode", inputs, {"tokens_per_step": tokens, "step_time_link": seconds,
                                   "time_per_token_link": seconds / tokens})  # fmt: skip


@given(rate, rate, rate, rate)
def test_other_optimizer_steps(parameters, down, up, memory):
    reads = 4 + 4 + 4 + 2  # master copy, momentum, variance, gradient
    writes = 4 + 4 + 4 + 2  # the same three, 16-bit parameter
    times = {"d2h": Fraction(2 * parameters, down), "h2d": Fraction(2 * parameters, up),
             "dram": Fraction((reads + writes + 2 + 2) * parameters, memory), "gpu": Fraction(0)}  # fmt: skip
    inputs = {"params": parameters, "d2h_bw": down, "h2d_bw": up, "dram_bw": memory}
    wanted = {"adam_dram_bytes_per_param": reads + writes, "dram_bytes_per_param_total": 32, "resource_time": times}
    passes("zero_offload", inputs, {**wanted, "T": max(times.values())})


@given(small, small, small, small, small, st.sampled_from([1, 2, 4]), rate, rate)
def test_other_checkpoints(interval, blocks, hidden, seq, batch, size, down, up):
    moved = sum(hidden * seq * batch * size for layer in range(blocks * interval) if layer % interval == 0)
    inputs = {"layers": blocks * interval, "interval": interval, "hidden": hidden, "seq": seq, "batch": batch,
              "elem_bytes": size, "d2h_bw": down, "h2d_bw": up}  # fmt: skip
    wanted = {"bytes_each_way": moved, "d2h_time": Fraction(moved, down), "h2d_time": Fraction(moved, up)}
    passes("activation_ckpt", inputs, wanted)


@given(small, count, count, small, st.integers(0, 50), st.integers(0, 60), st.integers(1, 3), st.data())
def test_other_decode_steps(layers, weights, active, batch, context, held, buffers, data):
    memory, peak = data.draw(st.integers(10, 1000)), data.draw(count)
    link = data.draw(st.integers(1, memory))
    held = max(held, buffers)
    inputs = {"layers": layers, "layer_weight_bytes": weights, "active_params_per_layer": active,
              "kv_bytes_per_token_layer": 3, "batch": batch, "context": context,
              "hbm_for_weights": held * weights + data.draw(st.integers(0, weights - 1)), "hbm_bw": memory,
              "peak_flops": peak, "link_bw": link, "buffers": buffers}  # fmt: skip
    resident = layers if held >= layers else held - buffers
    busy = dict.fromkeys(("link", "memory", "flop", "compute", "serial"), Fraction(0))
    for layer in range(layers):
        fetch = Fraction(0)
        if layer >= resident:
            fetch = Fraction(weights, link)
            busy["link"] += fetch
            busy["memory"] += Fraction(weights, memory)
        reads, work = Fraction(weights + 3 * batch * context, memory), Fraction(2 * batch * active, peak)
        busy["memory"], busy["flop"] = busy["memory"] + reads, busy["flop"] + work
        busy["compute"] += max(reads, work)
        busy["serial"] += fetch + max(reads, work)
    lower = max(busy[name] for name in ("link", "memory", "flop", "compute"))
    assert lower <= busy["serial"]
    passes("llm_decode_step", inputs, {
        "resident": resident, "streamed": layers - resident, "fetch_per_layer": Fraction(weights, link),
        "compute_per_layer": busy["compute"] / layers, "link_time": busy["link"], "hbm_time": busy["memory"],
        "flop_time": busy["flop"], "compute_serial": busy["compute"], "lower_bound": lower,
        "no_overlap": busy["serial"], "tokens_per_s_upper": batch / lower,
    })  # fmt: skip


@given(small, small, st.booleans(), rate, rate)
def test_other_sweeps(resources, transfers, vary, stream, peak):
    operations = 0
    for row in range(resources):
        operations += sum(2 for _ in range(transfers)) + 1 + (row > 0)  # multiply and add, divide, compare
    size = sum(8 for _ in range(transfers + 1)) + (sum(8 for _ in range(resources)) if vary else 0)
    limits = Fraction(stream, size), Fraction(peak, operations)
    inputs = {"resources": resources, "transfers": transfers, "vary_capacity": vary, "stream_bw": stream,
              "peak_flops": peak}  # fmt: skip
    passes("sweep_roofline", inputs, {
        "bytes_per_config": size, "ops_per_config": operations, "memory_limit_configs_per_s": limits[0],
        "compute_limit_configs_per_s": limits[1], "limit_configs_per_s": min(limits),
    })  # fmt: skip


@given(st.integers(0, 2**22), st.integers(1, 2**22), st.integers(0, 2**22))
def test_other_sizes_of_numbers(one, two, three):
    value = one * two * three
    passes("float_limits", {"bytes_per_token": one, "tokens": two, "sequences": three}, {
        "value": value, "exact_in_float64": int(float(value)) == value,
        "exact_in_float32": int(numpy.float32(value)) == value, "int64_ok": value <= numpy.iinfo(numpy.int64).max,
    })  # fmt: skip


@given(small, small, small, st.sampled_from([4, 8, 16, 32]), st.sampled_from([0, 4]), st.integers(1, 20))
def test_other_kv_bytes(layers, heads, eighths, bits, scale, tp):
    dim = 8 * eighths
    head = sum(bits for _ in range(2 * dim)) // 8 + 2 * scale
    rank = max(1, max(len(range(place, heads, tp)) for place in range(tp)))  # dealt out in turn
    inputs = {"layers": layers, "kind": "gqa", "n_kv": heads, "head_dim": dim, "elem_bits": bits,
              "scale_bytes_per_head": scale, "tp": tp}  # fmt: skip
    passes("kv_token_bytes", inputs, {"per_layer": heads * head, "per_token_model": layers * heads * head,
           "per_token_per_rank": layers * rank * head, "per_token_all_ranks": tp * layers * rank * head})  # fmt: skip
    row = (dim + 16) * bits // 8
    inputs = {"layers": layers, "kind": "mla", "latent": dim, "rope": 16, "elem_bits": bits, "tp": tp}
    passes("kv_token_bytes", inputs, {"per_layer": row, "per_token_model": layers * row,
                                      "per_token_per_rank": layers * row,
                                      "per_token_all_ranks": tp * layers * row})  # fmt: skip


@settings(max_examples=25)
@given(st.integers(1, 4), st.data())
def test_other_routings(experts, data):
    active, tokens = data.draw(st.integers(1, experts)), data.draw(st.integers(1, 2))
    choices = [set(one) for one in permutations(range(experts), active)]
    counts = [len(set().union(*some)) for some in product(choices, repeat=tokens)]
    mean = Fraction(sum(counts), len(counts))
    spread = sum((one - mean) ** 2 for one in counts) / len(counts)
    passes("moe_distinct_uniform", {"experts": experts, "topk": active, "tokens": tokens},
           {"mean": mean, "variance": spread, "lower": active, "upper": min(experts, active * tokens)})  # fmt: skip


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 3), st.data())
def test_other_popularities(weights, tokens, data):
    experts, total = len(weights), sum(weights)
    share = [Fraction(one, total) for one in weights]
    both = [share[e] + sum(share[f] * share[e] / (1 - share[f]) for f in range(experts) if f != e)
            for e in range(experts)]  # fmt: skip
    passes("plackett_luce_top2", {"weights": weights}, {"first_choice": share, "inclusion": both})
    chances = [Fraction(one, 20) for one in data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=3))]
    chances.append(-sum(chances) % 1 if sum(chances) % 1 else Fraction(1))
    kept = data.draw(st.integers(0, len(chances)))
    order = sorted(range(len(chances)), key=lambda e: -chances[e])
    used = [1 - (1 - chances[e]) ** tokens for e in order]
    topk = sum(chances)
    passes("moe_distinct_probs", {"inclusion": [float(one) for one in chances], "tokens": tokens, "cached_top": kept}, {
        "topk": int(topk), "mean_distinct": sum(used), "mean_misses_static_cache": sum(used[kept:]),
        "mean_distinct_if_uniform": len(chances) * (1 - (1 - topk / len(chances)) ** tokens),
        "activation_hit_ratio": sum(chances[e] for e in order[:kept]) / topk,
    })  # fmt: skip


@given(st.integers(1, 12), st.integers(0, 14))
def test_other_scans(items, capacity):
    def hits(evict: Any) -> Fraction:
        held: list[int] = []  # the one used for longest first
        counted = items * max(1, items - 1)  # what comes back, comes back after so many
        found = 0
        for place in range(3 * items + counted):
            item = place % items
            if item in held:
                found += place >= 3 * items
                held.remove(item)
            elif capacity and len(held) >= capacity:
                held.remove(evict(held, item))
            if capacity:
                held.append(item)
        return Fraction(found, counted)

    lru = hits(lambda held, item: held[0])
    best = hits(lambda held, item: max(held, key=lambda one: (one - item) % items))  # used again last
    pinned = min(Fraction(capacity, items), Fraction(1))
    passes("cyclic_cache", {"items": items, "capacity": capacity}, {
        "lru": lru, "pinned": pinned, "lru_misses_per_cycle": items * (1 - lru),
        "pinned_misses_per_cycle": items * (1 - pinned),
        "min_demand": best,
    })  # fmt: skip


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.integers(1, 100), st.data())
def test_other_expert_steps(experts, tokens, layers, size, data):
    active, kept = data.draw(st.integers(1, experts)), data.draw(st.integers(0, experts))
    misses = (experts - kept) * (1 - Fraction(experts - active, experts) ** tokens)
    inputs = {"layers": layers, "experts": experts, "topk": active, "tokens": tokens, "expert_bytes": size,
              "cached_per_layer": kept, "link_bw": 7}  # fmt: skip
    passes("moe_step", inputs, {
        "mean_misses_per_layer": misses, "mean_bytes": layers * size * misses,
        "link_time_at_mean": layers * size * misses / 7,
        "max_bytes": layers * size * min(experts - kept, active * tokens),
    })  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 256)), min_size=1, max_size=4))
def test_other_packings(parts):
    wanted = {"x": sum(Fraction(bits, group) for bits, group in parts)}
    passes("weight_bits", {"formats": {"x": [list(part) for part in parts]}}, {"bits_per_weight": wanted})


@given(small, small, st.integers(1, 200), st.integers(2, 16))
def test_other_windows(window, batched, context, block):
    held = len([place for place in range(context) if place >= context - (window - 1 + batched)])
    inputs = {"window": window, "max_batched_tokens": batched, "context": context, "block": block}
    passes("swa_blocks", inputs, {"tokens": held, "blocks": len(range(0, held, block)) + 1,
                                  "steady_decode_tokens": min(window, context)})  # fmt: skip


def test_a_step_table_says_that_more_is_faster():
    inputs = {"bandwidth": 10, "table": [[0, 0.25], [100, 0.5], [1000, 1]], "sizes": [99, 100, 999, 1000]}
    wanted = {99: Fraction(198, 5), 100: 20, 999: Fraction(999, 5), 1000: 100}
    passes("step_table_time", inputs, {"time_by_size": wanted})


def test_a_key_that_stands_twice_is_refused(tmp_path, capsys):
    """Of two expectations, or two lists of cases, only one would be compared."""
    case = ("{id: a, kind: load_bound_case, inputs: {caps: {x: 2}, transfers: [{bytes: 4, use: {x: 1}}]}, "
            "expected: {EXPECTED}}")  # fmt: skip
    for text in ("cases:\n- " + case.replace("EXPECTED", "T: 99, T: 2"),
                 "cases:\n- " + case.replace("EXPECTED", "T: 99") + "\ncases:\n- " + case.replace("EXPECTED", "T: 2")):
        path = tmp_path / "twice.yaml"
        path.write_text(text + "\n", encoding="utf-8")
        assert main([str(path)]) == 2
        assert "stands twice" in capsys.readouterr().err
