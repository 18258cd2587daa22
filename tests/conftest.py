"""What every test shares: long tests only on request, and property tests that do not depend on this machine's speed."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("offload", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("offload")


def pytest_collection_finish() -> None:
    """The thousands of tests themselves are no garbage: nobody looks for it among them again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests, and all but the first of the cases of a test that has many, run only with OFFLOAD_SLOW=1."""
    if os.environ.get("OFFLOAD_SLOW") == "1":
        return
    long, further = (pytest.mark.skip(reason=f"{what}; set OFFLOAD_SLOW=1") for what in ("long", "a further case"))
    begun = set()
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(long)
        elif "few" in item.keywords:
            test = item.nodeid.partition("[")[0]
            if test in begun:
                item.add_marker(further)
            begun.add(test)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's width and colour depend on the test, not on the terminal that the tests run in."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
