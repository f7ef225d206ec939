#!/bin/bash
# The counting of tools/check: a made-up meson log, with a skip that is listed and one that is not.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$TOKENRING_SOURCE_ROOT" || exit 1
failed=0
complain() { echo "FAIL: $*"; failed=1; }

cat >"$work/log.json" <<'E'
{"name": "tokenring:fast+unit / good", "result": "OK", "stdout": "fine\n", "duration": 0.1, "returncode": 0}
{"name": "tokenring:fast+unit / partly", "result": "OK", "stdout": "[  SKIPPED ] inner_case\n", "duration": 0.1, "returncode": 0}
{"name": "tokenring:fast+e2e / needs-gpu", "result": "SKIP", "stdout": "noise\nskip: no GPU here\n", "duration": 0.1, "returncode": 77}
{"name": "tokenring:fast+unit / broken", "result": "FAIL", "stdout": "", "stderr": "assertion of 3 == 4\n", "duration": 0.1, "returncode": 1}
{"name": "tokenring:fast+unit / slow", "result": "TIMEOUT", "stdout": "last words\n", "duration": 30.0, "returncode": -15}
E
cat >"$work/count.py" <<'E'
import pathlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "tools")
import run_checks
work = pathlib.Path(sys.argv[1])
run_checks.allowed_skips = lambda: [("*:needs-gpu", "no GPU in CI")] + ([("stage:partly/*", "")] if "all" in sys.argv else [])
results = run_checks.Results()
run_checks.read_test_log("stage", work / "log.json", results)
if "good" in sys.argv:
    results.failed = []
sys.exit(run_checks.report(results))
E

output=$(CI=true python3 "$work/count.py" "$work")
status=$?
[ $status = 1 ] || complain "failures end with $status"
for expected in 'FAILED stage:broken' '    assertion of 3 == 4' 'FAILED stage:slow' '    TIMEOUT after 30.0 s, exit status -15' \
	'SKIPPED stage:needs-gpu: skip: no GPU here' \
	'SKIPPED stage:partly/inner_case: skipped inside the test program [not listed in tests/skips]'; do
	grep -Fxq -- "$expected" <<<"$output" || complain "no line \"$expected\" in: $output"
done
[ "$(tail -1 <<<"$output")" = '2 passed, 2 failed, 2 skipped' ] || complain "the last line is $(tail -1 <<<"$output")"

CI=true python3 "$work/count.py" "$work" good >/dev/null && complain "an unlisted skip passed in CI"
env -u CI python3 "$work/count.py" "$work" good >/dev/null || complain "an unlisted skip failed outside CI"
CI=true python3 "$work/count.py" "$work" good all >/dev/null || complain "listed skips failed in CI"
[ "$(sed -n 's/^CI=true exec //p' .ci/run)" = ./tools/check ] || complain ".ci/run does not call ./tools/check alone"
exit $failed
