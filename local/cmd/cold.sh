#!/usr/bin/env bash
# Measures what a newcomer waits for: from clone to finished tour, first with
# empty caches, then once more. The committed state of this repository is cloned.
#
# Modules are downloaded first, into an empty module cache, and timed apart; what npm
# fetches (DynamoDB Local and the queue server) is part of the cold time. Set
# IDEM_COLD_GOMODCACHE to a module cache to use that one instead.
#
# Exit code 1 if a tour fails, or takes longer than 180 s cold or 20 s warm.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)

for tool in git go java node npm; do
  command -v "$tool" >/dev/null || { echo "$tool is not on PATH; README.md says what is needed" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/idem-cold-XXXXXX")
cleanup() {
  chmod -R u+w "$work" 2>/dev/null || true # the module cache is read-only
  rm -rf "$work"
}
trap cleanup EXIT

export GOCACHE=$work/go-build GOMODCACHE=${IDEM_COLD_GOMODCACHE:-$work/mod} GOFLAGS=-buildvcs=false
export IDEM_CACHE_DIR=$work/idem npm_config_cache=$work/npm
unset IDEM_RUN_DIR IDEM_DYNAMODB_ENDPOINT IDEM_DYNAMODB_JAR_DIR

now() { date +%s%3N; }
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }
tour() {
  if ! go run ./local -once >"$work/$1.log" 2>&1; then
    cat "$work/$1.log"
    echo "the $1 tour failed" >&2
    exit 1
  fi
}

echo "cloning ..."
start=$(now)
git clone --quiet "$source" "$work/clone"
cd "$work/clone"
cloned=$(($(now) - start))

echo "downloading modules ..."
start=$(now)
go list -deps ./local ./local/cmd/stack ./lambda/functions/payments ./lambda/functions/orders ./lambda/functions/statements ./lambda/functions/relay ./lambda/functions/refundsweeper >/dev/null
modules=$(($(now) - start))

echo "the tour with empty caches ..."
start=$(now)
tour cold
cold=$(($(now) - start + cloned))

echo "the tour again ..."
start=$(now)
tour warm
warm=$(($(now) - start))

tail -n +1 "$work/warm.log" | grep -c '^ok ' | sed 's/$/ lines of the tour are as expected/'
echo "modules:  $(seconds "$modules") (downloads, not counted)"
echo "cold:     $(seconds "$cold") from clone to finished tour, npm's downloads included; limit 180 s"
echo "warm:     $(seconds "$warm"); limit 20 s"
[ "$cold" -le 180000 ] && [ "$warm" -le 20000 ] || {
  echo "too slow; this machine has $(nproc) cores and a load of $(uptime | sed 's/.*average[s]*: //')" >&2
  exit 1
}
