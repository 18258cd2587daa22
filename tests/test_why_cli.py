"""`offload why` from an engine's log to its answer: text, data, the saved plan, exit statuses, errors."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import OffloadError
from offload.readers.engines.recognise import read_runs
from offload.report_why import why_to_json
from offload.why import choose_run, why
from tests.commands import ROOT, Done, run

LOGS = ROOT / "tests" / "data" / "logs"
BENCH = "tests/data/logs/why_llama2.md"
SERVED = "tests/data/logs/llama_server_2026.log"
PAGE = ROOT / "docs" / "engine-logs.md"
ASKED = {  # what each log lacks, and its answers
    "why_llama2.md": (),
    "llama_server_2026.log": (),
    "llama_bench.md": ("--on", "rtx4090-8gpu"),
    "vllm_v0_offload.log": ("--model", "llama-2-13b", "--on", "ws-2x3090-nvlink"),
    "vllm_v1_two_ranks.log": ("--model", "qwen3-32b", "--on", "dgx-h100"),
    "vllm_bench_serve.txt": ("--model", "llama-3.1-8b:bf16", "--on", "dgx-h100"),
    "zero_inference.txt": ("--model", "opt-30b:fp16", "--on", "dgx-h100"),
    "flexgen.txt": ("--model", "llama-2-13b:fp16", "--on", "dgx-h100"),
    "accelerate_results.md": ("--run", "1", "--model", "llama-2-7b:fp16", "--on", "ws-2x3090-nvlink"),
    "ktransformers_chat.txt": ("--model", "deepseek-v3:q4_k_m", "--on", "dgx-h100"),
}


def answer(*words: str) -> dict:
    done = run("why", *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def refused(*words: str, status: int = 2) -> str:
    done = run("why", *words)
    assert done.returncode == status and not done.stdout and "Traceback" not in done.stderr
    assert done.stderr.startswith("offload: ")
    return done.stderr


def table(done: Done, heading: str) -> list[list[str]]:
    """Rows of the table below a heading, in cells."""
    part = done.stdout.split(f"\n{heading}\n")[1].split("\n\n")[0]
    return [re.split(r"  +", line.strip()) for line in part.split("\n")[2:] if line.strip()]


def test_a_bench_by_default_is_its_decode():
    done = run("why", BENCH)
    assert done.returncode == 0 and not done.stderr
    assert "llama-2-7b q4_0, decode, batch 1, context 64" in done.stdout
    assert "tg128" in done.stdout and "--timing 1: pp512" in " ".join(done.stdout.split())
    rows = table(done, "Where the time of a step goes")
    assert [row[0] for row in rows] == ["load floor", "order", "sustained", "contention", "hand-overs", "unexplained",
                                        "measured"]  # fmt: skip
    figures = [float(row[1].replace(",", "")) for row in rows]
    assert figures[:3] == [4.037, 0.0, 0.478] and figures[-1] == 7.847
    assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=0.003)  # each is rounded
    assert re.search(r"51\.4 % of the floor's speed is reached", done.stdout)
    assert "--on says another" in " ".join(done.stdout.split())


def test_data_has_the_same_and_every_key_is_told():
    found = answer(BENCH)
    assert found["model"] == "llama-2-7b" and found["weights"] == "q4_0" and found["topology_from_log"] is True
    assert found["measured_seconds"] == pytest.approx(1 / 127.43)
    assert math.fsum(term["seconds"] for term in found["terms"]) == pytest.approx(found["measured_seconds"], rel=1e-12)
    assert found["timing"]["test"] == "tg128" and [one["test"] for one in found["other_timings"]] == ["pp512"]
    assert found["proven"][0]["resource"] == "hbm0" and found["contradicts_server"] is False
    text = PAGE.read_text(encoding="utf-8").split("## As data")[1].split("## In Python")[0]
    told = set(re.findall(r"[a-z_]+", text))

    def keys(value: object, inside: str = "") -> set[str]:
        if isinstance(value, dict):
            own = set() if inside == "plan" else set(value)
            return own.union(*[keys(part, name) for name, part in value.items() if inside != "plan"])
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    assert keys(found) <= told


def test_another_timing_and_server():
    found = answer(BENCH, "--timing", "1", "--on", "ws-2x3090-nvlink")
    assert found["of"] == "pass" and found["topology"] == "ws-2x3090-nvlink" and not found["topology_from_log"]
    assert found["plan"]["workload"] == {"phase": "prefill", "batch": 1, "prompt": 512}


@pytest.mark.few
@pytest.mark.parametrize("name", ASKED)
def test_logs_of_every_engine_end_in_terms_that_add_up(name):
    found = answer(f"tests/data/logs/{name}", *ASKED[name])
    seconds = [term["seconds"] for term in found["terms"]]
    assert math.fsum(seconds) == pytest.approx(found["measured_seconds"], rel=1e-9)
    assert found["terms"][0]["seconds"] > 0 and all(math.isfinite(one) for one in seconds)
    assert found["proven"] and found["verdict"]


@pytest.mark.slow
def test_what_an_engine_placed_is_in_the_plan():
    served = answer(SERVED)
    assert list(served["plan"]["placement"]["tensors"].values()) == ["dram0"] and served["not_counted"] == ["dram0"]
    flexgen = answer("tests/data/logs/flexgen.txt", *ASKED["flexgen.txt"])
    assert flexgen["plan"]["placement"]["kv"] == {"hbm0": "20%", "dram0": "80%"}
    zero = answer("tests/data/logs/zero_inference.txt", *ASKED["zero_inference.txt"])
    assert zero["plan"]["placement"] == {"weights": {"dram0": "rest"}, "compute": "gpu0", "kv": "dram0",
                                         "reserve": "0 B"}  # fmt: skip
    experts = answer("tests/data/logs/ktransformers_chat.txt", *ASKED["ktransformers_chat.txt"])
    assert experts["plan"]["placement"]["experts"] == {"home": {"dram0": "rest"}, "compute": "local"}
    away = answer("tests/data/logs/vllm_v0_offload.log", *ASKED["vllm_v0_offload.log"])
    assert away["plan"]["placement"]["weights"] == {"hbm0..1": "rest", "dram0": f"{2 * 5 * 2**30} B"}


def test_the_plan_is_saved_and_evaluates_to_the_same(tmp_path: Path):
    done = run("why", BENCH, "-o", str(tmp_path / "plan.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["plan-server.yaml", "plan.yaml"]
    found = json.loads(done.stdout)
    step = run("step", "plan.yaml", "--measured", "127.43 tok/s", "--json", cwd=tmp_path)
    again = json.loads(step.stdout)
    assert step.returncode == 0 and again["measured"]["verdict"] == found["verdict"]
    assert again["floor"]["seconds"] == pytest.approx(found["floor_seconds"])
    assert again["overlapped"]["seconds"] == pytest.approx(found["expected"]["value"])
    shipped = run("why", BENCH, "--on", "ws-2x3090-nvlink", "-o", str(tmp_path / "other.yaml"))
    assert shipped.returncode == 0 and not (tmp_path / "other-server.yaml").exists()
    assert "topology: ws-2x3090-nvlink" in (tmp_path / "other.yaml").read_text(encoding="utf-8")


def test_what_is_set_is_in_the_saved_plan(tmp_path: Path):
    done = run("why", BENCH, "--set", "workload.context=1000", "-o", str(tmp_path / "plan.yaml"))
    assert done.returncode == 0 and "context: 1000" in (tmp_path / "plan.yaml").read_text(encoding="utf-8")


def test_a_server_of_a_file(tmp_path: Path):
    run("why", BENCH, "-o", str(tmp_path / "plan.yaml"))
    server = tmp_path / "plan-server.yaml"
    done = run("why", BENCH, "--on", str(server), "-o", str(tmp_path / "again.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    assert run("step", "again.yaml", cwd=tmp_path).returncode == 0


def test_a_contradiction_is_exit_status_1(tmp_path: Path):
    log = tmp_path / "fast.md"
    log.write_text((ROOT / BENCH).read_text(encoding="utf-8").replace("127.43", "312.43"), encoding="utf-8")
    done = run("why", str(log))
    assert done.returncode == 1 and "Input contradicts physics" in done.stdout and "above peak" in done.stdout
    assert "unexplained is below zero" in done.stdout
    assert answer(str(log))["contradicts_server"] is True


def test_no_verdict_on_what_is_not_counted():
    done = run("why", SERVED)
    assert "no verdict on the rest: what passes dram0 is not counted" in " ".join(done.stdout.split())
    assert "Usual causes" not in done.stdout
    said = run("why", SERVED, "--set", "dram0.rate=60GB/s", "--set", "pcie0.rate=25GB/s")
    assert said.returncode == 0 and "no verdict" not in said.stdout


def test_errors_say_what_to_do(tmp_path: Path):
    assert "--on SERVER" in refused("tests/data/logs/llama_bench.md")
    assert "--model NAME" in refused("tests/data/logs/vllm_v0_offload.log")
    assert ":FORMAT" in refused("tests/data/logs/zero_inference.txt", "--on", "dgx-h100")
    assert "--run 1" in refused("tests/data/logs/llama_bench.jsonl")
    assert "--run 7" in refused(BENCH, "--run", "7")
    assert "--timing 7" in refused(BENCH, "--timing", "7")
    assert "no timing" in refused("tests/data/logs/deepspeed_zero3.log")
    assert "no timing" in refused("tests/data/logs/accelerate_estimate.txt")
    assert "many requests" in refused("tests/data/logs/vllm_bench_serve.txt", *ASKED["vllm_bench_serve.txt"],
                                      "--timing", "1")  # fmt: skip
    assert "no topology" in refused(BENCH, "--on", "nowhere")
    assert "is empty" in refused(BENCH, "--on", " ") and "is empty" in refused(BENCH, "--model", "")
    assert "no model" in refused(BENCH, "--model", "lama-9")
    assert "unknown key" in refused(BENCH, "--set", "workload.contxt=5")
    assert "--on" in refused(BENCH, "--set", "topology=gh200")
    assert "--timing" in refused(BENCH, "--set", "workload.phase=prefill")
    assert "offload step" in refused(BENCH, "--set", "speculation={draft: 4, accept: 80%}")
    assert "ends in .yaml" in refused(BENCH, "-o", "plan.txt")
    assert "engine" in refused("README.md")
    assert "no such file" in refused(str(tmp_path / "none.log")).lower()
    assert "several GPUs" in refused("tests/data/logs/accelerate_script.txt", "--model", "llama-2-13b:fp16", "--on",
                                     "ws-2x3090-nvlink")  # fmt: skip
    assert "does not fit" in refused(BENCH, "--model", "llama-2-70b:q8_0", "--on", "ws-2x3090-nvlink", status=1)
    (tmp_path / "read.yaml").write_text((ROOT / BENCH).read_text(encoding="utf-8"), encoding="utf-8")
    assert "overwritten" in refused(str(tmp_path / "read.yaml"), "-o", str(tmp_path / "read.yaml"))


def test_it_keeps_a_narrow_width():
    done = run("why", SERVED, COLUMNS="60")
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.split("\n") if "^blk" not in line) <= 60


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_damaged_logs_end_in_an_answer_or_an_error(data: st.DataObject):
    """Cut, shuffled or with other digits: nothing but an answer with finite figures, or an OffloadError."""
    name = data.draw(st.sampled_from(sorted(ASKED)))
    lines = (LOGS / name).read_text(encoding="utf-8").split("\n")
    kind = data.draw(st.sampled_from(["cut", "shuffled", "digits"]))
    if kind == "cut":
        lines = lines[: data.draw(st.integers(1, len(lines)))]
    elif kind == "shuffled":
        lines = data.draw(st.permutations(lines))
    else:
        place = data.draw(st.integers(0, len(lines) - 1))
        lines[place] = re.sub(r"\d", lambda _: str(data.draw(st.integers(0, 9))), lines[place])
    words = dict(zip(ASKED[name][::2], ASKED[name][1::2], strict=True))
    number = int(words["--run"]) if "--run" in words else None
    try:
        chosen = choose_run(read_runs("\n".join(lines)), number)
        found = why(chosen, server=words.get("--on"), model=words.get("--model"))
    except OffloadError:
        return
    json.dumps(why_to_json(found), allow_nan=False)
    total = math.fsum(term.seconds for term in found.waterfall.terms)
    scale = max(abs(term.until) for term in found.waterfall.terms)
    assert total == pytest.approx(found.waterfall.measured, abs=1e-12 * scale)


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "0", "9" * 19])
def test_a_batch_that_is_none_is_refused_in_words(number):
    done = run("why", "tests/data/logs/why_llama2.md", "--on", "desktop-4090", "--set", f"workload.batch={number}")
    assert done.returncode == 2 and "batch" in done.stderr and "internal error" not in done.stderr
