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

words=$(plain docs/man/tokenring.1)
while read -r verb; do
	grep -q "$verb" docs/man/tokenring.1 || complain "tokenring.1 does not describe the verb $verb"
	# shellcheck disable=SC2086  # a verb may be two words
	for option in $("$cli" $verb --help | grep -oE '^ +(-[a-z], *)?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
		[ "$verb" != run ] || grep -Fxq -- "$option" <<<"$words" || complain "tokenring.1 does not describe $option of $verb"
	done
done < <("$cli" --help | sed -n '/^verbs:/,/^$/p' | sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p')

"$daemon" --print-config | diff <(sed -n '/^```ini$/,/^```$/p' docs/configuration.md | grep -v '^```') - ||
	complain 'docs/configuration.md differs from tokenringd --print-config; paste its output there'
"$daemon" --print-config | docs/man/conf_page.py >"${TMPDIR:-/tmp}/tokenring.conf.5.$$"
for option in $("$daemon" --print-config | sed -nE 's/^#?([a-z_]+) =.*/\1/p'); do
	grep -q "^\.B $option$" "${TMPDIR:-/tmp}/tokenring.conf.5.$$" || complain "tokenring.conf.5 lacks $option"
done
rm -f "${TMPDIR:-/tmp}/tokenring.conf.5.$$"
exit $failed
