# Every target does its own set-up. It needs Go, a C compiler (for -race), Node
# 20 or newer with npm (to fetch DynamoDB Local and the queue server once, to run
# the latter, and to deploy) and Java 17 or newer (to run DynamoDB Local). synth
# needs Go and Node alone, deploy AWS credentials too.

GO      ?= go
WITH_DB := $(GO) run ./local/dynamodblocal/cmd/with-dynamodb --
FUZZ    ?= 60s
RACED    = $$($(GO) list ./... | grep -v -e '/infra$$' -e '/infra/' -e '/template-tests$$' -e '/template-tests/' -e '/local$$' -e '/local/')
LOCAL    = $$($(GO) list ./local/...)
# CDK's bindings warn about themselves and about the version of Node.
CDK_ENV := JSII_DEPRECATED=quiet JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## Run every test under the race detector, against DynamoDB Local
	@# Fetched once. Every package then starts a DynamoDB Local of its own: one that has
	@# served hundreds of tables answers late.
	$(WITH_DB) true
	$(GO) test -race -timeout 10m $(RACED)
	@# One after the other: these start processes and servers and put load on them.
	$(GO) test -race -timeout 10m -p 1 $(LOCAL)
	@# CDK's packages are large and have no concurrency of ours: no race detector.
	$(CDK_ENV) $(GO) test ./infra/... ./template-tests/...
	@# The race detector allocates on its own: what counts allocations runs without it.
	$(GO) test -run Allocations ./idem/...

.PHONY: lint
lint: ## Check format, and what .golangci.yml lists
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "gofmt would change: $$files"; exit 1; }
	@# Compiled once, apart from go.mod: its requirements are not the module's.
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

.PHONY: verify
verify: ## Run the long versions: stress, crashes, fuzzing (FUZZ=60s each), bench and size
	$(WITH_DB) true
	IDEM_LONG=1 $(GO) test -race -count=1 -timeout 30m $(RACED)
	IDEM_LONG=1 $(GO) test -race -count=1 -timeout 45m -p 1 $(LOCAL)
	IDEM_LONG=1 $(CDK_ENV) $(GO) test -count=1 ./infra/... ./template-tests/...
	@set -e; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "fuzzing $$f in $$pkg for $(FUZZ)"; \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZ) $$pkg; \
		done; \
	done
	$(MAKE) bench size

.PHONY: bench
bench: ## Measure what the library adds, and fail where it adds too much
	$(WITH_DB) $(GO) run ./local/bench

.PHONY: size
size: ## Print what the library adds to a function's binary and start-up
	$(GO) run ./local/size

.PHONY: local
local: ## Start everything on this machine, take the tour, keep serving
	$(GO) run ./local

.PHONY: cold
cold: ## Measure from clone to finished tour, with empty and with full caches
	./local/cold.sh

.PHONY: synth
synth: ## Synthesize the CloudFormation templates into infra/cdk.out (SYNTH="-c api=rest": settings)
	cd infra && $(CDK_ENV) $(GO) run ../local/gorun/cmd/with-progress "compiling and synthesizing" $(GO) run ./app $(SYNTH)

.PHONY: deploy
deploy: ## Deploy both stacks with the pinned CDK command line (CDK="-c prefix=test-": settings and options)
	npm ci --no-audit --no-fund
	cd infra && $(CDK_ENV) npx --no-install cdk deploy --all $(CDK)
