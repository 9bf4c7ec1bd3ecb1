# Statemesh. `make` prints what there is.
SHELL       := /bin/bash
.DEFAULT_GOAL := help

GO          ?= go
TOOLS       := $(CURDIR)/.tools
export GOBIN := $(TOOLS)
export GOTOOLCHAIN ?= local

# Tools are pinned here, not in go.mod: they would drag hundreds of modules into it. The version is part of the file
# name, so a bump rebuilds.
GOLANGCI_VERSION  := v2.15.0
BUF_VERSION       := v1.75.0
GEN_GRPC_VERSION  := v1.6.2
BENCHSTAT_VERSION := latest
GEN_GO_VERSION    := $(shell $(GO) list -m -f '{{.Version}}' google.golang.org/protobuf 2>/dev/null)

GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
BUF         := $(TOOLS)/buf-$(BUF_VERSION)
GEN_GO      := $(TOOLS)/protoc-gen-go-$(GEN_GO_VERSION)
GEN_GRPC    := $(TOOLS)/protoc-gen-go-grpc-$(GEN_GRPC_VERSION)

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -s -w -X main.version=$(VERSION)
TAGS        := invariants

# Simulation: every *_sim_test.go, SEEDS schedules of faults each; model tests: SEEDS histories each.
SEEDS       ?= 20
SEED        ?= 1
# Where they keep their files: in memory, if there are 4 GB for it. What a kill leaves is a copy there, not what a disk had, and
# waiting for a disk was three quarters of their time.
SCRATCH     ?= $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
# Fuzzing: how long each target runs. Chaos: how long faults are made (or MINUTES=n); the seed of the schedule, 0 for a new one;
# brokers of the cluster; whether they are killed too; standbys of each task; where history, report and picture go.
FUZZ        ?= 30s
CHAOS       ?= $(if $(MINUTES),$(MINUTES)m,60s)
CHAOS_SEED  ?= 0
CHAOS_NODES ?= 3
CHAOS_BROKER ?= true
CHAOS_STANDBYS ?= 1
CHAOS_OUT   ?= $(CURDIR)/.chaos
# Records of bench-peers: so many that the other side's compiler is done in the second half.
RECORDS     ?= 10000000
# Up to four schedules, if a broker spoils some.
CHAOS_TIMEOUT = $(if $(MINUTES),$(shell echo $$(( 4*$(MINUTES)+30 ))),30)m

##@ Use

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-zA-Z_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/statemesh, static, version stamped
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/statemesh ./cmd/statemesh

.PHONY: demo
demo: build ## Run the main job on real data with the embedded broker; checks its own answers
	./bin/statemesh demo

##@ Test

.PHONY: test
test: ## Run all tests but the lanes below (tag: invariants)
	$(GO) test -tags '$(TAGS)' -shuffle=on ./...

.PHONY: race
race: ## Run all tests under the race detector
	GO='$(GO)' .ci/race '$(TAGS)'

# Schedules live for a moment and share nothing: the collector may be lazy. In its own directory go test shows what passing tests say.
SIM = TMPDIR=$(SCRATCH) GOGC=400 $(GO) test -tags '$(TAGS)'

.PHONY: sim
sim: ## Run the simulations: SEEDS=n schedules of faults, from SEED=s (a failure prints how to repeat one)
	cd processor && $(SIM) -run Sim -timeout 150m -seeds=$(SEEDS) -seed=$(SEED)
	cd processor/internal/group && $(SIM) -run Sim -timeout 60m -seeds=$(SEEDS) -seed=$(SEED)
	$(SIM) -timeout 40m -count=3 ./processor/internal/restore ./processor/internal/topics ./router/...

.PHONY: model
model: ## Run the model test of every store kind on both engines, SEEDS=n histories each (a failure prints how to repeat one)
	TMPDIR=$(SCRATCH) $(GO) test -tags '$(TAGS)' -run Model -timeout 60m ./store/layered -seeds=$(SEEDS)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZ (30s)
	GO='$(GO)' .ci/fuzz $(FUZZ)

.PHONY: kafka-fetch
kafka-fetch: .kafka/libs ## Fetch a real Kafka broker's jars into .kafka (needs Java 17 and Maven)

.kafka/libs: internal/kafkatest/pom.xml
	mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.kafka/libs -DincludeScope=runtime
	@touch $@

.PHONY: test-kafka
test-kafka: kafka-fetch ## Run the broker lane against a real Kafka on loopback
	$(GO) test -tags '$(TAGS) realkafka' -p 1 -run 'RealKafka' -timeout 40m ./...

.PHONY: chaos
chaos: build ## Break real processes, links, disks and a cluster of real brokers for MINUTES=n (CHAOS=60s); judge every answer
	@echo "history, report and picture: $(CHAOS_OUT)"
	$(GO) test -tags '$(TAGS) chaos' -run 'Chaos' -count=1 -v -timeout $(CHAOS_TIMEOUT) ./test/chaos -args -chaos.for=$(CHAOS) \
		-chaos.seed=$(CHAOS_SEED) -chaos.nodes=$(CHAOS_NODES) -chaos.broker=$(CHAOS_BROKER) -chaos.standbys=$(CHAOS_STANDBYS) -chaos.out=$(CHAOS_OUT)

.PHONY: mutations
mutations: ## Plant faults in copies of the module, one by one, and see that the tests find them
	TMPDIR=$(SCRATCH) $(GO) test -tags mutation -run TestMutations -count=1 -timeout 60m -v ./test/mutation

.PHONY: cover
cover: ## Write coverage.out and print the total
	$(GO) test -tags '$(TAGS)' -coverprofile=coverage.out ./... && $(GO) tool cover -func=coverage.out | tail -1

##@ Measure

.PHONY: bench
bench: ## Print the table of figures, each beside its raw floor of the same run
	$(GO) run ./bench

.PHONY: bench-peers
bench-peers: kafka-fetch bench/peers/kafka-streams/target/lib ## Run topologies beside Kafka Streams on RECORDS=n records (needs Java 17 and Maven)
	$(GO) run ./bench -only peers -records $(RECORDS)

bench/peers/kafka-streams/target/lib: bench/peers/kafka-streams/pom.xml $(wildcard bench/peers/kafka-streams/src/main/java/peers/*.java)
	mvn -q -B -f $< package
	@touch $@

.PHONY: bench-once
bench-once: ## Run every Go benchmark once, to see that it runs
	$(GO) test -tags '$(TAGS)' -run '^$$' -bench . -benchtime 1x ./...

##@ Keep in order

.PHONY: lint
lint: $(GOLANGCI) $(BUF) ## Lint Go and proto
	$(GOLANGCI) run --build-tags '$(TAGS),realkafka,chaos,mutation' ./...
	$(GOLANGCI) fmt --diff ./...
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: fmt
fmt: $(GOLANGCI) $(BUF) ## Format Go and proto
	$(GOLANGCI) fmt ./...
	$(BUF) format -w

.PHONY: proto
proto: $(BUF) $(GEN_GO) $(GEN_GRPC) ## Generate Go from proto
	cp $(GEN_GO) $(TOOLS)/protoc-gen-go && cp $(GEN_GRPC) $(TOOLS)/protoc-gen-go-grpc
	PATH="$(TOOLS):$$PATH" $(BUF) generate --template proto/buf.gen.yaml

.PHONY: proto-check
proto-check: proto ## Fail when the generated Go is out of step with the proto
	git diff --exit-code -- proto

.PHONY: proto-breaking
proto-breaking: $(BUF) ## Fail when the proto breaks what is on BASE (default: origin/main, else HEAD)
	@base=$${BASE:-}; if [ -z "$$base" ]; then base=$$(git rev-parse -q --verify origin/main || git rev-parse HEAD); fi; \
	if git cat-file -e "$$base:buf.yaml" 2>/dev/null; then $(BUF) breaking --against ".git#ref=$$base"; \
	else echo "proto-breaking: $$base has no proto to compare with"; fi

.PHONY: docs
docs: ## Generate docs/config.md and docs/cli.md from the code
	$(GO) run ./cmd/statemesh docs --dir docs

.PHONY: docs-check
docs-check: docs ## Fail when the generated documents are out of step with the code
	git diff --exit-code -- docs

.PHONY: tidy-check
tidy-check: ## Fail when go.mod is not tidy
	$(GO) mod tidy -diff

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities (needs internet access to its database; not in CI)
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

.PHONY: check
check: ## Everything CI runs
	.ci/run

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin coverage.out

# Tools, each under a name that holds its version.
$(GOLANGCI):
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) && mv $(TOOLS)/golangci-lint $@
$(BUF):
	$(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION) && mv $(TOOLS)/buf $@
$(GEN_GRPC):
	$(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(GEN_GRPC_VERSION) && mv $(TOOLS)/protoc-gen-go-grpc $@
$(GEN_GO): # without a version: the generator equals the runtime in go.mod
	$(GO) install google.golang.org/protobuf/cmd/protoc-gen-go && mv $(TOOLS)/protoc-gen-go $@
