"""What DeepSpeed's logs and its inference examples say: facts worked out from each fixture by hand, dirt, damage."""

from __future__ import annotations

import pytest

from offload.errors import ReadingError
from offload.readers.engines import deepspeed
from offload.readers.tools.text import clean
from tests.server_logs import GIB, bare, buffers, damage_test, dirty, facts, log, runs, said, settings

NAMES = ("deepspeed_zero3.log", "deepspeed_estimate.txt", "deepspeed_profiler.txt", "zero_inference.txt",
         "flexgen.txt", "bloom_zero_inference.txt")  # fmt: skip

test_damaged_logs = damage_test(deepspeed, NAMES)


def the_run(name):
    (run,) = runs(deepspeed, log(name))
    return run


@pytest.mark.parametrize("name", NAMES)
def test_dirt_changes_nothing(name):
    plain = bare(runs(deepspeed, log(name)))
    for number, content in enumerate(dirty(log(name))):
        assert bare(runs(deepspeed, content)) == plain, number


@pytest.mark.parametrize("name", NAMES)
def test_nothing_personal_is_kept(name):
    found = repr(runs(deepspeed, log(name)))
    assert not any(word in found for word in ("somebody", "/home", "/mnt", "business", "_DUMMY_"))


@pytest.mark.parametrize("name", ["deepspeed_estimate.txt", "zero_inference.txt", "flexgen.txt"])
def test_each_summary_is_a_run(name):
    content = log(name)
    twice = runs(deepspeed, content + "\n" + content)
    assert len(twice) == 2 and bare(twice[:1]) == bare(twice[1:]) == bare(runs(deepspeed, content))


def test_two_trainings_are_two_runs():
    content = log("deepspeed_zero3.log")
    content = content[content.index("[2025-03-05 02:18:31,412] [INFO] [config.py:1000") :]
    assert len(runs(deepspeed, content + content)) == 2


def test_training_with_its_configuration():
    run = the_run("deepspeed_zero3.log")
    assert said(run) == {"weights_format": ("bfloat16", 12), "bits": (16.0, 12), "batch": (64, 15), "ranks": (8, 17)}
    assert settings(run) == {
        "zero_optimization.stage": 3, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4, "zero_optimization.offload_optimizer.device": "cpu",
        "zero_optimization.offload_optimizer.pin_memory": True, "zero_optimization.offload_param.device": "nvme",
        "zero_optimization.offload_param.buffer_count": 5, "zero_optimization.sub_group_size": 10**9,
        "zero_optimization.stage3_max_live_parameters": 10**9, "aio.block_size": 2**20, "aio.queue_depth": 8,
        "aio.single_submit": False, "bf16.enabled": True,
    }  # fmt: skip
    assert buffers(run) == [("rank0", "all", 20.5, 49)]
    assert not run.unknown


def test_times_of_training_steps():
    run = the_run("deepspeed_zero3.log")
    speed, parts = run.timings
    assert (speed.phase, speed.seconds, speed.steps, speed.sequences, speed.samples, speed.line) == (
        "train", 64 / 2.05, 1, 64, 2, 51)  # fmt: skip
    # the first step of three is left out: 10 and 10, 18 and 16, 4 and 4 s
    assert (parts.seconds, parts.samples, parts.line) == (pytest.approx(10 + 17 + 4), 2, 44)
    told = facts(run)
    assert told["mean time of bwd, s"] == 17 and told["mean time of bwd_inner, s"] == 15
    assert told["mean time of optimizer_step, s"] == 3
    assert told["most of the host's memory in use, by everything, bytes"] == 260.5 * GIB
    assert told["most of PyTorch's memory on a GPU (Max_MA), bytes"] == 2.5 * GIB


def test_older_spellings():
    (run,) = runs(deepspeed, (
        "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.5, MemAllocated=0.26GB, "
        "MaxMemAllocated=9.25GB\n"
        "[2022-03-11 02:07:00,000] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 time (ms) | forward: 1500.0 | "
        "backward: 250.0 | backward_inner: 200.0 | backward_allreduce: 5.0 | step: 250.0\n"))  # fmt: skip
    assert run.on("all") == {"rank0": 9.25 * GIB} and facts(run)["samples/s"] == 83.5
    (parts,) = run.timings  # without train_batch_size samples/s give no time of a step
    assert parts.seconds == 2.0 and any("train_batch_size" in one for one in run.unknown)


def test_numbers_of_the_configuration_that_are_none_are_left_out():
    content = log("deepspeed_zero3.log").replace('"train_batch_size": 64', '"train_batch_size": "auto"')
    assert "train_batch_size" not in settings(runs(deepspeed, content)[0])


def test_estimates_are_facts():
    run = the_run("deepspeed_estimate.txt")
    assert said(run) == {"parameters": (2851e6, 3)} and not run.timings and not run.buffers
    told = facts(run)
    assert told["estimate, GPUs of a node"] == 8 and told["parameters of the largest layer"] == 32e6
    all_off = "estimate with offload_param=cpu, offload_optimizer=cpu, zero_init=1"
    assert told[f"{all_off}: host memory, bytes"] == 71.5 * GIB
    assert told[f"{all_off}: memory of a GPU, bytes"] == round(0.12 * GIB)
    assert told["estimate with offload_param=none, offload_optimizer=none, zero_init=0: memory of a GPU, bytes"] == (
        5.5 * GIB)  # fmt: skip


def test_estimates_with_newer_options():
    (run,) = runs(deepspeed, (
        "Estimated memory needed for params, optim states and gradients for a:\n"
        "  127.50GB |   5.50GB | {'offload_optimizer': {'device': 'cpu'}}\n"))  # fmt: skip
    assert facts(run)["estimate with offload_optimizer: device: cpu: host memory, bytes"] == 127.5 * GIB


def test_the_flops_profiler():
    run = the_run("deepspeed_profiler.txt")
    assert said(run) == {"parameters": (17_100_000_000, 12), "ranks": (32, 7), "replicas": (4, 8), "tensor": (8, 9)}
    (step,) = run.timings
    assert (step.seconds, step.sequences, step.line) == (6.5, 256, 20)
    told = facts(run)
    assert told["time of fwd, profiled, s"] == 1.55 and told["time of bwd, profiled, s"] == pytest.approx(4.92)
    assert told["time of step, profiled, s"] == pytest.approx(0.0005)


def test_zero_inference():
    run = the_run("zero_inference.txt")
    assert said(run) == {"model": ("facebook/opt-30b", 1), "size": (round(55.8 * GIB), 8), "ranks": (1, 1)}
    assert buffers(run) == [("CPU", "weights", pytest.approx(55.8), 8), ("CPU", "kv", pytest.approx(5.578), 8),
                            ("rank0", "all", 7.5, 9)]  # fmt: skip
    prefill, decode, whole = run.timings
    assert (prefill.seconds, prefill.tokens, prefill.sequences, prefill.prompt) == (16.0, 8 * 512, 8, 512)
    # the prompt's pass makes the first of 32 tokens
    assert (decode.seconds, decode.tokens, decode.steps, decode.sequences, decode.context, decode.line) == (
        80.0, 8 * 31, 31, 8, 512, 10)  # fmt: skip
    assert (whole.seconds, whole.tokens) == (96.0, 8 * 32)
    assert not run.unknown and settings(run)["pin_memory"] == 1


def test_a_summary_without_its_command_says_what_is_open():
    content = log("zero_inference.txt")
    (run,) = runs(deepspeed, content[content.index("model size") :])
    assert [one.tokens for one in run.timings] == [16 * 256, 80 * 3.1, round(96 * 2.667)]
    assert run.timings[1].steps is None and not run.on("weights")
    assert any("weights are" in one for one in run.unknown) and any("batch" in one for one in run.unknown)


def test_the_name_of_run_models_own_log_says_its_settings():
    content = log("zero_inference.txt")
    name = "==> ds-opt-66b-bs16-prompt512-gen32-n1x4-cpu-kv_offload-w_quant.log <==\n"
    (run,) = runs(deepspeed, name + content[content.index("model size") :])
    assert (run.model.value, run.ranks.value, run.timings[1].steps) == ("opt-66b", 4, 31)
    assert settings(run) == {"cpu_offload": True, "kv_offload": True, "quantized weights": True}
    assert not run.on("weights")  # the size that is printed is of float16


def test_quantized_weights_take_no_bytes_from_the_size_in_float16():
    content = log("zero_inference.txt").replace("--cpu-offload", "--cpu-offload --quant_bits 4")
    (run,) = runs(deepspeed, content)
    assert not run.on("weights") and run.on("kv") and settings(run)["quant_bits"] == 4
    assert any("quantized" in one for one in run.unknown)


def test_flexgen_puts_shares_on_devices():
    run = the_run("flexgen.txt")
    assert run.engine == "flexgen"
    assert buffers(run) == [("rank0", "weights", 24.0, 4), ("rank0", "kv", pytest.approx(1.6), 4),
                            ("CPU", "kv", pytest.approx(6.4), 4), ("rank0", "all", 26.5, 5)]  # fmt: skip
    assert [(one.tokens, one.steps, one.sequences) for one in run.timings] == [
        (32 * 128, None, 32), (32 * 200, 200, 32), (32 * 201, None, 32)]  # fmt: skip
    bad = log("flexgen.txt").replace("100 0 20 80 100 0", "90 20 20 80 100 0")
    assert not runs(deepspeed, bad)[0].on("weights")


def test_bloom_scripts():
    load, request = the_run("bloom_zero_inference.txt").timings
    assert (load.phase, load.seconds) == ("load", 591.5)
    assert (request.seconds, request.tokens, request.sequences, request.line) == (80.0, 800, 8, 4)


@pytest.mark.parametrize("content", [
    "Best performance (GB/sec): read = 3.69, write = 3.18", '{"zero_optimization": {"stage": 3}}', "I use DeepSpeed.",
])  # fmt: skip
def test_other_files_are_left_alone(content):
    assert not deepspeed.is_it(clean(content))


def test_a_line_without_figures_is_refused():
    with pytest.raises(ReadingError, match="no line of it"):
        runs(deepspeed, "[INFO] [config.py:1000:print] DeepSpeedEngine configuration:\n")
