# make setup   prepare .venv                     make demo   observe a real torch.compile run and serve the dashboard
# make test    every check and every test        PYTHON=…    the interpreter to build on (its torch is used if it has one)
PYTHON ?= python3
PORT ?= 8000
DB ?= compileboard.db
VENV := .venv
PY := $(VENV)/bin/python
HAS_TORCH := $(PYTHON) -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"

.PHONY: setup demo test lint types contracts unit

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml requirements.txt constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "CompileBoard's dashboard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@if $(HAS_TORCH); then \
	  echo "using the torch that $(PYTHON) already has"; \
	  $(PYTHON) -m venv --system-site-packages $(VENV) && grep -v '^torch==' constraints.txt > $(VENV)/constraints.txt && \
	  $(PY) -m pip install -q -c $(VENV)/constraints.txt -e '.[server,collector,dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && $(PY) -m pip install -q -r requirements.txt && $(PY) -m pip install -q -c constraints.txt -e '.[server,collector,dev]'; \
	fi
	@touch $@

demo: setup
	$(PY) -m collectors run --db $(DB) --name demo --suite demo -- $(PY) -m collectors.demo_program
	$(PY) -m app serve --db $(DB) --port $(PORT)

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: setup
	$(VENV)/bin/mypy

contracts: setup
	$(VENV)/bin/lint-imports

unit: setup
	$(PY) -m pytest tests/unit -q

test: lint types contracts
	$(PY) -m pytest -n 2 --dist loadfile
