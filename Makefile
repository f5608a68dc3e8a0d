# Everything runs in an environment of its own, made on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin

# Parallel tests and parties share the cores; threads inside numpy only add noise.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help demo demo-federation test test-slow test-browser fuzz soak lint audit format
.PHONY: doc bench check-package clean

help:
	@echo "make demo       fit the headline estimators on shipped data, in two minutes"
	@echo "make demo-federation  three hospitals on this machine, on NVIDIA FLARE"
	@echo "make test       lint, doctests and tests"
	@echo "make test-slow  the tests that take longer than CI allows"
	@echo "make test-browser  the privacy report in headless Chromium, if installed"
	@echo "make fuzz       random inputs, for minutes; make test has seconds of it"
	@echo "make soak       hundreds of fits with failing parties: does anything pile up?"
	@echo "make doc        user guide, gallery and API reference, in doc/_build/html"
	@echo "make bench      compare with peers and write benchmarks/REPORT.md"
	@echo "make lint       check style, types and known weaknesses; make format repairs style"
	@echo "make audit      known vulnerabilities of installed packages; needs the internet"
	@echo "make check-package  build, install and test what would be published"
	@echo "make clean      remove everything made by the above"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)

# One stamp per extra: an installation is repeated only when its requirements change.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

demo: $(VENV)/.installed-plot
	$(BIN)/python examples/demo.py

demo-federation: $(VENV)/.installed-nvflare
	$(BIN)/python examples/demo_federation.py

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive skprivbn
	$(BIN)/python .ci/audit.py --report-only

audit: $(VENV)/.installed-lint
	$(BIN)/python .ci/audit.py

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not browser" --doctest-modules \
		--doctest-glob="*.rst" --doctest-glob="*.md" \
		skprivbn tests doc/*.rst README.md

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(JOBS) -m slow tests

test-browser: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m browser tests/inspection

fuzz: $(VENV)/.installed-test
	FUZZ_PROFILE=fuzz $(BIN)/python -m pytest -n $(JOBS) tests/fuzz

soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak

doc: $(VENV)/.installed-doc
	$(BIN)/python -m sphinx -E -W --keep-going -b html doc doc/_build/html

bench: $(VENV)/.installed-bench
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done
	$(BIN)/python benchmarks/report.py

check-package: $(VENV)/.installed-package
	$(BIN)/python .ci/check_package.py
	$(BIN)/python benchmarks/headline.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
	rm -rf doc/_build doc/auto_examples doc/api/generated doc/sg_execution_times.rst
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
