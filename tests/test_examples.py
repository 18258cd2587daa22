"""Every example asks a question in its first comment, and its report answers it, in words that stand here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from offload import cli, evaluate, load_plan
from offload.documents.settings import read_setting
from offload.study import Study

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.yaml"))
# Of a change: the expected time, and what it gains or loses.
GAIN, LOSS = r"[\d.]+ m?s +[1-9][\d.]* x", r"[\d.]+ m?s +0\.\d+ x, slower"

ANSWERS = {
    "405b-from-drives": rf"ssd0\.read +405\.9 GB .*twice the drives of ssd0, each on a link of its own +{GAIN}",
    "a-whole-request": r"First token after 2\.\d+ s.*256 tokens over the whole request",
    "by-hand": r"pcie0\.hbm0 +42\.24 GB .*Behind compute: [\d.]+ % of the time",
    "cached-prefix": r"loading wins, [\d.]+ x as fast.*as fast as computing at",
    "eight-gpus": rf"layers in turn on hbm0\.\.7, instead of each split over all +{LOSS}",
    "expert-cache": rf"without the cache of experts in hbm0 +{LOSS}",
    "expert-prefetch": rf"without fetching experts ahead: all once the router has run +{GAIN}",
    "experts-on-eight-gpus": r"Between processors.*all-to-all +[\d.]+ us +[\d.]+ us +[\d.]+ ms +\d\.\d+ %",
    "eight-gpus-read-one-socket": r"Within them what binds is open: dram0 or upi0\.socket1",
    "experts-on-the-cpu": r"expected \(2 buffers\) +[\d.]+ ms.*stream to gpu0 what runs elsewhere",
    "experts-on-two-sockets": r"experts with numa: interleave instead of duplicate +[\d.]+ ms +buys nothing.*"
                              r"Not modelled.*numa: .*reads of another socket's memory are",
    "kv-in-blocks": rf"KV in one copy a layer instead of in blocks +{GAIN}",
    "kv-on-the-host": rf"without attention on cpu0: the KV that lies elsewhere is copied +{LOSS}.*"
                      r"all KV with its layer, where that runs \(does not fit: hbm0 lacks",
    "kv-over-three-tiers": r"no schedule on this machine is faster.{,200}load / peak\s+m2\.socket0",
    "layers-in-turn-on-two-gpus": rf"each layer split over hbm0\.\.1, instead of layers in turn +{GAIN}",
    "layers-split-over-two-gpus": rf"layers in turn on hbm0\.\.1, instead of each split over all +{LOSS}",
    "llama-3-70b-from-two-drives": rf"42 layers in hbm0 instead of 0 \(all that fit\) +{GAIN}",
    "llama-3.1-70b-desktop": rf"expected \(2 buffers\).*stream to gpu0 the layers that run elsewhere +{LOSS}",
    "own-server": r"dram0 +[\d.]+ GB .* binds.*cpu0\.reads and dram0 twice as fast",
    "phases-chunked-prefill": r"First token after 10\.\d s",
    "phases-crossover": r"from \d[\d,]* tokens in a pass",
    "phases-speculation": rf"without speculation +{LOSS}",
    "phases-speculation-run": r"Without speculation the whole request takes 2\d\d s, [1-9][\d.]* x as long\.",
    "prefill-for-another-server": r"1\.074 GB of KV go to hbm1, .* by themselves\.",
    "replay-from-a-drive": r"disk0\.read +335\.5 MB / 640 MB/s.*expected \(2 buffers\) +52\d ms",
    "replay-from-the-page-cache": r"expected \(2 buffers\) +1[5-9](\.\d+)? ms",
    "replicas-of-four-gpus": rf"one replica of all 8 of gpu0\.\.7 \(tensor parallel\) instead of 2 of 4 each +{GAIN}.*"
                             rf"one replica alone, with 32 of 64 sequences +{LOSS}",
    "replicas-that-fetch-whole-layers": rf"upi0\.socket1 +.*replicas share the fetch and gather the rest +{GAIN}",
    "replicas-that-share-the-fetch": rf"each replica fetches whole layers +{LOSS}",
    "replicas-that-share-the-cpu": r"one replica alone, with 1 of 2 sequences +4\d\d ms +0\.97\d* x, slower",
    "tensor-parallel-in-the-switch": r"all-reduce +193\.3 GB .*Between processors.*"
                                     r"all-reduce +[\d.]+ ms +[\d.]+ us +[\d.]+ ms +2\d\.\d %",
    "tensors-outside-layers": rf"without tensors by pattern: each with its layer +{GAIN}",
    "tensors-by-pattern": rf"without tensors by pattern: each with its layer \(does not fit: [^)]+\) +{GAIN}",
    "three-tiers": r"load / peak\s+m2\.socket0",
    "train-3b-zero-offload": rf"without the delay: the update ends before the next step begins +{LOSS}",
    "train-8b-zero-infinity": r"ssd0\.write +96\.36 GB",
    "train-checkpoints-in-host-memory": r"Behind compute: 100 %.*checkpoints in the GPU's memory +\S+ s +buys nothing",
    "train-twin-flow": rf"without optimizer states on the GPU \(gpu_share: 0\) +{LOSS}",
    "train-with-gradient-clipping": rf"without gradient clipping +{GAIN}",
    "two-desktops-over-ethernet": r"Between processors.*hidden row +[\d.]+ us +[\d.]+ us +[\d.]+ us +0\.\d+ %",
    "weights-block-swap": r"Expected [\d.]+ s/it; 20 iterations.*Behind compute: [\d.]+ %",
    "weights-cxl-interleaved": rf"layers in dram0 alone instead of dram0 \+ cxl0 +{LOSS}.*89\.4% in dram0, 10\.6%",
    "weights-flexgen": r"batch 2,097 instead of 8, from which hbm0 binds and pcie0\.hbm0 no longer does \(does not",
    "weights-gpu-direct": r"load / peak\s+m2\.socket0",
    "weights-page-cache": rf"with what fits pinned \(mlock\) +{GAIN}.*all weights in dram0 instead of mapped +{GAIN}",
    "weights-page-cache-experts": r"experts +1\.01 GB +ssd0 +dram0.*1\.01 GB are read in each, the mean over steps",
    "weights-pageable": rf"pinned host memory instead of pageable +{GAIN}",
    "weights-split-rows": rf"all rows on cpu0 instead of split +{LOSS}",
    "weights-zero-copy": rf"expected \(2 buffers\).*copied instead of read over the link +{GAIN}",
}


def test_every_example_has_its_answer():
    assert sorted(ANSWERS) == sorted(path.stem for path in EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_asks_first(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# yaml-language-server: ")
    asked = []
    for line in lines[1:]:
        if not line.startswith("# "):
            break
        asked.append(line[2:])
    assert "?" in " ".join(asked)


@pytest.mark.few
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_report_answers(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main(["step", str(path)]) == 0
    captured = capsys.readouterr()
    assert "Floor" in captured.out and captured.err == ""
    assert re.search(ANSWERS[path.stem], captured.out, re.S), ANSWERS[path.stem]


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "change", "keys"),
    [
        ("expert-cache", "without the cache of experts in hbm0", ["placement.experts.cache"]),
        ("expert-prefetch", "without fetching experts ahead", ["placement.experts.prefetch"]),
        ("kv-on-the-host", "all KV with its layer", ["placement.kv", "placement.attention"]),
        ("kv-in-blocks", "KV in one copy a layer", ["placement.kv_block"]),
        ("phases-speculation", "without speculation", ["speculation"]),
        ("train-twin-flow", "without optimizer states on the GPU", ["training.gpu_share"]),
        ("train-3b-zero-offload", "without the delay", ["training.delayed"]),
        ("train-with-gradient-clipping", "without gradient clipping", ["training.gradient_clipping"]),
        ("weights-pageable", "pinned host memory instead of pageable", ["placement.host_memory"]),
        ("weights-zero-copy", "weights that live elsewhere copied", ["placement.access"]),
        ("tensors-by-pattern", "without tensors by pattern", ["placement.tensors"]),
        ("replicas-that-share-the-fetch", "each replica fetches whole layers", ["placement.parallel.fetch"]),
    ],
)
def test_a_change_is_the_file_without_the_key(name, change, keys, tmp_path):
    """What the report says of a technique undone is what the same file without its key comes to."""
    path = next(path for path in EXAMPLES if path.stem == name)
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in keys:
        *above, last = key.split(".")
        place = text
        for step in above:
            place = place[step]
        del place[last]
        if key == "placement.parallel.fetch":
            place.pop("algorithm")
        if last in ("cache", "prefetch"):
            place["access"] = "on_demand"  # which either of them implies
    less = tmp_path / "less.yaml"
    less.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    found = [one for one in study(path).changes if one.what.startswith(change)]
    alone = study(less)
    assert [one.seconds for one in found] == [pytest.approx(alone.overlapped.seconds, rel=1e-9)]
    assert found[0].floor_seconds == pytest.approx(alone.floor.seconds, rel=1e-9)
    assert ("(does not fit" in found[0].what) != alone.fits


@pytest.mark.slow
def test_the_batch_from_which_a_link_no_longer_binds():
    """The batch that is named is the least: one sequence less, and the link still binds at sustained rates."""
    path = next(path for path in EXAMPLES if path.stem == "weights-flexgen")
    (change,) = [one for one in study(path).changes if "no longer does" in one.what]
    batch = int(re.match(r"batch ([\d,]+) instead of 8, ", change.what)[1].replace(",", ""))
    less, more = (study(path, f"workload.batch={count}").floor_sustained.bottleneck for count in (batch - 1, batch))
    assert less == ("pcie0.hbm0",) and more == ("hbm0",)


def study(path: Path, *settings: str) -> Study:
    plan, topology = load_plan(path, settings=[read_setting(one) for one in settings])
    return evaluate(topology, plan)
