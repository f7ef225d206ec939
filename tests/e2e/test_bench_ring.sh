#!/bin/bash
# The sections of `tokenring bench ring` that need no large model, and its peers, against the scripted daemon: every line
# is whole, references are there, and a peer that was built answers.
set -u
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
scratch=$(mktemp -d)
daemon=''
trap '[ -z "$daemon" ] || kill "$daemon"; rm -rf "$scratch"' EXIT

[ "$(nproc)" -gt 1 ] || { echo 'one CPU: nothing can be measured from another'; exit 77; }
"$TOKENRING_BUILD_ROOT/tests/e2e/cli_daemon" >"$scratch/path" &
daemon=$!
for _ in {1..100}; do
	[ -s "$scratch/path" ] && break
	sleep 0.05
done
TOKENRING_SOCKET=$(cat "$scratch/path")
export TOKENRING_SOCKET

# section NAME METRIC...: a machine on which a CPU moves all the time may need another try.
section() {
	local name=$1
	shift
	for _ in 1 2 3 4 5 6; do
		"$tokenring" bench ring --json --only "$name" -r 2 -n 200 --rate 2000 --same-core-ns 0 >"$scratch/lines" 2>"$scratch/error"
		grep -q 'no round counts' "$scratch/error" || break
	done
	if python3 "$TOKENRING_SOURCE_ROOT/tests/e2e/cli_lines.py" ring "$@" <"$scratch/lines"; then
		echo "ok: $name"
	else
		echo "FAIL: $name: $(cat "$scratch/error")"
		exit 1
	fi
}

section paced paced paced_uncorrected paced_corrected

wanted=(echo_beside_peers echo_by_tr_wait seqpacket_spin seqpacket_block)
for peer in zeromq boost iceoryx; do
	[ -x "$TOKENRING_BUILD_ROOT/tools/peer_$peer" ] || continue
	# iceoryx is a library and a daemon, which are packages of their own.
	[ "$peer" = iceoryx ] && ! command -v iox-roudi >/dev/null && continue
	wanted+=("${peer}_spin" "${peer}_block")
done
section peers "${wanted[@]}"
