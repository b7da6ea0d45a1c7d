#!/usr/bin/env python3
"""Runs commands as documents show them, and compares what they print with what is shown.

    shown.py page FILE...        the `sh` blocks of Markdown pages; README.md from its quick starts on
    shown.py example FILE...     the commands at the head of examples, in the current folder
    shown.py driven FILE...      as `example`, where a driver is there: a skipped example is a failure
    shown.py list FILE...        prints the commands of pages, with substitutions, and runs nothing

The `text` block after a block of commands, or an example's lines below "Prints", must be among the printed
lines, in that order. "..." stands for any text. A command that fails ends the run.

A page runs in a clean root: a copy of this system in memory, by an overlay, in which /opt and /tmp are empty
and nothing of the environment is left but what cargo and pip need. The folder is this clone's. Without the
right to make one, the environment alone is clean: /opt/ur is a temporary folder then, and Debian packages are
left out. Each substitution is printed.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "== shown.py: block"
SKIPPED = 77

# What a reader has and this machine has not: shown text, its stand-in, and the reason.
SUBSTITUTIONS = [
    ("/path/to/libur_adapter_mine.so.0", "/opt/ur/lib/libur_adapter_native_cpu.so.0",
     "the reader's adapter is the installed native_cpu"),
    ("/path/to/libur_loader.so.0", "/opt/ur/lib/libur_loader.so.0",
     "the reader's loader is the installed one"),
]

# Commands that something else runs.
ELSEWHERE = {
    ".ci/fast": "the first step of .ci/run",
    ".ci/run": "what calls this script",
}

# Variables that a clean environment keeps. pip's cache spares PyPI a second download.
KEPT = ("PATH", "HOME", "LANG", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR",
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
KEPT_ENDS = ("_proxy", "_PROXY")
KEPT_STARTS = ("PIP_", "CARGO_REGISTRIES_", "CARGO_SOURCE_", "PYENV_")

CLEAN_ROOT = r"""
set -e
scratch=$1 repository=$2
shift 2
mount -t tmpfs -o size=90% tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
root=$scratch/root
for folder in proc dev sys; do mount --rbind "/$folder" "$root/$folder"; done
for folder in opt tmp; do mkdir -p "$root/$folder" && mount -t tmpfs tmpfs "$root/$folder"; done
for folder in "$repository" "$HOME/.cache/pip"; do
    # The overlay has no other file systems.
    if [ -d "$folder" ] && [ -z "$(ls -A "$root/$folder")" ]; then mount --rbind "$folder" "$root/$folder"; fi
done
mkdir -p "$HOME/.cache/pip" "$root/$HOME/.cache/pip"
mount --bind "$HOME/.cache/pip" "$root/$HOME/.cache/pip"
exec chroot "$root" "$@"
"""


def say(text):
    print(f"shown: {text}", flush=True)


class Block:
    def __init__(self, place, commands):
        self.place = place
        self.commands = commands
        self.expected = []


def page_blocks(path):
    """The blocks of commands of a page, with what they print."""
    text = path.read_text()
    if path.name == "README.md":
        text = re.sub(r".*?(?=^## Three quick starts$)", lambda cut: "\n" * cut.group().count("\n"), text,
                      count=1, flags=re.S | re.M)
    blocks = []
    language, lines, start = None, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.fullmatch(r"```(\w*)", line)
        if language is None and fence:
            language, lines, start = fence.group(1), [], number
        elif language is not None and line == "```":
            if language == "sh":
                blocks.append(Block(f"{path.relative_to(ROOT)}:{start}", "\n".join(lines)))
            elif language == "text" and blocks:
                blocks[-1].expected += lines
            language = None
        elif language is not None:
            lines.append(line)
    return blocks


def example_block(path):
    """The commands at the head of an example, with what it prints."""
    head = re.match(r'/\*.*?\*/|(?://[^\n]*\n)+|""".*?"""', path.read_text(), re.S).group()
    lines = [re.sub(r"^ ?(?:\*/?|//) ?", "", line) for line in head.splitlines()]
    prints = next((at for at, line in enumerate(lines) if re.search(r"\bPrints\b", line)), len(lines))
    indented = [line.strip() if line.startswith("  ") else None for line in lines]
    block = Block(path.name, "\n".join(filter(None, indented[:prints])))
    block.expected = list(filter(None, indented[prints:]))
    return block


def substituted(commands, extra):
    for shown, stand_in, why in SUBSTITUTIONS + extra:
        if shown in commands:
            say(f"{shown!r} is {stand_in!r} here: {why}")
            commands = commands.replace(shown, stand_in)
    for line in commands.splitlines():
        for command, why in ELSEWHERE.items():
            if line.split("#")[0].strip().startswith(command):
                say(f"{command} is left out: {why}")
                commands = commands.replace(line, ":")
    return commands


def missing(expected, printed):
    """The first expected line that is not among the printed ones, in order."""
    printed = iter(printed)
    for line in expected:
        pattern = ".*".join(re.escape(part) for part in line.strip().split("..."))
        if not any(re.fullmatch(pattern, found.strip()) for found in printed):
            return line
    return None


def run(blocks, command, environment, folder, accept=()):
    """Runs all blocks in one shell, and checks what each prints. `command` runs a shell's text."""
    script = "set -e\n"
    for number, block in enumerate(blocks):
        script += f"echo '{MARK} {number}'\n{block.commands}\n"
    process = subprocess.run(command + ["bash", "-c", script], env=environment, cwd=folder, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    outputs = re.split(rf"^{MARK} \d+\n", process.stdout, flags=re.M)[1:]
    for block, output in zip(blocks, outputs):
        for line in block.commands.splitlines():
            print(f"  $ {line}")
        printed = output.splitlines()
        for line in printed[-6:]:
            print(f"    {line}")
        last = block is blocks[min(len(outputs), len(blocks)) - 1]
        if last and process.returncode:
            if process.returncode in accept:
                say(f"{block.place} SKIPPED: {printed[-1]}")
                return
            print("\n".join(printed[-40:]))
            sys.exit(f"shown: {block.place} ended with {process.returncode}")
        line = missing(block.expected, printed)
        if line is not None:
            print("\n".join(printed[-40:]))
            sys.exit(f"shown: {block.place} did not print, in its place: {line}")
        what = f"{len(block.expected)} lines as shown" if block.expected else "no line is shown"
        say(f"{block.place} ok, {what}")


def kept_environment():
    return {name: value for name, value in os.environ.items()
            if name in KEPT or name.startswith(KEPT_STARTS) or name.endswith(KEPT_ENDS)}


def clean_root(scratch):
    """The command before a shell's that gives it a clean root; none if this user may not."""
    command = ["unshare", "--mount", "bash", "-c", CLEAN_ROOT, "clean-root", str(scratch), str(ROOT)]
    chdir = ["env", "--chdir", str(ROOT)]
    tried = subprocess.run(command + chdir + ["true"], capture_output=True, text=True)
    if tried.returncode:
        say(f"no clean root ({tried.stderr.strip().splitlines()[-1:]}): the environment alone is clean")
        return None
    return command + chdir


def page(path):
    blocks = page_blocks(path)
    extra = []
    if not shutil.which("sudo"):
        extra.append(("sudo ", "", "this user is root"))
    with tempfile.TemporaryDirectory() as scratch:
        command, folder = clean_root(scratch), ROOT
        if command is None or not shutil.which("dpkg"):
            for block in [block for block in blocks if "dpkg" in block.commands]:
                say(f"{block.place} SKIPPED: Debian's packages need a clean root of Debian")
                blocks.remove(block)
        if command is None:
            command, folder = [], scratch
            for name in ("examples", "conformance", "target"):
                os.symlink(ROOT / name, os.path.join(scratch, name))
            extra += [("/opt/ur", f"{scratch}/ur", "/opt belongs to root"),
                      ("cargo xtask", f"env --chdir {shlex.quote(str(ROOT))} cargo xtask",
                       "the clone stays as it is")]
        for block in blocks:
            block.commands = substituted(block.commands, extra)
            for shown, stand_in, _ in SUBSTITUTIONS + extra:
                block.expected = [line.replace(shown, stand_in) for line in block.expected]
        run(blocks, command, kept_environment(), folder)


def main():
    kind, files = sys.argv[1], [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    for path in files:
        say(f"{path.name}")
        if kind == "page":
            page(path)
        elif kind in ("example", "driven"):
            accept = (SKIPPED,) if kind == "example" else ()
            run([example_block(path)], [], dict(os.environ), os.getcwd(), accept)
        elif kind == "list":
            for block in page_blocks(path):
                print(f"# {block.place}\n{substituted(block.commands, [])}")
        else:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
