# Needs Go and make; `make test` also runs the race detector where there is a
# C compiler. Everything built goes to bin/.

GO          ?= go
BIN         := bin
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 10s
# A package's tests may take long on a busy machine; none is slow on a quiet one.
TIMEOUT     ?= 30m
CHAOS_FOR   ?= 1m
CHAOS_RUNS  ?= 1600
CHAOS_SEED  ?= 0
CHAOS_EVERY ?= 1s
CHAOS_FLAGS ?=
SEEDS       ?= 1000
TIMES ?= 20

# demo and bench: sqlite, or postgres on a throwaway server of what is installed.
# DATABASE_URL=… on the command line names another one; from the environment,
# where an application's own may stand, it is not taken.
STORE ?= sqlite
ifneq ($(filter-out sqlite postgres,$(STORE)),)
$(error STORE is sqlite or postgres)
endif
ifeq ($(origin DATABASE_URL),command line)
demo bench: export RUNNER_DATABASE_URL = $(DATABASE_URL)
ON_POSTGRES :=
else
ON_POSTGRES := $(GO) run ./cmd/runner/internal/onpgtest
endif

# Handlers that compile to Wasm from Go, one folder each.
WASM_EXAMPLES := approval invoices onboard
WASM_FLAGS    := -buildmode=c-shared -ldflags='-s -w' -trimpath

# Packages whose tests run goroutines against each other. Those of the simulator
# take turns: there the detector would find little, and take minutes for it.
RACE = $$($(GO) list ./engine/... ./host/... | grep -v /engine/sim$$)

.DEFAULT_GOAL := help
.PHONY: help build fetch test race lint examples plugins demo bench sim chaos fuzz clean

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/runner
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/runner ./cmd/runner

fetch: ## download what building, tests and linters need
	$(GO) mod download
	-@$(GO) mod tidy -diff >/dev/null # it may look further; lint gives the verdict
	$(GO) run $(STATICCHECK) -version

test: ## every test, then those with goroutines again under the race detector
	$(GO) test -timeout $(TIMEOUT) ./...
	@$(MAKE) --no-print-directory race

race: ## the race detector over engine and host
	@if command -v $${CC:-gcc} >/dev/null; then \
		echo "$(GO) test -race, engine and host"; CGO_ENABLED=1 $(GO) test -race -timeout $(TIMEOUT) $(RACE); \
	else \
		echo "NOT RUN: the race detector needs a C compiler, and $${CC:-gcc} is not here"; \
	fi

lint: ## format, vet, go.mod and staticcheck (OFFLINE=1 leaves staticcheck out)
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	GOOS=wasip1 GOARCH=wasm $(GO) vet $(addprefix ./examples/,$(WASM_EXAMPLES))
	$(GO) mod tidy -diff
	$(if $(OFFLINE),@echo "NOT RUN: staticcheck (OFFLINE)",$(GO) run $(STATICCHECK) ./...)

examples: $(addprefix $(BIN)/,$(addsuffix .wasm,$(WASM_EXAMPLES) noop)) ## build the example modules into bin/

plugins: examples ## the same: there are no first-party modules yet

# Go decides what is up to date.
.PHONY: $(addprefix $(BIN)/,$(addsuffix .wasm,$(WASM_EXAMPLES) noop))
$(addprefix $(BIN)/,$(addsuffix .wasm,$(WASM_EXAMPLES))): $(BIN)/%.wasm:
	GOOS=wasip1 GOARCH=wasm $(GO) build $(WASM_FLAGS) -o $@ ./examples/$*

$(BIN)/noop.wasm:
	@mkdir -p $(BIN)
	$(GO) run ./examples/noop -o $@

demo: build examples ## kill a server of 300 invoices in the middle, and count (STORE=postgres)
	@$(if $(filter postgres,$(STORE)),$(ON_POSTGRES)) $(GO) run ./examples/demo -store $(STORE)

bench: build ## what this machine does (STORE=postgres; PEERS=DIR measures others beside it)
ifeq ($(STORE),postgres)
	@$(ON_POSTGRES) $(GO) run ./cmd/runner/internal/bench/peers -runner $(BIN)/runner -json $(BIN)/bench.json $(if $(PEERS),-peers "$(PEERS)")
else
	$(BIN)/runner bench
endif

chaos: ## kill, pause, cut and crash a fleet for CHAOS_FOR (1m), then audit CHAOS_RUNS (1600)
	$(GO) test ./cmd/runner/internal/chaostest -run Whatever -count=1 -v -timeout 0 \
		-chaos.for=$(CHAOS_FOR) -chaos.runs=$(CHAOS_RUNS) -chaos.seed=$(CHAOS_SEED) -chaos.every=$(CHAOS_EVERY) -chaos.skew $(CHAOS_FLAGS)

sim: ## simulate SEEDS (1000) fleets in virtual time; SEED=N replays one and prints its trail
	$(GO) test -c -o $(BIN)/sim.test ./engine/sim
	$(BIN)/sim.test -test.run Whatever $(if $(SEED),-sim.seed=$(SEED),-sim.first=0 -sim.seeds=$(SEEDS))

# Without SEED: a seed that fails, with a planted bug.
replay: ## simulate SEED TIMES (20) in a machine that is the same each time; all must go one way
	GOOS=wasip1 GOARCH=wasm $(GO) test -c -o $(BIN)/sim.wasm ./engine/sim
	$(GO) run ./host/replay $(TIMES) $(BIN)/sim.wasm $(if $(SEED),-test.run Whatever -sim.seed=$(SEED),-test.v -test.run Planted/an_end_that_is_told -sim.seed=1)

fuzz: ## every fuzz test for FUZZTIME (10s) each
	@set -e; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

clean: ## remove bin/
	rm -rf $(BIN)
