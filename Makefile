# Two commands do all the set-up: `make demo` and `make test`. Each makes its own virtual environment.

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.ready
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

GPU_TESTS := $(wildcard $(addsuffix /test_*.py,tests/contract tests/decoupled_st/kernels lab/tests/cuda lab/tests/fleet lab/tests/fleet/*))

.PHONY: demo docs results test test-slow test-oldest test-clients test-gpu format clean

# The paper's recipes at the quick scale, on scikit-learn's digits, then the report. Run again, it continues.
demo: $(SETUP)
	$(BIN)/dst reproduce lab/studies/paper --scale quick --store demo/dst.sqlite --out demo
	@echo "Open demo/report.html in a browser; demo/figures has its pictures, demo/dst.sqlite the records."

# The documentation as a site, offline. A warning, such as a link to nowhere, is an error.
docs: $(SETUP)
	$(BIN)/sphinx-build -E -q -W --keep-going -c docs -b html . build/site
	@echo "Open build/site/index.html in a browser."

# What is committed under lab/results/, and what pages quote of it, from the committed records.
results: $(SETUP)
	PYTHONPATH=lab $(BIN)/python -m results.build
	PYTHONPATH=lab $(BIN)/python -m results.self_set
	PYTHONPATH=lab $(BIN)/python -m results.codebook_tables
	PYTHONPATH=lab $(BIN)/python -m results.compared
	PYTHONPATH=lab $(BIN)/python -m results.diffusion_tables
	PYTHONPATH=lab $(BIN)/python -m results.convolutional_tables

test: $(SETUP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=lab $(BIN)/lint-imports
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m "not slow and not gpu"
	TRITON_INTERPRET=1 $(BIN)/pytest -n $(JOBS) -m "not slow and not gpu" tests/decoupled_st/kernels

test-slow: $(SETUP)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "slow and not gpu" --ignore tests/clients

# The library with the oldest torch that pyproject.toml allows, in an environment of its own. PyPI has no CPU build of it:
# 3 GB of CUDA's libraries come along.
test-oldest: .venv-oldest/.ready
	PYTHONPATH=src:tests OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n $(JOBS) --dist loadfile -p no:cacheprovider --confcutdir=tests -m "not slow and not gpu" tests/contract tests/decoupled_st

# Other people's packages with our functions inside, at the versions in constraints.txt.
test-clients: $(SETUP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[clients,dev]"
	DST_REQUIRE_CLIENTS=1 $(BIN)/pytest -n $(JOBS) tests/clients

.venv-oldest/.ready: pyproject.toml
	test -d .venv-oldest || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check numpy pytest pytest-xdist "torch==$$(sed -n 's/^dependencies = \["torch>=\(.*\)"\]/\1/p' pyproject.toml).*"
	touch $@

# On a machine with a GPU, with what is installed there: one process per file, some at a time.
test-gpu:
	$(MAKE) --no-print-directory --keep-going --output-sync --jobs 6 $(GPU_TESTS:%=on-gpu/%)

# Exit code 5: no test of that file needs a GPU.
on-gpu/%:
	PYTHONPATH=src:lab/src:lab:tests:lab/tests $(PYTHON) -m pytest -q -m gpu -p no:cacheprovider $(if $(filter lab/%,$*),--confcutdir=lab/tests,--confcutdir=tests) $* || test $$? = 5

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-oldest build .pytest_cache .mypy_cache .ruff_cache

# Remade when what it installs changes.
$(SETUP): pyproject.toml lab/pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" -e "lab[adaptive,ray]"
	touch $@
