#!/usr/bin/env python3
"""tokenring.conf(5) out of what `tokenringd --print-config` prints: the page cannot differ from the table."""
import re
import sys

HEAD = r"""
.TH TOKENRING.CONF 5 "" "tokenring" "File Formats Manual"
.SH NAME
tokenring.conf \- configuration of tokenringd
.SH DESCRIPTION
Lines are
.IR "name = value" ;
a line that begins with # or ; is a remark. There are no sections. An option that is unknown, given twice or out of its
range stops the daemon with a sentence that names the line. Sizes take K, M and G (powers of 1024). The same options work
as flags of
.BR tokenringd (8),
where they win over the file, with
.B -
or
.BR _ .
What follows lists each option with what it does, its range, its unit and its default, and whether a running daemon takes a
new value on SIGHUP.
.SH OPTIONS
""".lstrip()

TAIL = r"""
.SH FILES
.TP
.I /etc/tokenring/tokenring.conf
what the service reads; another is named by
.B --config
.SH EXAMPLES
.EX
model = /var/lib/tokenring/model.gguf
max_clients = 64
# ready for the next request within 5 ms without a wake-up
spin_us = 5000
.EE
.PP
.B tokenringd --print-config
prints all of it, with remarks.
.SH SEE ALSO
.BR tokenringd (8),
.BR tokenring (1)
""".lstrip()


def escape(text):
    return text.replace("\\", "\\\\").replace("-", "\\-")


def pages(text):
    """Each option is remark lines, the last with range and default, then `name = value`, commented out where the value is the default."""
    for block in text.split("\n\n")[1:]:
        lines = block.strip().split("\n")
        name = re.match(r"#?(\w+) =", lines[-1]).group(1)
        remarks = [line.removeprefix("# ").strip() for line in lines[:-1]]
        yield f".TP\n.B {name}\n" + escape("\n".join(remarks[:-1])) + "\n.br\n" + escape(remarks[-1]) + "\n"


def main():
    print(HEAD + "".join(pages(sys.stdin.read())) + TAIL, end="")


if __name__ == "__main__":
    main()
