# make setup   prepare .venv                     make demo   observe a real torch.compile run, serve the dashboard, and
#                                                            measure a history of versions meanwhile (HISTORY=no: none)
# make test    every check, one test of each kind      PYTHON=…    the interpreter to build on (its torch is used if it has one)
# make nightly the tests beyond: .ci/nightly installs what they need
# make versions TORCH="2.4.1 2.13.0"   the collector with other versions of torch (default: one of each release), written
#                                                            to docs/compatibility.md; WHOLE=1: every test that needs torch
# make dist     the wheel and the sdist, tried in clean environments of Python 3.10 to 3.14: two at least, or all of
#               PYTHONS="3.11 3.14"
# make mutants MODULE=app/incidents/change_points.py [TESTS=…]       change a module in every small way; which changes do tests see?
# make site    the public demo, what H200 machines recorded, as a static site in out/site; make pictures takes README's pictures of it
# make demo PORT=9000 DB=team.db                 make lint | types | contracts | unit   one part of the checks
PYTHON ?= python3
SPREAD := -n 3 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=10
PORT := 8000
DB := compileboard.db
# no: none; again: once more; else the backend to measure it with (default inductor on a GPU, eager on a CPU)
HISTORY :=
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/ready

# A PYTHON given on the command line that .venv was not built on means: build it again.
ifeq ($(origin PYTHON),command line)
ifneq ($(shell cat $(READY) 2>/dev/null),$(PYTHON))
$(shell rm -f $(READY))
endif
endif

TORCH := 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0

.PHONY: setup demo site pictures test tests nightly versions lint types contracts unit mutants fuzz dist

setup: $(READY)

$(READY): pyproject.toml requirements.txt constraints.txt .ci/setup
	@PYTHON="$(PYTHON)" VENV="$(VENV)" .ci/setup

HISTORY_OPTIONS = $(if $(filter again,$(HISTORY)),--again,$(addprefix --backend ,$(HISTORY)))

SERVE = $(PY) -m app serve --db $(DB) --port $(PORT)

demo: setup
	@echo "demo: recording a small program; torch takes half a minute to compile it"
	@echo "demo: ---- output of the program: what torch warns of here is what the dashboard will explain ----"
	@$(PY) -m collectors run --db $(DB) --name demo --suite demo -- $(PY) -m examples.demo_program
	@echo "demo: ---- end of the program's output ----"
	@echo "demo: open http://127.0.0.1:$(PORT)/runs?suite=demo and choose the run demo: its graph breaks, its recompiles,"
	@echo "demo: and the function that reached the recompile limit, with what to do about each"
ifeq ($(HISTORY),no)
	@$(SERVE)
else
	@$(PY) -m examples.demo_history --db $(DB) --port $(PORT) $(HISTORY_OPTIONS) -- $(SERVE)
endif

site: setup
	$(PY) -m tests.tools.public_demo out/site

pictures: setup
	$(PY) -m tests.browser.pictures

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	[ ! -x $(VENV)/bin/biome ] || $(VENV)/bin/biome lint --error-on-warnings static/js

types: setup
	$(VENV)/bin/mypy

contracts: setup
	$(VENV)/bin/lint-imports --no-cache

unit: setup
	$(PY) -m pytest tests/unit -q

mutants: setup
	$(PY) -m tests.tools.mutants $(MODULE) $(TESTS)

fuzz: setup
	COMPILEBOARD_FUZZ_EXAMPLES=$(or $(EXAMPLES),200) $(PY) -m pytest -q tests/contract/test_fuzzed_api.py

# The tests begin at once, and mypy and the import contracts run beside them.
test: lint
	@$(MAKE) --no-print-directory -j2 tests types contracts

# In the order of tests/conftest.py: xdist's own begins with files of many tests and ends with a worker alone at the
# longest ones. Three at once, on two cores: a fifth of the time all tests of two workers waited.
tests: setup
	$(PY) -m pytest -m "not nightly" $(SPREAD)

# What `make test` has one of each, the others; and what needs libraries and programs that .ci/nightly installs.
nightly: setup
	COMPILEBOARD_REQUIRE_ALL=1 $(PY) -m pytest -m nightly $(SPREAD)

# Beside the standard library it needs nothing, .venv neither.
dist:
	@$(PYTHON) -m tests.tools.dist $(PYTHONS)

versions:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" TESTS="$(TESTS)" WHOLE="$(WHOLE)" .ci/versions
