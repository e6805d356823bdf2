#!/usr/bin/env bash
# Tidies every module of the workspace. The modules require each other in a version that is
# tagged later: while go mod tidy runs, the folders stand in for it.
set -euo pipefail
cd "$(dirname "$0")/../.."

modules=$(go list -m -f '{{.Path}}={{.Dir}}')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS=-mod=mod
for module in $modules; do
  dir=${module#*=}
  cp "$dir/go.mod" "$dir/go.sum" "$work"
  for other in $modules; do
    [ "$other" = "$module" ] || go mod edit -replace="$other" "$work/go.mod"
  done
  (cd "$dir" && go mod tidy -modfile="$work/go.mod")
  for other in $modules; do
    go mod edit -dropreplace="${other%%=*}" "$work/go.mod"
  done
  cp "$work/go.mod" "$work/go.sum" "$dir"
done
