#!/usr/bin/env bash
# Tidies every module of the workspace. The modules require each other in versions that are
# tagged together and later: while go mod tidy runs, they stand in for each other.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off GOFLAGS=-mod=mod
modules=$(git ls-files -co --exclude-standard 'go.mod' '*/go.mod' | grep -v testdata | xargs -n1 dirname | sort)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for dir in $modules; do
  cp "$dir/go.mod" "$work/go.mod"
  cp "$dir/go.sum" "$work/go.sum" 2>/dev/null || : >"$work/go.sum"
  for other in $modules; do
    [ "$other" = "$dir" ] || go mod edit -replace="$(go mod edit -json "$other/go.mod" | sed -n '/"Module"/,/}/s/.*"Path": "\(.*\)".*/\1/p')=$PWD/$other" "$work/go.mod"
  done
  (cd "$dir" && go mod tidy -modfile="$work/go.mod" "$@")
  for other in $modules; do
    [ "$other" = "$dir" ] || go mod edit -dropreplace="$(go mod edit -json "$other/go.mod" | sed -n '/"Module"/,/}/s/.*"Path": "\(.*\)".*/\1/p')" "$work/go.mod"
  done
  cp "$work/go.mod" "$dir/go.mod"
  cp "$work/go.sum" "$dir/go.sum"
done
