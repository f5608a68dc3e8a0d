# Every family of targets has an environment of its own, with the extra that it needs and
# nothing else, made on first use: what one brings cannot hide what another lacks.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
JOBS ?= 2

demo_extra := plot
federation_extra := nvflare
test_extra := test
doc_extra := doc
bench_extra := bench
package_extra := package
BIN = $(VENV)/$(1)/bin

# Parallel tests and parties share the cores; threads inside numpy only add noise.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help demo demo-federation test test-slow test-browser fuzz soak lint audit format
.PHONY: lint-types lint-audit lint-weaknesses lint-style
.PHONY: doc bench studies check-package clean

help:
	@echo "Times are those of two idle cores, after a minute or two of installing on first use."
	@echo "make demo       headline estimators on shipped data, as demo/index.html (20 seconds)"
	@echo "make demo-federation  three hospitals on this machine, on NVIDIA FLARE (half a minute)"
	@echo "make test       lint, doctests and tests (eight minutes)"
	@echo "make test-slow  the tests that take longer than CI allows (three quarters of an hour)"
	@echo "make test-browser  pages in headless Chromium, if installed (two minutes)"
	@echo "make fuzz       random inputs, for minutes; make test has seconds of it"
	@echo "make soak       hundreds of fits with failing parties: does anything pile up?"
	@echo "make doc        user guide, gallery and API reference, in doc/_build/html (three minutes)"
	@echo "make bench      compare time with peers, write benchmarks/REPORT.md (an hour or two)"
	@echo "make studies    simulations behind the guide and the gallery (hours)"
	@echo "make lint       check style, types and known weaknesses; make format repairs style"
	@echo "make audit      known vulnerabilities of installed packages; needs the internet"
	@echo "make check-package  build, install and test what would be published"
	@echo "make clean      remove everything made by the above"

# Made again when requirements change.
$(VENV)/%/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python")'
	@echo "Installing skprivbn[$($*_extra)] in $(VENV)/$*: a minute or two, the first time only"
	@$(PYTHON) -m venv --clear $(VENV)/$*
	@$(call BIN,$*)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$($*_extra)]"
	@# on all cores, and without the tests of others, a third of it: pip does neither
	@$(call BIN,$*)/python -m compileall -qq -j 0 -x 'site-packages/(.*/tests?|pip)/' \
		$(VENV)/$*/lib skprivbn || true
	@touch $@

demo: $(VENV)/demo/installed
	@$(call BIN,demo)/python examples/demo.py

demo-federation: $(VENV)/federation/installed
	@$(call BIN,federation)/python examples/demo_federation.py

# Side by side: mypy computes on one core, and the audit waits for the internet.
lint: $(VENV)/test/installed
	@$(MAKE) --no-print-directory --jobs=4 lint-types lint-audit lint-weaknesses lint-style

lint-types:
	$(call BIN,test)/mypy

lint-audit:
	$(call BIN,test)/python .ci/audit.py --report-only

lint-weaknesses:
	$(call BIN,test)/bandit --quiet --configfile pyproject.toml --recursive skprivbn

lint-style:
	$(call BIN,test)/ruff check .
	$(call BIN,test)/ruff format --check .

audit: $(VENV)/test/installed
	$(call BIN,test)/python .ci/audit.py

format: $(VENV)/test/installed
	$(call BIN,test)/ruff check --fix .
	$(call BIN,test)/ruff format .

test: lint
	$(call BIN,test)/python -m pytest -n $(JOBS) --dist worksteal \
		-m "not slow and not browser" --doctest-modules --doctest-glob="*.rst" --doctest-glob="*.md" \
		skprivbn tests doc/*.rst README.md

test-slow: $(VENV)/test/installed
	$(call BIN,test)/python -m pytest -n $(JOBS) -m slow \
		-p tests.slow_record --slow-record=tests/SLOW.md tests

test-browser: $(VENV)/test/installed
	$(call BIN,test)/python -m pytest -m browser tests

fuzz: $(VENV)/test/installed
	FUZZ_PROFILE=fuzz $(call BIN,test)/python -m pytest -n $(JOBS) tests/fuzz

soak: $(VENV)/test/installed
	$(call BIN,test)/python -m tests.soak

doc: $(VENV)/doc/installed
	$(call BIN,doc)/python -m sphinx -E -W --keep-going -j $(JOBS) -b html doc doc/_build/html

# A benchmark measures time or bytes beside a peer; a study, which way finds the truth.
bench studies: $(VENV)/bench/installed
	for script in benchmarks/$(if $(filter bench,$@),bench,study)_*.py; do \
		echo "$$script"; $(call BIN,bench)/python $$script || exit 1; done
	$(call BIN,bench)/python benchmarks/report.py

check-package: $(VENV)/package/installed demo-federation
	$(call BIN,package)/python .ci/check_package.py
	$(call BIN,package)/python benchmarks/headline.py

clean:
	rm -rf $(VENV) build dist demo *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
	rm -rf doc/_build doc/auto_examples doc/api/generated doc/sg_execution_times.rst
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
