#!/usr/bin/env python3
"""Reads valgrind's XML reports and tells the errors that are ours from those of drivers.

    scripts/valgrind.py FOLDER

An error is ours if the first frame of its stack that lies outside the C and C++ libraries and valgrind
itself is in a library or a program of this project. Prints those, counts the others by the library they
happened in, and ends with 1 if any is ours.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree as xml

# Whose callers are meant: allocation and copies happen here on behalf of others.
SYSTEM = ("libc.so", "libc-", "ld-linux", "libstdc++", "libm.so", "libpthread", "libdl.so", "vgpreload", "memcheck-")
OURS = ("libur_", "rounds", "ur-conformance")


def culprit(stack):
    """The file name of the first frame outside the system's libraries."""
    for frame in stack.findall("frame"):
        name = pathlib.PurePath(frame.findtext("obj", "")).name
        if name and not name.startswith(SYSTEM):
            return name
    return "the system"


def describe(error):
    lines = [error.findtext("what") or error.findtext("xwhat/text") or error.findtext("kind", "")]
    for frame in error.find("stack").findall("frame"):
        place = frame.findtext("file")
        place = f"{place}:{frame.findtext('line')}" if place else frame.findtext("obj", "?")
        lines.append(f"    {frame.findtext('fn', '?')} ({place})")
    return "\n".join(lines)


def main(folder):
    ours, others, read = [], collections.Counter(), 0
    for path in sorted(pathlib.Path(folder).iterdir()):
        root = xml.parse(path).getroot()
        read += 1
        for error in root.findall("error"):
            library = culprit(error.find("stack"))
            if library.startswith(OURS):
                ours.append(describe(error))
            else:
                others[library] += 1
    if read == 0:
        sys.exit("valgrind wrote no report")
    print("\n\n".join(ours[:20]))
    print(f"valgrind: {read} reports, {len(ours)} errors of ours; others: {dict(others) or 'none'}")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
