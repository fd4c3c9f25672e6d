# What a reader of this project runs. `make help` lists it.
#
# As root, everything is installed and run; without root, what can be, and what was left out is said.
.DEFAULT_GOAL := help
.PHONY: help demo test bench lint clean-demo
MAKEFLAGS += --no-print-directory

ROOT := $(filter 0,$(shell id -u))
BIN := .venv/bin

# Run as root in somebody's checkout: leave no caches there that only root could write.
ROOT_ENV := $(if $(ROOT),PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY=/var/tmp/kimisvc-hypothesis)
# Two at a time: system tests mostly wait for systemd, each worker in a container of its own. By files,
# in their order: the long ones come first, and the many short ones fill up.
PYTEST := $(ROOT_ENV) $(BIN)/pytest $(if $(ROOT),-p no:cacheprovider) -n 2 --dist loadfile --no-loadscope-reorder

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## the main job on a real systemd with a real vLLM, in a sandbox (root; 6 GB under /opt)
ifeq ($(ROOT),)
	@echo "make demo: needs root: sudo make demo" >&2; exit 1
else
	@packaging/setup apt demo vllm model
	@packaging/demo
endif

test: ## all tests; without root the unit tests alone
ifeq ($(ROOT),)
	@packaging/setup apt tools dev
	@$(PYTEST) -m "not system and not vllm"
	@echo "make test: left out: the tests on a real systemd and with the real vLLM:"
	@echo "  they boot a container, which needs root. All of them: sudo make test"
else
	@packaging/setup apt tools dev demo vllm model
	@packaging/sandbox purge
	@$(PYTEST)
endif

bench: ## the figures that the design aims at (root for those that need a systemd)
	@packaging/setup apt dev $(if $(ROOT),demo vllm model)
	@$(ROOT_ENV) $(BIN)/python tests/bench.py

lint: ## ruff and mypy
	@packaging/setup dev
	@$(BIN)/ruff check kimisvc tests packaging packaging/sandbox packaging/demo
	@$(BIN)/ruff format --check kimisvc tests packaging packaging/sandbox packaging/demo
	@$(BIN)/mypy

clean-demo: ## remove all sandboxes and what was installed under /opt; apt packages stay
ifeq ($(ROOT),)
	@echo "make clean-demo: needs root: sudo make clean-demo" >&2; exit 1
else
	@packaging/sandbox list | cut -f1 | xargs -r -n1 packaging/sandbox stop
	rm -rf /opt/kimisvc/demo
	@rmdir --ignore-fail-on-non-empty /opt/kimisvc
endif
