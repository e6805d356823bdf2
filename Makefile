# Every target does its own set-up. It needs Go, a C compiler (for -race), curl, Node
# 20 or newer with npm (to fetch DynamoDB Local, the queue server and Postgres once, to
# run the second, and to deploy) and Java 17 or newer (to run DynamoDB Local). synth
# needs Go and Node alone, deploy and smoke AWS credentials too.

GO      ?= go
WITH_DB := $(GO) run ./local/cmd/with-dynamodb --
FUZZ    ?= 10s
# The packages of all modules of the workspace: a path that begins with ./ names those of one.
ALL     := github.com/idem-go/idempotency/...
# CDK's packages are large and have no concurrency of ours.
CDK_PACKAGES := ./infra/... ./template-tests/...
# Settings and options of cdk deploy.
CDK     ?=
# Further flags of the command that checks deployed stacks.
SMOKE   ?=
# The proofs start processes, or read what lies in the repository, and wait. In each
# group the longest packages come first, so that no core waits for one at the end.
PROOFS  := ./local/proof/outside ./local/proof/relay ./local/proof/deliveries ./local/proof/later ./local/proof/... ./local/measure/...
FIRST   := ./local/cmd/stack ./idem/pgstore/... ./idem/redisstore ./idem/reconcile ./local/cloud ./local/cmd/smoke ./idem/outbox
# Under the race detector these take ten times as long: the walks of idem/protocol start no
# goroutine, the thousands of runs of idem/internal/sim and idem/idemtest mostly make one call
# at a time, and idem/dynamostore compresses results of megabytes, and waits for DynamoDB Local.
WALKS   := ./idem/dynamostore ./idem/protocol ./idem/internal/sim ./idem/idemtest
LIBRARY  = $$($(GO) list $(ALL) | grep -v -E '/(infra|template-tests|local/proof|local/measure)(/|$$)')
BUT_WALKS = $$($(GO) list $(ALL) | grep -v -E '/(infra|template-tests|local/proof|local/measure|idem/protocol|idem/internal/sim|idem/idemtest|idem/dynamostore)(/|$$)')
# Flags of go test for every group. make lint vets.
FLAGS        := -vet=off -timeout 20m
# Further flags of go test for the long versions.
VERIFY_FLAGS :=
LONG_FLAGS    = -vet=off -count=1 -timeout 45m $(VERIFY_FLAGS)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Two groups run at a time: many packages wait for servers, processes and time-outs. More
# groups, or more packages in each than there are cores, only wait for each other. All
# report, also where one fails. In each of them the longest packages come first, and go test
# reports in order: it is silent for a minute or two.
# The race detector is left to make verify: with it, everything is compiled twice, and takes
# twice as long.
.PHONY: test
test: ## Run every test, against DynamoDB Local
	@$(MAKE) -k -j2 --no-print-directory test-library test-proofs test-cdk

# A group says when it begins and how it has ended: $(call group,what it is,its command).
group = echo "==> $(1): begins"; begun=$$(date +%s); result=ok; $(2) || result=FAILED; \
	echo "==> $(1): $$result after $$(($$(date +%s) - begun)) s"; test $$result = ok

# Fetched once. Every package then starts a DynamoDB Local of its own, which costs a
# second: no package waits for the tables and streams of another one.
.PHONY: servers
servers:
	@$(WITH_DB) true

.PHONY: test-library
test-library: servers
	@$(call group,library and functions and what runs them here,$(GO) test $(FLAGS) $(FIRST) $(WALKS) $(LIBRARY))

.PHONY: test-proofs
test-proofs: servers
	@$(call group,proofs with whole functions (crashes and outages and every gateway),$(GO) test $(FLAGS) $(PROOFS))
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
verify: ## Run the long versions: stress, crashes, fuzzing (FUZZ=10s each), mutants, bench and size
	@$(MAKE) -k --no-print-directory verify-tests fuzz mutants bench size

.PHONY: verify-tests
verify-tests: servers
	@$(MAKE) -k -j2 --no-print-directory verify-library verify-proofs verify-walks verify-races verify-cdk

# The long versions of the groups. The race detector is for what has goroutines of ours: proofs start processes.
.PHONY: verify-library
verify-library: servers
	@$(call group,library and functions and what runs them here (long and race detector),IDEM_LONG=1 $(GO) test -race $(LONG_FLAGS) $(FIRST) $(BUT_WALKS))

.PHONY: verify-walks
verify-walks: servers
	@$(call group,walks and the store over DynamoDB Local (long),IDEM_LONG=1 $(GO) test $(LONG_FLAGS) $(WALKS))

verify-%:
	@IDEM_LONG=1 $(MAKE) --no-print-directory FLAGS="$(LONG_FLAGS)" test-$*

# The long versions of these have more cases or processes, and no more goroutines.
.PHONY: verify-races
verify-races: servers
	@$(call group,walks and the store over DynamoDB Local (race detector),IDEM_LONG= $(GO) test -race $(LONG_FLAGS) ./idem/dynamostore ./idem/internal/sim ./idem/idemtest ./local/proof/linear)

# Until Go 1.27 the end of the time may be taken for a failure that has found nothing
# (https://go.dev/issue/75804).
.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZ (10s)
	@failed=0; out=$$(mktemp); for pkg in $$($(GO) list $(ALL)); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "==> fuzzing $$f in $$pkg for $(FUZZ)"; \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ) $$pkg >$$out 2>&1 || \
				{ grep -q '^    context deadline exceeded$$' $$out && ! grep -q 'Failing input\|panic:' $$out; } || failed=1; \
			cat $$out; \
		done; \
	done; rm -f $$out; exit $$failed

.PHONY: mutants
mutants: ## Make a list of mistakes in the code, one at a time, and fail where the tests find one no more
	$(WITH_DB) $(GO) run ./local/measure/mutants

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
