# Every target sets up .venv by itself. `make` alone lists the targets.

# The interpreter that .venv is made with; empty means the first new enough.
PYTHON ?=
# How many test processes run at once.
PARALLEL ?= 2
# Debian packages whose programs some tests run.
DEBIAN_TOOLS ?= kcat curl jq chromium prometheus maven
# Collectors that `make ecosystem` runs; as processes of its own, not as services.
DEBIAN_COLLECTORS ?= rsyslog rsyslog-kafka collectd-core librdkafka1 libyajl2
# Servers that `make ecosystem` runs; likewise.
DEBIAN_SERVERS ?= postgresql
# More arguments for pytest, as in: make test ARGS="-k lease"
ARGS ?=

STAMP := .venv/.headrace-setup
# Setting up compiles these; without a compiler their plain twins run.
COMPILED := $(shell find src/headrace -name '*.p[yx][xd]')
PYTEST := .venv/bin/python -m pytest
SHORT_TESTS := tests/test_tidy.py tests/unit tests/property

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check lint format bench bench-kafka bench-doors screenshots tools wheel crash power-loss rot transactions \
	load hostile spark-soak ecosystem properties elsewhere soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(COMPILED)
	@PYTHON="$(PYTHON)" scripts/setup

demo: $(STAMP) ## see it all at work, in two minutes
	@.venv/bin/headrace demo

test: $(STAMP) ## run the whole test suite
	@$(PYTEST) -q -n $(PARALLEL) --dist loadgroup $(ARGS)

check: lint ## lint, types, import contracts and the short tests: the inner loop
	@$(PYTEST) -q -n $(PARALLEL) --dist loadgroup -m "not process" $(SHORT_TESTS) $(ARGS)

lint: $(STAMP) ## lint, formatting, types and import contracts alone
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --quiet --check --output-format concise . || \
		{ echo "headrace: some files are not formatted; do it with: make format" >&2; exit 1; }
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo --no-cache

format: $(STAMP) ## format the code and sort the imports
	@.venv/bin/ruff check --quiet --fix .
	@.venv/bin/ruff format --quiet .

bench: $(STAMP) ## measure this machine; prints numbers, asserts nothing
	@.venv/bin/python -m benchmarks $(ARGS)

bench-kafka: $(STAMP) ## measure a node under load from C, beside Apache Kafka
	@.venv/bin/python -m benchmarks.kafka $(ARGS)

bench-doors: $(STAMP) ## measure every door of a node, beside NATS, RabbitMQ and Redis
	@.venv/bin/python -m benchmarks.doors $(ARGS)

screenshots: $(STAMP) ## pictures of the dashboard into docs/images (needs Debian's chromium and pngquant)
	@.venv/bin/python -m scripts.screenshots $(ARGS)

tools: ## install the programs that some tests run (root or sudo)
	@scripts/tools $(DEBIAN_TOOLS)

wheel: $(STAMP) ## build the wheel and the source archive into dist/
	@.venv/bin/python -m build --no-isolation --outdir dist .

crash: $(STAMP) ## the long crash soak: 200 times kill -9
	@HEADRACE_LONG=1 HEADRACE_KILLS=$${HEADRACE_KILLS:-200} $(PYTEST) -q -m crash --timeout 0 $(ARGS)

power-loss: $(STAMP) ## the long power-loss soak: lost and torn writes at every step
	@HEADRACE_LONG=1 $(PYTEST) -q -m power_loss --timeout 0 $(ARGS)

rot: $(STAMP) ## the long rot soak: 10,000 flipped bits
	@HEADRACE_LONG=1 HEADRACE_FLIPS=$${HEADRACE_FLIPS:-10000} $(PYTEST) -q -m rot --timeout 0 $(ARGS)

transactions: $(STAMP) ## the long soak of transactions: 100 times kill -9 and zombies, on five clients
	@HEADRACE_ROUNDS=$${HEADRACE_ROUNDS:-20} $(PYTEST) -q tests/interop/test_transactions.py --timeout 0 $(ARGS)

load: $(STAMP) ## the long load test of the doors: 700 consumers, 200,000 messages
	@HEADRACE_LOAD_MESSAGES=$${HEADRACE_LOAD_MESSAGES:-200000} $(PYTEST) -q tests/doors/test_load.py --timeout 0 $(ARGS)

hostile: $(STAMP) ## two hours of a hostile client: memory, waiting times and promises of the others
	@HEADRACE_HOSTILE_SECONDS=$${HEADRACE_HOSTILE_SECONDS:-7200} $(PYTEST) -q -s tests/hostile --timeout 0 $(ARGS)

spark-soak: $(STAMP) ## the long Spark soak: 20 faults on a cluster, each row once in topic and table, in a folder and in S3
	@HEADRACE_SPARK_FAULTS=$${HEADRACE_SPARK_FAULTS:-20} $(PYTEST) -q -m spark_soak --timeout 0 $(ARGS)

ecosystem: $(STAMP) ## Kafka's tools, frameworks and collectors on a node, beside Apache Kafka (needs Maven; root or sudo)
	@scripts/tools $(DEBIAN_COLLECTORS)
	@scripts/tools $(DEBIAN_SERVERS)
	@HEADRACE_ECOSYSTEM=1 $(PYTEST) -q tests/ecosystem --timeout 0 $(ARGS)

properties: $(STAMP) ## every property at length: 2,000 examples each
	@HEADRACE_LONG=1 $(PYTEST) -q -n $(PARALLEL) --dist loadgroup tests/property tests/interop/test_wire_kio.py --timeout 0 $(ARGS)

elsewhere: $(STAMP) ## most of the suite in another place, zone and locale, without root and a terminal
	@HEADRACE_ELSEWHERE="$${HEADRACE_ELSEWHERE:-tests/unit tests/property tests/contract tests/crash tests/docs tests/doors}" \
		$(PYTEST) -q tests/packaging/test_elsewhere.py --timeout 0 $(ARGS)

soak: crash power-loss rot transactions ## all long soaks, one after the other

clean: ## remove caches and build results; .venv stays, and is brought up to date next time
	@rm -rf .bench .cache .demo .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist \
		clients/typescript/node_modules clients/typescript/dist
	@find src -name '*_compiled.*.so' -delete
	@rm -f .venv/.headrace-setup
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
