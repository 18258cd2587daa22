"""Readers of what drives were measured at: fio, gdsio, DeepSpeed's ds_io and ds_nvme_tune."""

from __future__ import annotations

import json

import pytest

from offload.errors import ReadingError
from offload.readers.tools import deepspeed_io, fio, gdsio
from offload.readers.tools.text import clean
from tests.measured_outputs import damage_test, dirty, facts, found, output, rates, same_but_lines, sample

GIB = 2**30
FIO = ("fio3_group.txt", "fio3_two_drives.json", "fio2.json", "fio3_page_cache.json")
DEEPSPEED = ("ds_nvme_tune.txt", "ds_io.txt")
ALL = [*((fio, name) for name in FIO), (gdsio, "gdsio_wrapped.txt"), *((deepspeed_io, name) for name in DEEPSPEED)]

test_damaged_fio = damage_test(fio, FIO)
test_damaged_gdsio = damage_test(gdsio, ("gdsio_wrapped.txt",))
test_damaged_deepspeed = damage_test(deepspeed_io, DEEPSPEED)


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_dirt_changes_nothing(reader, name):
    clean_one = found(reader, output(name))
    for number, content in enumerate(dirty(output(name))):
        assert same_but_lines(found(reader, content), clean_one), number


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_two_runs_pasted_are_both_read(reader, name):
    content = output(name)
    once, twice = found(reader, content), found(reader, content + "\n" + content)
    assert [one.rate for one in twice.rates] == 2 * [one.rate for one in once.rates]
    later = content.count("\n") + 1
    assert [one.line for one in twice.rates] == [one.line + more for more in (0, later) for one in once.rates]


@pytest.mark.parametrize(("reader", "name"), ALL)
def test_no_reader_takes_anothers_output(reader, name):
    assert [one for one in (fio, gdsio, deepspeed_io) if one.is_it(clean(output(name)))] == [reader]


# fio


def test_fio_of_grouped_jobs_counts_depth_times_jobs():
    finding = found(fio, output("fio3_group.txt"))
    assert finding.tool == "fio 3.35 JSON"
    assert rates(finding) == [("drive2", "host", 6.5e9, "read", "alone", 2**20, 64, 1, 24)]
    assert [fact[1] for fact in facts(finding, "s")] == [pytest.approx(0.01032)]
    assert not finding.odd and not finding.unknown


def test_fio_jobs_of_one_group_are_added_and_of_two_groups_are_not():
    finding = found(fio, output("fio3_two_drives.json"))
    assert rates(finding) == [("host", "drives", 3.072e9, "write", "together", 2**18, 16, 2, 9)]
    assert finding.rates[0].note == "sum of 2 jobs"
    apart = json.loads(output("fio3_two_drives.json"))
    apart["jobs"][1]["groupid"] = 1
    assert [(one.destination, one.rate, one.depth) for one in found(fio, json.dumps(apart)).rates] == [
        ("drive0", 2.048e9, 8), ("drive1", 1.024e9, 8)]  # fmt: skip


def test_fio_2_is_in_kib_and_microseconds_and_tells_no_settings():
    finding = found(fio, output("fio2.json"))
    assert rates(finding) == [("host", "drive", 100_000 * 1024.0, "write", "alone", None, None, 1, 9)]
    assert [fact[1] for fact in facts(finding, "s")] == [pytest.approx(2.56e-3)]
    assert any("direct" in one for one in finding.unknown)


def test_fio_through_the_page_cache_gives_no_rate_of_a_drive():
    finding = found(fio, output("fio3_page_cache.json"))
    assert not finding.rates and facts(finding, "B/s")[0][1:] == (4.096e9, 7)
    assert "direct=0" in finding.odd[0] and "secret" not in repr(finding) and "cached" not in repr(finding)


def changed(**settings):
    run = json.loads(output("fio3_group.txt")[output("fio3_group.txt").index("{\n") :])
    run["jobs"][0]["job options"].update(settings)
    return run


def test_fio_with_reads_and_writes_keeps_each_direction():
    run = changed(rw="randrw", bs="4k,8k")
    run["jobs"][0]["write"] = {"bw_bytes": 1_000_000_000, "bw": 976_562, "io_bytes": 1, "runtime": 10_000}
    assert [one[:7] for one in rates(found(fio, json.dumps(run)))] == [
        ("drive2", "host", 6.5e9, "read", "both directions", 4096, 64),
        ("host", "drive2", 1e9, "write", "both directions", 8192, 64)]  # fmt: skip


def test_fio_unified_rates_are_mixed_unless_only_one_direction_ran():
    run = changed(rw="rw")
    run["jobs"][0]["mixed"] = run["jobs"][0].pop("read")
    one = found(fio, json.dumps(run)).rates[0]
    assert (one.access, one.when, one.note) == ("mixed", "both directions", "reads and writes added")
    run["jobs"][0]["job options"]["rw"] = "write"
    one = found(fio, json.dumps(run)).rates[0]
    assert (one.source, one.destination, one.access, one.when) == ("host", "drive2", "write", "alone")


@pytest.mark.parametrize(("settings", "depth"), [
    ({"ioengine": "psync"}, 4), ({"numjobs": "1"}, 16), ({"group_reporting": "0"}, 16), ({"iodepth": "x"}, None),
])  # fmt: skip
def test_fio_depth(settings, depth):
    assert found(fio, json.dumps(changed(**settings))).rates[0].depth == depth


@pytest.mark.parametrize(("size", "bytes_"), [
    ("1M", 2**20), ("1m", 2**20), ("4096", 4096), ("4KiB", 4096), ("256kb", 2**18), ("1G", 2**30), ("x", None),
    ("0", None),
])  # fmt: skip
def test_fio_block_size(size, bytes_):
    assert found(fio, json.dumps(changed(bs=size))).rates[0].size == bytes_


def test_fio_block_sizes_that_vary_are_not_known():
    assert found(fio, json.dumps(changed(bssplit="4k/50:8k/50"))).rates[0].size is None
    assert found(fio, json.dumps(changed(kb_base="1000"))).rates[0].size is None


@pytest.mark.parametrize(("changes", "words"), [
    ({"bw_bytes": 9_000_000_000}, "is not bw"), ({"bw_bytes": float("nan"), "bw": -1}, "no figure above 0"),
])  # fmt: skip
def test_fio_figures_that_contradict_are_told(changes, words):
    run = changed()
    run["jobs"][0]["read"].update(changes)
    run["jobs"].append({**changed()["jobs"][0], "groupid": 1})
    finding = found(fio, json.dumps(run))
    assert words in finding.odd[0] and finding.rates[-1].rate == 6.5e9


def test_fio_runs_in_a_list_all_have_the_line_of_the_list():
    runs = json.dumps([changed(), changed(bs="2M")], indent=1)
    assert [(one.size, one.line) for one in found(fio, f"two runs\n{runs}").rates] == [(2**20, 2), (2**21, 2)]


def test_fio_job_with_an_error_is_left_out():
    run = changed()
    run["jobs"][0]["error"] = 5
    with pytest.raises(ReadingError, match="ended with an error"):
        found(fio, json.dumps(run))


def test_fio_engines_without_a_drive_and_limits_are_told():
    with pytest.raises(ReadingError, match="ioengine null"):
        found(fio, json.dumps(changed(ioengine="null")))
    assert "rate limit" in found(fio, json.dumps(changed(rate="100m"))).rates[0].note
    gpu = found(fio, json.dumps(changed(ioengine="libcufile", gpu_dev_ids="3", cuda_io="posix"))).rates[0]
    assert (gpu.source, gpu.destination) == ("drive2", "gpu3") and "posix" in gpu.note


def test_fio_json_that_is_cut_or_plain_text_is_refused_with_what_to_do():
    with pytest.raises(ReadingError, match="not whole"):
        found(fio, output("fio3_group.txt")[:-40])
    with pytest.raises(ReadingError, match="not whole"):
        found(fio, "".join(f"unknown prefix {line}\n" for line in output("fio2.json").splitlines()))
    with pytest.raises(ReadingError, match="output-format=json"):
        found(fio, "fio-3.35\n  read: IOPS=1458, BW=1459MiB/s (1530MB/s)(4382MiB/3004msec)\n")


# gdsio


def test_gdsio_ways():
    finding = found(gdsio, output("gdsio_wrapped.txt"))
    assert rates(finding) == [
        ("drive", "gpu", 5.0 * GIB, "read", "alone", 2**20, 8, 1, 1),
        ("drive", "gpu", 4.0 * GIB, "read", "alone", 2**20, 8, 1, 5),
        ("gpu", "drive", 3.0 * GIB, "write", "alone", None, None, 1, 6)]  # fmt: skip
    assert [one.note for one in finding.rates] == [
        "GPU-direct (GPUD)",
        "bounce through host memory (CPU_GPU)",
        "GPU-direct (GPUD_BATCH), random, sizes 4-1024 KiB",
    ]
    assert facts(finding, "s")[0][1] == pytest.approx(1.5625e-3) and not finding.odd


def test_gdsio_odd_lines():
    line = output("gdsio_wrapped.txt").splitlines()[4]
    told = found(
        gdsio, f"{line}\n{line.replace('CPU_GPU', 'NEW_WAY')}\n{line.replace('4.000000', '0.000000')}\n{line[:90]}"
    )
    assert len(told.rates) == 1 and len(told.odd) == 3
    assert "NEW_WAY" in told.odd[0] and "0.000000" in told.odd[1] and "cut" in told.odd[2]
    assert "DataSetSize / total_time" in found(gdsio, line.replace("4.000000", "4.500000")).odd[0]
    with pytest.raises(ReadingError, match="no whole result"):
        found(gdsio, line[:90])


# DeepSpeed


def test_deepspeed_tune():
    finding = found(deepspeed_io, output("ds_nvme_tune.txt"))
    assert rates(finding) == [
        ("drives", "host", 6.5 * GIB, "read", "together", 2**21, 64, 2, 2),
        ("host", "drives", 5.25 * GIB, "write", "together", 2**21, 64, 2, 2)]  # fmt: skip
    assert "nvme_a" not in repr(finding) and any("2^30" in one for one in finding.assumed)


def test_deepspeed_io():
    finding = found(deepspeed_io, output("ds_io.txt"))
    assert rates(finding) == [("host", "drive", 2.4 * GIB, "write", "alone", None, None, 1, 4)]
    assert facts(finding, "B/s") == [("write rate of the transfers alone (Task)", 2.5 * GIB, 2)]


def test_deepspeed_figures_that_are_none():
    finding = found(deepspeed_io, "Best performance (GB/sec): read =  3.5, write =  0.0\n")
    assert [one.access for one in finding.rates] == ["read"] and "write rate of 0.0" in finding.odd[0]
    with pytest.raises(ReadingError, match="MB/sec"):
        found(deepspeed_io, "E2E Read Speed = 12.3 MB/sec\n")


# What the larger collection says, worked out from the files


def test_sample_fio_seqread():
    finding = sample(fio, "fio/seqread_fio3.33.json")
    assert finding.tool == "fio 3.33 JSON"
    assert rates(finding) == [("drive", "host", 1_529_580_569.0, "read", "alone", 2**20, 8, 1, 27)]
    assert facts(finding, "s")[0][1] == pytest.approx(5.477245587859e-3)


def test_sample_fio_mixed_is_of_the_page_cache():
    finding = sample(fio, "fio/mixed_fio3.33_normal_then_json.txt")
    assert not finding.rates
    assert [fact[1:] for fact in facts(finding, "B/s")] == [(1_642_220_484.0, 30), (697_091_443.0, 92)]
    assert all("direct=0" in one for one in finding.odd) and finding.odd


def test_sample_fio_randrw():
    finding = sample(fio, "fio/nvme_fio3.16_randrw.json")
    assert rates(finding) == [
        ("drive0", "host", 348_743_777.0, "read", "both directions", 4096, 256, 1, 36),
        ("host", "drive0", 348_450_387.0, "write", "both directions", 4096, 256, 1, 95)]  # fmt: skip
    assert finding.rates[0].note.startswith("random, small requests")


def test_sample_fio_2():
    finding = sample(fio, "fio/old_multi_job.json")
    assert finding.tool == "fio 2.1.4 JSON"
    assert [(one.source, one.rate / 1024, one.line) for one in finding.rates] == [
        ("host", 68118, 63),
        ("drive", 129836, 212),
        ("host", 6443, 463),
        ("drive", 1269, 612),
        ("drive", 1292, 812),
    ]
    assert {(one.size, one.depth) for one in finding.rates} == {(None, None)}
    assert facts(finding, "s")[0][1] == pytest.approx(0.47873747)


def test_sample_gdsio():
    finding = sample(gdsio, "gdsio/consumer_nvme_6runs.txt")
    expected = [("host", "drive", 0.940200, 4096, "host"), ("gpu", "drive", 0.947653, 4096, "bounce"),
                ("gpu", "drive", 0.976612, 4096, "GPU-direct"), ("drive", "host", 1.834943, 256, "host"),
                ("drive", "gpu", 1.495762, 256, "bounce"), ("drive", "gpu", 1.833908, 256, "GPU-direct")]  # fmt: skip
    assert [(one.source, one.destination, pytest.approx(one.rate / GIB), (one.size or 0) / 1024, one.note.split()[0])
            for one in finding.rates] == expected  # fmt: skip
    assert [one.line for one in finding.rates] == [1, 2, 3, 4, 5, 6] and {one.depth for one in finding.rates} == {1}
    assert facts(finding, "s")[3][1] == pytest.approx(133.045984e-6) and not finding.odd


def test_sample_deepspeed():
    finding = sample(deepspeed_io, "deepspeed/ds_nvme_tune.txt")
    assert [(one[:2], pytest.approx(one[2] / GIB), one[5:]) for one in rates(finding)] == [
        (("drive", "host"), 3.69, (2**20, 256, 1, 2)),
        (("host", "drive"), 3.18, (2**20, 256, 1, 2)),
    ]
    finding = sample(deepspeed_io, "deepspeed/ds_aio_log.txt")
    assert [(one.access, pytest.approx(one.rate / GIB), one.line) for one in finding.rates] == [
        ("read", 12.323337169333062, 4)
    ]
    assert facts(finding, "B/s")[0][1:] == (pytest.approx(12.342926020792527 * GIB), 2)
