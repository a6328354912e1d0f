#!/bin/sh
# Captures the golden files anew: capture.sh PORT, where a Redis 8.2.3 started with --save '' --appendonly no listens.
# redis-benchmark 7.0.15 must be in PATH. Digits differ from run to run; the tests mask them.
cd "$(dirname "$0")" || exit 1
redis-benchmark --version | grep -q '7\.0\.15' || { echo "redis-benchmark 7.0.15 is needed" >&2; exit 1; }
while IFS= read -r line; do
    name=${line%%|*}
    IFS='|'
    set -f
    set -- $1 ${line#*|}
    port=$1
    shift
    unset IFS
    redis-benchmark -p "$port" "$@" >"$name.txt" 2>/dev/null </dev/null
    set -- "$port"
done <cases.txt
redis-benchmark --help | sed -n '/^Options/,/^Examples/p' | grep '^ -' | sed -E 's/^ //; s/  .*//; s/^(--tls-[a-z]+ <list>) .*/\1/' >help_options.txt
