"""What every test shares: hypothesis profiles, and the recordings of real agent sessions."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import certifi
import hypothesis
import pytest

from tests.fakes import real_pi
from tests.fakes.kept_sessions import KeptSessions
from tests.fakes.pooler import NO_PGBOUNCER
from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.samples import SOAK

REPOSITORY = Path(__file__).resolve().parent.parent
NO_RECORDINGS = "recordings are not here"
NO_CHROMIUM = "there is no chromium"
NO_AXE = "there is no axe-core"
CHECKED = ("tests/unit/", "tests/conformance/")
"""Folders whose tests `make check` runs, except the tests with a marker in `LATER`."""
LATER = frozenset({"full_only", "all_only"})
TESTS_LOOKED_AT = 400
"""Number of tests after which the objects that they left are excluded from garbage collection."""
NO_PI = "pi's npm package is not installed"
NO_AGENT_PROGRAM = "the npm package of an agent program is not installed"
NO_SUITES = "the published tests of frameworks are not here"

# A key of the user's marks is made here, and not in the home folder of whoever runs the tests.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="perdure-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

# Each HTTP client loads all certificates that it trusts, in 0.04 CPU-seconds. The tests talk to
# servers on loopback without TLS, so that one certificate is enough.
CERTIFICATE_END = "-----END CERTIFICATE-----\n"
os.environ["SSL_CERT_FILE"] = str(Path(os.environ["XDG_DATA_HOME"], "one.pem"))
Path(os.environ["SSL_CERT_FILE"]).write_text(
    certifi.contents().partition(CERTIFICATE_END)[0] + CERTIFICATE_END, encoding="utf-8"
)

# A shell ignores SIGINT in the commands it starts in the background, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Random on purpose: each run looks somewhere new. A failure prints the `@reproduce_failure` line
# that repeats it. CI looks at the same places each time: it judges a change, it does not search.
# No deadline, and no complaint of slow examples: a shared machine stalls longer than any limit.
hypothesis.settings.register_profile(
    "default",
    derandomize="CI" in os.environ,
    print_blob=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    max_examples=12,
)
# `make test-all` looks at more examples of each property than `make test`.
hypothesis.settings.register_profile(
    "whole", hypothesis.settings.get_profile("default"), max_examples=100
)
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("default"), max_examples=2_000
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
hypothesis.settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `make check`, and remove the time limit of tests in `make soak`."""
    for item in items:
        if item.nodeid.startswith(CHECKED) and not LATER.intersection(_names(item)):
            item.add_marker("checked")
        if SOAK in os.environ:
            item.add_marker(pytest.mark.timeout(0), append=False)


def _names(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn garbage collection off while pytest collects the tests, then freeze their objects.

    The garbage collector never scans frozen objects. The objects of the tests are needed until the
    end of the run. To scan the objects of the tests repeatedly would take a third of the time of
    the run, and to scan them only once, before the freeze, would take a second in each process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


_finished = count(1)


def pytest_runtest_logfinish() -> None:
    """Collect the garbage of finished tests from time to time, and freeze the remaining objects."""
    if next(_finished) % TESTS_LOOKED_AT == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Return the folder of recorded sessions; skip the test if the folder is missing.

    A folder named by $PERDURE_RECORDINGS must exist, because a user who names a folder wants the
    tests of recordings to run.
    """
    named = os.environ.get("PERDURE_RECORDINGS")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data" / "recordings"
    if folder.is_dir():
        return folder
    if named:
        pytest.fail(f"PERDURE_RECORDINGS names no folder: {named}")
    pytest.skip(f"{NO_RECORDINGS} (set PERDURE_RECORDINGS)")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium; skip the test if Chromium is missing.

    A program named by $PERDURE_CHROMIUM must exist, because a user who names a program wants the
    tests of pages to run.
    """
    named = os.environ.get("PERDURE_CHROMIUM")
    found = shutil.which(named or "chromium")
    if found:
        return found
    if named:
        pytest.fail(f"PERDURE_CHROMIUM names no program: {named}")
    pytest.skip(f"{NO_CHROMIUM} (apt-get install chromium, or set PERDURE_CHROMIUM)")


@pytest.fixture(scope="session")
def axe() -> str:
    """Return the text of the axe-core script; skip the test if the script is missing."""
    script = REPOSITORY / ".programs" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip(f"{NO_AXE} (make programs)")
    return script.read_text()


@pytest.fixture(scope="session")
def real_pi_package() -> Path:
    """Return the folder of pi's npm package; skip the test if the package is missing.

    If $PERDURE_PI is set, its folder must contain the package, because a user who sets $PERDURE_PI
    wants the tests of pi to run.
    """
    package = real_pi.installed()
    if package is not None:
        return package
    named = os.environ.get(real_pi.NAMED)
    if named:
        pytest.fail(f"PERDURE_PI names no folder with pi's package, or there is no node: {named}")
    pytest.skip(f"{NO_PI} (make programs, or set PERDURE_PI)")


@pytest.fixture(scope="session")
def pi(real_pi_package: Path) -> Iterator[real_pi.RealPi]:
    """Run pi's own session manager for this test process."""
    with real_pi.running(real_pi_package) as program:
        yield program


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this test process, or the server in $PERDURE_TEST_POSTGRES."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def kept_sessions() -> KeptSessions:
    return KeptSessions()


@pytest.fixture
def warm_postgres(
    postgres: PostgresServer, kept_sessions: KeptSessions
) -> Iterator[PostgresServer]:
    """The server of this test process, whose sessions remain for the next test."""
    with kept_sessions.used():
        yield postgres


MISSING = (
    (NO_RECORDINGS, "RECORDINGS MISSING", "set PERDURE_RECORDINGS to their folder"),
    (NO_CHROMIUM, "CHROMIUM MISSING", "apt-get install chromium"),
    (NO_AXE, "AXE-CORE MISSING", "make programs (needs npm)"),
    (NO_PI, "PI MISSING", "make programs (needs node and npm)"),
    (NO_AGENT_PROGRAM, "AGENT PROGRAMS MISSING", "make programs (needs npm)"),
    (NO_PGBOUNCER, "PGBOUNCER MISSING", "apt-get install pgbouncer"),
    (NO_SUITES, "SUITES OF FRAMEWORKS MISSING", "make suites"),
)
"""For each reason of a skip: the title in the summary, and how to install what is missing."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped because an optional program or folder is missing."""
    reports = terminalreporter.getreports("skipped")
    for reason, title, remedy in MISSING:
        missing = sum(reason in str(report.longrepr) for report in reports)
        if missing:
            terminalreporter.write_line(
                f"{title}: {missing} tests skipped; {remedy}", yellow=True, bold=True
            )
