"""Every example asks a question in its first comment, and its report answers it, in words that stand here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload import cli

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.yaml"))
GAIN, LOSS = r"[\d.]+ m?s +[1-9][\d.]* x", r"[\d.]+ m?s +0\.\d+ x, slower"  # of a change: expected time, and what it gains

ANSWERS = {
    "a-whole-request": r"The whole request.*first token",
    "by-hand": r"pcie0\.hbm0 +42\.24 GB .* Behind compute: [\d.]+ % of the time",
    "cached-prefix": r"loading wins, [\d.]+ x as fast.*as fast as computing at",
    "eight-gpus": rf"layers in turn on hbm0\.\.7, instead of each split over all +{LOSS}",
    "expert-cache": rf"without the cache of experts in hbm0 +{LOSS}",
    "expert-prefetch": rf"without fetching experts ahead: all once the router has run +{GAIN}",
    "experts-on-eight-gpus": r"all-to-all",
    "experts-on-the-cpu": r"hand-over",
    "experts-on-two-sockets": r"experts with numa: interleave instead of duplicate +[\d.]+ ms +buys nothing",
    "kv-in-blocks": rf"KV in one copy a layer instead of in blocks +{GAIN}",
    "kv-on-the-host": rf"without attention on cpu0: the KV that lies elsewhere is copied +{LOSS}.*"
                      r"all KV with its layer, where that runs \(does not fit: hbm0 lacks",
    "kv-over-three-tiers": r"no schedule on this machine is faster.{,200}load / peak\s+m2\.socket0",
    "layers-in-turn-on-two-gpus": rf"each layer split over hbm0\.\.1, instead of layers in turn +{GAIN}",
    "layers-split-over-two-gpus": rf"layers in turn on hbm0\.\.1, instead of each split over all +{LOSS}",
    "llama-3-70b-from-two-drives": rf"42 layers in hbm0 instead of 0 \(all that fit\) +{GAIN}",
    "llama-3.1-70b-desktop": rf"expected \(2 buffers\).*stream to gpu0 the layers that run elsewhere +{LOSS}",
    "own-server": r"expected \(2 buffers\).*stream to gpu0 the layers that run elsewhere",
    "phases-chunked-prefill": r"first token",
    "phases-crossover": r"from \d[\d,]* tokens in a pass",
    "phases-speculation": rf"without speculation +{LOSS}",
    "prefill-for-another-server": r"when the prompt is done",
    "replicas-that-fetch-whole-layers": rf"upi0\.socket1 +.*replicas share the fetch and gather the rest +{GAIN}",
    "replicas-that-share-the-fetch": rf"each replica fetches whole layers +{LOSS}",
    "tensor-parallel-in-the-switch": r"all-reduce +193\.3 GB .*nvlink0\.\.7\.hbm0\.\.7 .* 25\.\d %",
    "tensors-by-pattern": rf"without tensors by pattern: each with its layer \(does not fit: hbm0 lacks [\d.]+ GB\) +{GAIN}",
    "three-tiers": r"load / peak\s+m2\.socket0",
    "train-3b-zero-offload": rf"without the delay: the update ends before the next step begins +{LOSS}",
    "train-8b-zero-infinity": r"ssd0\.write +96\.36 GB",
    "train-checkpoints-in-host-memory": r"Behind compute: 100 %.*checkpoints in the GPU's memory +[\d.]+ s +buys nothing",
    "train-twin-flow": rf"without optimizer states on the GPU \(gpu_share: 0\) +{LOSS}",
    "train-with-gradient-clipping": rf"without gradient clipping +{GAIN}",
    "two-desktops-over-ethernet": r"latency +63 us",
    "weights-block-swap": r"Expected [\d.]+ s/it; 20 iterations.*Behind compute: [\d.]+ %",
    "weights-cxl-interleaved": rf"layers in dram0 alone instead of dram0 \+ cxl0 +{LOSS}.*89\.4% in dram0, 10\.6% in cxl0",
    "weights-flexgen": r"batch 2,097 instead of 8, from which hbm0 binds and pcie0\.hbm0 no longer does \(does not fit: hbm0",
    "weights-gpu-direct": r"load / peak\s+m2\.socket0",
    "weights-page-cache": rf"with what fits pinned \(mlock\) +{GAIN}.*all weights in dram0 instead of mapped from ssd0 +{GAIN}",
    "weights-pageable": rf"pinned host memory instead of pageable +{GAIN}",
    "weights-split-rows": rf"all rows on cpu0 instead of split +{LOSS}",
    "weights-zero-copy": rf"expected \(2 buffers\).*copied instead of read over the link +{GAIN}",
}


def test_every_example_has_its_answer():
    assert sorted(ANSWERS) == [path.stem for path in EXAMPLES]


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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_report_answers(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert cli.main(["step", str(path)]) == 0
    captured = capsys.readouterr()
    assert "Floor" in captured.out and captured.err == ""
    assert re.search(ANSWERS[path.stem], captured.out, re.S), ANSWERS[path.stem]
