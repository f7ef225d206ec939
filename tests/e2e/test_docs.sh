#!/bin/bash
# What the documents say is true: files exist, options and verbs are complete, the configuration page is the table.
set -u
cd "$TOKENRING_SOURCE_ROOT" || exit 1
failed=0
complain() { echo "FAIL: $*"; failed=1; }
program() { find "$TOKENRING_BUILD_ROOT" -type f -name "$1" -perm -u+x | head -1; }

for page in README.md CONTRIBUTING.md SECURITY.md docs/*.md; do
	while read -r path; do
		compgen -G "$path" >/dev/null || complain "$page names $path, which is not there"
	done < <(grep -oE '`(shm|numa|kernels|libclient|daemon|tools|tests|docs)/[a-z0-9_./*-]*`' "$page" | tr -d '`')
	while read -r link; do
		[ -e "$(dirname "$page")/$link" ] || complain "$page links to $link, which is not there"
	done < <(grep -oE '\]\([^)#:]+\)' "$page" | sed 's/^](//; s/)$//')
done

# A man page without its formatting: dashes are plain, font changes are gone.
plain() { sed -E 's/\\f[A-Z]//g; s/\\-/-/g; s/\\ / /g; s/^\.[A-Z]{1,2} //; s/[",]//g' "$1" | tr -s ' ' '\n'; }
if command -v man >/dev/null; then
	for page in docs/man/*.[0-9]; do
		warnings=$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
		[ -z "$warnings" ] || complain "$page: $warnings"
	done
fi

while read -r function; do
	grep -qw "$function" docs/man/libtokenring.3 || complain "libtokenring.3 does not list $function"
done < <(sed -n 's/^TR_API .*[ *]\(tr_[a-z_]*\)(.*/\1/p' libclient/include/tokenring/tokenring.h)

daemon=$(program tokenringd)
cli=$(program tokenring)
[ -x "$daemon" ] && [ -x "$cli" ] || { complain "tokenringd and tokenring are not built"; exit 1; }

# section VERB: the words of tokenring.1 from the verb's heading to the next one, and of the options that several share.
section() {
	awk -v verb="$1" '
		/^\.S[SH]/ { inside = index($0, verb " ") || index($0, verb "\"") || $0 ~ (verb "$") }
		inside' docs/man/tokenring.1 >"$scratch/section"
	sed -n '/^Both take$/,/^\.SS/p; /^\.SS Options of every verb/,/^\.SH/p' docs/man/tokenring.1 >>"$scratch/section"
	plain "$scratch/section"
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

n=0
while read -r verb; do
	n=$((n + 1))
	words=$(section "$verb")
	[ "$(wc -w <<<"$words")" -ge 10 ] || complain "tokenring.1 has no section on the verb $verb"
	# shellcheck disable=SC2086  # a verb may be two words
	help=$("$cli" $verb --help) || complain "tokenring $verb --help exits $?"
	[[ $help == "usage: tokenring $verb "* ]] || complain "tokenring $verb --help begins with ${help%%$'\n'*}"
	for option in $(grep -oE '^ +(-[a-z], *)?--[a-z-]+' <<<"$help" | grep -oE -- '-[a-z]\b|--[a-z-]+'); do
		grep -Fxq -- "$option" <<<"$words" || complain "tokenring.1 does not describe $option of $verb"
	done
done < <("$cli" --help | sed -n '/^verbs:/,/^$/p' | sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p')
[ $n -ge 9 ] || complain "tokenring --help lists $n verbs only"
for group in $("$cli" --help | sed -nE 's/^  ([a-z]+) [a-z]+  .*/\1/p' | sort -u); do
	"$cli" "$group" --help | grep -q "^usage: tokenring $group VERB" || complain "tokenring $group --help says something else"
done

# What doctor says that something costs was measured: the page has the figure.
figures=$(grep -oE '[0-9][0-9.]* (us|%)' tools/cli/doctor_costs.h | sort -u)
[ "$(wc -l <<<"$figures")" -ge 5 ] || complain "doctor_costs.h has few figures: $figures"
while read -r figure; do
	grep -Fq "${figure/us/µs}" docs/latency.md || complain "docs/latency.md does not have \"$figure\" of doctor_costs.h"
done <<<"$figures"

# Flags of the daemon that are no options of the configuration, and every variable that the programs read.
for flag in $("$daemon" --help | sed -n '/^usage:/,/^$/p' | grep -oE -- '--[a-z-]+' | sort -u); do
	plain docs/man/tokenringd.8 | grep -Fxq -- "$flag" || complain "tokenringd.8 does not describe $flag"
done
variables() { grep -rhoE 'getenv\("[A-Z_]+"\)' --include='*.c' "$@" | grep -oE '[A-Z_]{3,}' | sort -u; }
names() { for name in $(variables "${@:2}"); do grep -qw "$name" "docs/man/$1" || complain "$1 does not describe $name"; done; }
names tokenringd.8 daemon
names tokenring.1 tools/cli
names libtokenring.3 libclient
for page in tokenring.1 tokenringd.8; do
	for heading in 'EXIT STATUS' SIGNALS ENVIRONMENT FILES; do
		grep -qx "\.SH $heading" "docs/man/$page" || complain "$page has no section $heading"
	done
done

"$daemon" --print-config | diff <(sed -n '/^```ini$/,/^```$/p' docs/configuration.md | grep -v '^```') - ||
	complain 'docs/configuration.md differs from tokenringd --print-config; paste its output there'
"$daemon" --print-config | docs/man/conf_page.py >"$scratch/tokenring.conf.5"
for option in $("$daemon" --print-config | sed -nE 's/^#?([a-z_]+) =.*/\1/p'); do
	grep -q "^\.B $option$" "$scratch/tokenring.conf.5" || complain "tokenring.conf.5 lacks $option"
done
exit $failed
