"""The command line: what is printed where, exit statuses, and what is not imported."""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload import __version__, cli
from offload.errors import CapacityError, OffloadError
from offload.plan import UNLIMITED, Overlap
from offload.verbs import options, step, unknown_options
from tests.commands import run

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/llama-3.1-70b-desktop.yaml"
OUTPUTS = Path(__file__).parent / "data" / "outputs"
WORDS = ["step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "38"]


def process(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without this one's settings of colour and width."""
    cleared = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    cleared["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "offload", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=cleared | environment, capture_output=True, encoding="utf-8", timeout=120
    )


def modules_after(*commands: Sequence[str]) -> set[str]:
    """The top-level modules that are loaded once the commands have run, one after another in a new process."""
    script = (
        "import json, sys\nfrom offload.cli import main\nstatus = max(map(main, json.loads(sys.argv[1])))\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)\nsys.exit(status)"
    )
    command = [sys.executable, "-c", script, json.dumps(commands)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


# --- words ---


def test_version_and_help_go_to_standard_output(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"offload {__version__}\n"
    for arguments in (["--help"], ["step", "--help"]):
        assert cli.main(arguments) == 0
        captured = capsys.readouterr()
        assert captured.out.startswith("usage: offload") and captured.err == ""


def test_alone_it_shows_its_questions_on_one_screen(capsys):
    assert cli.main([]) == 0
    screen = capsys.readouterr().out
    assert screen.count("\n") <= 24 and max(map(len, screen.splitlines())) <= 100
    assert screen.isascii()


@pytest.mark.few
@pytest.mark.parametrize("line", [x.strip() for x in cli.SCREEN.splitlines() if x.startswith("  ")
                                  and x != "  offload validate"])  # fmt: skip
def test_each_question_shown_works(line, tmp_path):
    """As printed; only the names that stand for a person's own file are replaced. The one of all cases: test_cases."""
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    words = shlex.split(line)
    assert words[0] == "offload"
    own = {"path/to/config.json": str(path), "plan.yaml": EXAMPLE, "floor.svg": str(tmp_path / "floor.svg"),
           "lstopo.xml": str(OUTPUTS / "hwloc_two_gpus_v2.xml"), "nvbandwidth.txt": str(OUTPUTS / "nvbandwidth.txt"),
           "my-box.yaml": str(tmp_path / "my-box.yaml"), "run.log": "tests/data/logs/why_llama2.md"}  # fmt: skip
    done = run(*(own.get(word, word) for word in words[1:]))
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stpe", "x"], "invalid choice"),
        (["step"], "TARGET"),
        (["step", "m", "--gpu-layers", "-1"], "whole number of at least 0"),
        (["step", "m", "--gpu-layers", "38.5"], '"38.5" is not a whole number'),
        (["step", "m", "--batch", "0"], "at least 1"),
        (["step", "m", "--batch", "1_000"], "whole number"),
        (["step", "m", "--context", "4k"], "whole number"),
        (["step", "m", "--buffers", "0"], "neither a number of buffers"),
        (["step", "m", "--buffers", "many"], "none or full"),
        (["step", "m", "--gpu", "1"], "there is no option --gpu. --help lists all."),
        (["memory", "m", "--requests", "1", "--gpu-layer", "3"], '--gpu-layer. Did you mean "--gpu-layers"?'),
        (["memory", "m", "--requests", "1", "--compute", "gpu0..7"], "for offload memory. Write --tp 8 (offload step"),
        (["memory", "m", "--requests", "1", "--compute=gpu0,gpu3"], "Write --tp 2 ("),
        (["memory", "m", "--requests", "1", "--compute", "local"], "Write --tp N ("),
        (["memory", "m", "--requests", "1", "--batch", "8"], "Write --requests 8xLENGTH ("),
        (["step", "m", "--tp", "4"], "Write --compute gpu0..3 (offload memory and plot concurrency have --tp)."),
        (["step", "m", "--requests", "fixed 20"], "Write --batch N and --context N ("),
        (["topology", "show", "m", "--set", "a=b"], "no option --set for offload topology show. offload step, report"),
        (["topology", "list", "--onto", "m"], "offload topology import has it;"),
        (["sweep", "m", "--output", "x.csv"], "for offload sweep. Write -o."),
        (["--foo"], "there is no option --foo. --help lists all."),
        (["--debug", "step", "m"], "no option --debug before the verb. Write it behind: offload step ... --debug"),
        (["memory", "m"], 'are required: --requests (as --requests "fixed 8192").'),
        (["memory", "m", "--context", "4096"], 'no option --context for offload memory. Write --requests "fixed 4096"'),
        (["memory", "m", "--context"], 'Write --requests "fixed 8192"'),
        (["need", "m"], "are required: --target (as --target 10tok/s)."),
        (["report", "m"], "are required: -o/--output (as -o FILE)."),
    ],
)
def test_wrong_words_are_bad_input(arguments, said, capsys):
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err


def test_an_option_of_another_verb_is_not_taken_for_one_that_is_spelled_alike(capsys):
    root = cli._parser()
    verbs = next(one.choices for one in root._actions if isinstance(one, argparse._SubParsersAction))
    of_some = {option for verb in verbs.values() for option in verb._option_string_actions if option.startswith("--")}
    tried = 0
    for verb in ("memory", "model", "why", "check"):
        for option in sorted(of_some - verbs[verb]._option_string_actions.keys()):
            assert cli.main([verb, "m", option, "1"]) == 2
            message = capsys.readouterr().err
            assert f"there is no option {option} for offload {verb}. " in message and "Did you mean" not in message
            tried += 1
    assert tried > 60


def test_each_option_named_instead_is_one_of_the_verb():
    root = cli._parser()
    verbs = next(one.choices for one in root._actions if isinstance(one, argparse._SubParsersAction))
    for (verb, option), instead in unknown_options.INSTEAD.items():
        known = verbs[verb]._option_string_actions
        named = re.findall(r"--[a-z-]+", instead("gpu0..1"))
        assert option not in known and named and set(named) <= known.keys()


def test_buffers_are_a_number_none_or_full():
    read = [options.overlap(text) for text in ("2", "none", "full")]
    assert read == [Overlap("buffers", 2), Overlap("none"), Overlap("buffers", UNLIMITED)]


def test_what_a_target_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text('{"model_type": "llama"}')
    Path("my-model.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    Path("plan.json").write_text('{"topology": "gh200"}')
    Path("folder").mkdir()
    Path("folder/plan").write_text("topology: gh200")
    plans = ["any.yaml", "any.YML", "plan.json", "folder/plan"]
    models = ["llama-3.1-70b", "llama-3.1-70b:q4_k_m", "./config.json", "my-model.json", "folder", "a/b:c"]
    assert [step.is_plan_file(target) for target in plans] == [True] * len(plans)
    assert [step.is_plan_file(target) for target in models] == [False] * len(models)


# --- errors and exit statuses ---


def fail_with(error: BaseException, monkeypatch) -> None:
    def run(_):
        raise error

    monkeypatch.setattr(step, "run", run)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (OffloadError("line 3: no such node."), 2, "offload: line 3: no such node.\n"),
        (CapacityError("hbm0 lacks 1 GB."), 1, "offload: hbm0 lacks 1 GB.\n"),
        (FileNotFoundError(2, "No such file", "x.yaml"), 2, "offload: x.yaml: No such file.\n"),
        (ZeroDivisionError("division by zero"), 70, "internal error (ZeroDivisionError: division by zero)"),
        (KeyError("lost"), 70, "please report it"),
        (RecursionError("too deep"), 70, "please report it"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_errors_have_a_status_and_no_traceback(error, status, said, monkeypatch, capsys):
    fail_with(error, monkeypatch)
    monkeypatch.setattr(cli, "_silence", lambda stream: None)
    assert cli.main(["step", "x"]) == status
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and "Traceback" not in captured.err


@pytest.mark.parametrize(("error", "status"), [(OffloadError("wrong"), 2), (KeyError("lost"), 70)])
def test_debug_adds_the_traceback_and_keeps_the_status(error, status, monkeypatch, capsys):
    fail_with(error, monkeypatch)
    assert cli.main(["step", "x", "--debug"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_a_model_needs_a_server(capsys):
    assert cli.main(["step", "llama-3.1-70b:q4_k_m"]) == 2
    said = capsys.readouterr().err
    assert "--on is missing" in said and "desktop-4090" in said and "gh200" in said


def test_a_plan_file_and_words_that_it_holds_do_not_mix(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert cli.main(["step", EXAMPLE, "--batch", "4", "--kv", "dram0"]) == 2
    said = capsys.readouterr().err
    assert "--kv and --batch" in said and "Edit the file" in said


def test_a_file_that_is_not_there_is_bad_input(tmp_path):
    done = process("step", "nowhere.yaml", cwd=tmp_path)
    assert done.returncode == 2 and "nowhere.yaml" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["step", "llama-3.1-70x:q4_k_m", "--on", "desktop-4090"],
        ["step", "llama-3.1-70b:q4_k_x", "--on", "desktop-4090"],
        ["step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4091"],
        [*WORDS, "--kv", "hbm7"],
        [*WORDS, "--compute", "gpu7"],
        [*WORDS, "--reserve", "1.5"],
        [*WORDS, "--reserve", "1,5 GB"],
        ["step", "llama-3.1-70b:q4_k_m", "--on", "desktop-4090", "--gpu-layers", "81"],
    ],
)
def test_wrong_names_and_figures_are_refused_in_words(wrong, capsys):
    assert cli.main(wrong) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("offload: ") and "internal" not in captured.err


# --- the main job ---


@pytest.mark.slow
def test_the_example_prints_a_report_without_colour_or_warnings():
    done = process("step", EXAMPLE)
    assert done.returncode == 0 and done.stderr == ""
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "Read or moved each step" in done.stdout and "times add" in done.stdout
    assert run("step", EXAMPLE).stdout == done.stdout


def test_the_example_and_the_words_are_the_same_question():
    file, words = (json.loads(run(*arguments, "--json").stdout) for arguments in (["step", EXAMPLE], WORDS))
    for answer in (file, words):
        answer.pop("title")
    assert file == words


@pytest.mark.slow
def test_a_narrow_terminal_and_plain_ascii_do():
    narrow = run("step", EXAMPLE, COLUMNS="40")
    assert narrow.returncode == 0 and max(map(len, narrow.stdout.splitlines())) <= 40
    ascii_only = process("step", EXAMPLE, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert ascii_only.returncode == 0 and ascii_only.stdout.isascii()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_colour_where_it_is_not_wanted(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for wanted, value in ((True, ""), (False, "1")):
        monkeypatch.setenv("NO_COLOR", value)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        assert cli.main(["step", EXAMPLE]) == 0
        assert ("\x1b[" in terminal.getvalue()) is wanted


@pytest.mark.slow
def test_what_does_not_fit_exits_one_and_says_what_is_missing():
    full = [*WORDS[:-1], "60"]
    done = process(*full)
    assert done.returncode == 1 and done.stderr == ""
    assert "DOES NOT FIT: hbm0 lacks" in done.stdout and "tokens/s" not in done.stdout
    answer = run(*full, "--json")
    assert answer.returncode == 1 and json.loads(answer.stdout)["fits"] is False
    computed = run(*full, "--ignore-capacity")
    assert computed.returncode == 0 and "DOES NOT FIT" in computed.stdout and "tokens/s" in computed.stdout
    assert json.loads(run(*full, "--ignore-capacity", "--json").stdout)["fits"] is False


def test_buffers_may_be_given_beside_a_plan_file():
    one = json.loads(run("step", EXAMPLE, "--buffers", "none", "--json").stdout)
    assert one["overlapped"]["seconds"] == pytest.approx(one["serial"]["seconds"], rel=1e-9)


def test_a_reader_that_goes_away_is_no_error():
    command = f"{shlex.quote(sys.executable)} -m offload step {EXAMPLE} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.stderr == "" and done.returncode in (0, cli.PIPE_CLOSED)


# --- imports ---


@pytest.mark.few
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device here")
@pytest.mark.parametrize("redirection, why", [("> /dev/full", "cannot be written"), (">&-", "output is closed")])
@pytest.mark.parametrize("words", ["", shlex.join(WORDS), shlex.join(WORDS) + " --json"])
def test_output_that_cannot_be_written_is_no_fault_of_ours(words, redirection, why):
    command = f"{shlex.quote(sys.executable)} -m offload {words} {redirection}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 2 and why in done.stderr and "fault" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.few
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device here")
@pytest.mark.parametrize("words, status", [("step --help > /dev/full", 2), ("step nope.yaml 2> /dev/full", 2),
                                           ("step nope.yaml > /dev/full 2> /dev/full", 2)])  # fmt: skip
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_status_where_nothing_can_be_said(words, status, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    command = f"{shlex.quote(sys.executable)} -m offload {words}"
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, timeout=120)
    assert done.returncode == status and b"Exception" not in done.stderr


def test_every_option_that_a_plan_file_says_already_is_refused(capsys):
    """All options of the group "without a plan file", whatever they are: each with the setting that says the same."""
    parser = argparse.ArgumentParser()
    step.add(verbs := parser.add_subparsers())
    group = next(one for one in verbs.choices["step"]._action_groups if one.title == "without a plan file")
    names = [action.option_strings[-1] for action in group._group_actions]
    assert {"--on", "--prompt", "--generate", "--compute"} <= set(names)
    for name in names:
        assert cli.main(["step", str(ROOT / EXAMPLE), name, "1"]) == 2
        text = capsys.readouterr().err
        assert f"already says what {name} would" in text and ("-t SERVER" in text or "--set " in text)


@pytest.mark.few
@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be removed there")
@pytest.mark.parametrize("target", ["config.json", "./plan.yaml", "plan.yaml"])
def test_a_folder_that_is_gone(tmp_path, target):
    (tmp_path / "gone").mkdir()
    words = f"step {target}" + (" --on desktop-4090" if target == "config.json" else "")
    script = f"cd gone && rmdir ../gone && {shlex.quote(sys.executable)} -m offload {words}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, shell=True, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8",
                          timeout=120)  # fmt: skip
    assert done.returncode == 2 and "No such file" in done.stderr and "fault" not in done.stderr


def test_help_says_the_defaults(capsys):
    cli.main(["step", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "default: as many as fit" in text and "default 4096" in text and "default 1" in text


def test_help_loads_nothing_heavy():
    heavy = {"numpy", "networkx", "pydantic", "rich", "yaml", "quantiphy", "numba", "matplotlib", "scipy"}
    assert not modules_after((), ("--help",), ("step", "--help"), ("--version",)) & heavy


@pytest.mark.slow
def test_a_step_loads_no_compiler_and_no_plots():
    loaded = modules_after(("step", EXAMPLE), ("step", EXAMPLE, "--json"), WORDS)
    assert "yaml" in loaded and not loaded & {"numba", "llvmlite", "matplotlib", "scipy", "pandas"}


# --- README ---


def readme_block(marker: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no block after <!-- {marker} -->"
    return found[1].rstrip("\n")


def test_readme_has_two_commands_of_one_line():
    main_job, tests = readme_block("command:main"), readme_block("command:test")
    install = 'python3 -m venv "${VENV:-.venv}" && "${VENV:-.venv}/bin/pip" install -q -e '
    assert main_job == f'{install}. && "${{VENV:-.venv}}/bin/offload" step {EXAMPLE}'
    assert tests == f"{install}'.[test]' && \"${{VENV:-.venv}}/bin/python\" -m pytest -n auto --dist worksteal"


def test_continuous_integration_runs_the_readme_line():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    finder = re.search(r"awk '(.*?)' README\.md", text, re.DOTALL)[1]
    found = subprocess.run(["awk", finder, "README.md"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert found.stdout.strip() == readme_block("command:test")
    assert "OFFLOAD_SLOW=1" in text and "mktemp" in text


def test_the_report_in_the_readme_is_the_real_one():
    """An excerpt: its lines stand in the real report, in that order; "..." stands for lines left out."""
    lines = readme_block("report:start").splitlines()
    real = iter(run("step", EXAMPLE).stdout.splitlines())
    assert len([line for line in lines if line.strip() and line != "..."]) >= 10
    for line in lines:
        if line != "...":
            assert any(line.rstrip() == other.rstrip() for other in real), f"not there, or out of order: {line}"


def test_the_python_in_the_readme_runs(monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippet = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    monkeypatch.chdir(ROOT)
    exec(compile(snippet, "README.md", "exec"), {})
    seconds, rule, expected = capsys.readouterr().out.split()
    assert float(seconds) <= float(expected) and rule in ("load", "cycle")


def test_a_file_cannot_steer_the_terminal(tmp_path, capsys):
    """Characters of a file that a terminal would act on (here one that turns the reading order) are spelled out."""
    path = tmp_path / "plan.yaml"
    path.write_text("topology: gh200\n\u202etensors: {}\ntasks: {}\n", encoding="utf-8")
    assert cli.main(["step", str(path)]) == 2
    text = capsys.readouterr().err
    assert "\u202e" not in text and "\\u202e" in text and text.count("\n") > 1


def test_garbage_is_sought_rarely_in_a_process_of_our_own_only(monkeypatch):
    before = gc.get_threshold()
    try:
        assert cli.main(["topology", "list", "gh200"]) == 0 and gc.get_threshold() == before
        monkeypatch.setattr(sys, "argv", ["offload", "topology", "list", "gh200"])
        assert cli.main() == 0 and gc.get_threshold() == cli.COLLECTIONS
    finally:
        gc.set_threshold(*before)
