#!/bin/sh
# Captures the golden files anew: capture.sh PORT CLUSTER_PORT, where a Redis 8.2.3 started with --save '' --appendonly no
# listens, and a node of a cluster of three masters of redis-server 7.0.15, started likewise.
# redis-benchmark 7.0.15 must be in PATH. Digits differ from run to run; the tests mask them.
cd "$(dirname "$0")" || exit 1
redis-benchmark --version | grep -q '7\.0\.15' || { echo "redis-benchmark 7.0.15 is needed" >&2; exit 1; }
cluster=$2

# capture FILE OPTION...: one run for each line of FILE, which is a name and more options with bars between them.
capture() {
    cases=$1
    shift
    while IFS= read -r line; do
        name=${line%%|*}
        (
            IFS='|'
            set -f
            redis-benchmark "$@" ${line#*|} >"$name.txt" 2>/dev/null </dev/null
        )
    done <"$cases"
}
capture cases.txt -p "$1"
capture cluster_cases.txt -p "$cluster" --cluster
redis-benchmark --help | sed -n '/^Options/,/^Examples/p' | grep '^ -' | sed -E 's/^ //; s/  .*//; s/^(--tls-[a-z]+ <list>) .*/\1/' >help_options.txt
