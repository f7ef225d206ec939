#!/usr/bin/env python3
"""Prints bash completion for tokenring and tokenringd, made from what their --help says.

  packaging/completion.py TOKENRING TOKENRINGD
"""
import re
import subprocess
import sys

FILES = ("FILE", "PATH", "DIR")

HEAD = """# bash completion for tokenring(1) and tokenringd(8), made from their --help when they were built
# shellcheck shell=bash disable=SC2207

# Offers words, or files where the word "FILE" is among them.
_tokenring_offer() {
	local word=$1
	shift
	COMPREPLY=($(compgen -W "${*//FILE/}" -- "$word"))
	[[ " $* " == *" FILE "* ]] || return 0
	compopt -o filenames 2>/dev/null
	COMPREPLY+=($(compgen -f -- "$word"))
}

# What the last option before the word wants; a value after "=" belongs to the word before it.
_tokenring_option() {
	local at=$((COMP_CWORD - 1))
	[[ $word != = ]] || word=''
	[[ ${COMP_WORDS[at]} != = ]] || at=$((at - 1))
	option=${COMP_WORDS[at]}
}
"""


def ask(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def verbs(text):
    """Names of one or two words and their summaries, of the list below "verbs:"."""
    return re.findall(r"^  (\w+(?: \w+)?)  ", text.split("verbs:\n", 1)[1].split("\n\n")[0], re.MULTILINE)


def options(text):
    """(letter or "", name, value or "") of each line of a verb's help."""
    return re.findall(r"^  (?:(-\w), )?(--[\w-]+)(?: ([A-Z]+))? ", text, re.MULTILINE)


def choices(text):
    """option -> the words of a help that begins with a list of them: "echo, idle or peers; may be given again", "last or mean"."""
    found = re.findall(r"^  (?:-\w, )?(--[\w-]+) [A-Z]+ +((?:[\w-]+, )*[\w-]+ or [\w-]+)(?:;|$)", text, re.MULTILINE)
    return {name: re.split(", | or ", words) for name, words in found}


def case(patterns, words):
    return f"\t{'|'.join(patterns)}) _tokenring_offer \"$word\" {' '.join(words)}; return ;;\n" if patterns else ""


def verb_function(tool, verb):
    text = ask(tool, *verb.split())
    found = options(text)
    arguments = text.split("\n")[0].split("[OPTION]...")[1]
    valued = [(letter, name, value) for letter, name, value in found if value]
    names = lambda rows: [word for letter, name, _ in rows for word in (letter, name) if word]
    words = [name for _, name, _ in found]
    listed = choices(text)
    wants_file = any(kind in arguments for kind in FILES)
    return (f"_tokenring_{verb.replace(' ', '_')}() {{\n\tcase $option in\n"
            + case(names([row for row in valued if row[2] in FILES]), ["FILE"])
            + "".join(case(names([row for row in valued if row[1] == name]), listed[name]) for name in listed)
            + case(names([row for row in valued if row[2] not in FILES and row[1] not in listed]), [])
            + "\tesac\n"
            + (f"\t[[ $word == -* ]] || {{ _tokenring_offer \"$word\" FILE; return; }}\n" if wants_file else "")
            + f"\t_tokenring_offer \"$word\" {' '.join(words)}\n}}\n")


def tool_function(tool):
    names = verbs(ask(tool))
    groups = sorted({name.split()[0] for name in names if " " in name})
    firsts = list(dict.fromkeys(name.split()[0] for name in names))
    lines = ["_tokenring() {", "\tlocal word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} option",
             "\tCOMPREPLY=()", "\t_tokenring_option", "\tif ((COMP_CWORD == 1)); then",
             f"\t\t_tokenring_offer \"$word\" {' '.join(firsts)} --help --version", "\t\treturn", "\tfi", "\tcase $verb in"]
    for group in groups:
        seconds = [name.split()[1] for name in names if name.startswith(group + " ")]
        lines += [f"\t{group})", "\t\tif ((COMP_CWORD == 2)); then",
                  f"\t\t\t_tokenring_offer \"$word\" {' '.join(seconds)} --help", "\t\t\treturn", "\t\tfi",
                  "\t\tverb+=_${COMP_WORDS[2]} ;;"]
    lines += ["\tesac", "\tcase $verb in", f"\t{'|'.join(name.replace(' ', '_') for name in names)}) \"_tokenring_$verb\" ;;", "\tesac", "}"]
    return "".join(verb_function(tool, name) + "\n" for name in names) + "\n".join(lines) + "\n"


def daemon_options(text):
    """name -> "path", a tuple of choices, or "": from blocks of a name, a sentence and a last line with the range."""
    found = {}
    for block in re.split(r"\n\n+", text):
        lines = block.strip().split("\n")
        name = re.fullmatch(r"--[\w-]+", lines[0].strip())
        if not name:
            continue
        choices = re.match(r"\s*([\w-]+(?:\|[\w-]+)+); default", lines[-1])
        found[name[0]] = tuple(choices[1].split("|")) if choices else ""
    return found


def daemon_function(daemon):
    text = ask(daemon)
    found = daemon_options(text)
    paths = ["--model", "--socket", "--config"]
    words = list(dict.fromkeys([*found, "--config", "--help", "--version", "--print-config"]))
    assert "--model" in found and "--socket" in found, "tokenringd --help has another form than this script knows"
    plain = [name for name, choices in found.items() if not choices and name not in paths]
    return ("_tokenringd() {\n\tlocal word=${COMP_WORDS[COMP_CWORD]} option\n\tCOMPREPLY=()\n\t_tokenring_option\n\tcase $option in\n"
            + case(paths, ["FILE"]) + "".join(case([name], choices) for name, choices in found.items() if choices)
            + case(plain, []) + "\tesac\n" + f"\t_tokenring_offer \"$word\" {' '.join(words)}\n}}\n")


def main():
    tool, daemon = sys.argv[1:]
    print("\n".join([HEAD, tool_function(tool), daemon_function(daemon), "complete -F _tokenring tokenring",
                     "complete -F _tokenringd tokenringd"]))


if __name__ == "__main__":
    main()
