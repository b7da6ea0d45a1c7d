#!/usr/bin/env python3
"""Extracts the ABI of Unified Runtime 0.12 from Intel's PyPI wheels into reference.json.

Facts only: names, values, layouts, types and symbols; no line of the reference's text. The tests
in scripts/tests compare ours with the committed file offline; this script re-makes it.

    extract.py                write reference.json beside this script
    extract.py --check        fail unless the wheels give exactly the committed file
    extract.py --wheels DIR   take wheels that lie in DIR instead of downloading them

Needs Python 3.9, pip, a C compiler (for its stddef.h) and nm. Downloads about 350 MB.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.path.join(HERE, "reference.json")
HEADERS = ("intel-sycl-rt", "2026.2.0")
LOADER = ("intel-cmplr-lib-ur", "2026.2.0")
OLD_CLIENT = ("intel-sycl-rt", "2026.1.2")
CLANG = ("libclang", "18.1.1")


def wheel(package, folder):
    """Path of the wheel of (name, version) in a folder, downloaded there if it is not."""
    name, version = package
    prefix = f"{name.replace('-', '_')}-{version}-"
    for attempt in range(2):
        for found in sorted(os.listdir(folder)):
            if found.startswith(prefix) and found.endswith(".whl"):
                return os.path.join(folder, found)
        if attempt == 0:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", "--dest", folder, f"{name}=={version}"]
            subprocess.run(command, check=True)
    sys.exit(f"pip downloaded no wheel {prefix}*.whl")


def unpack(path, into, wanted):
    """Unpacks the members of a wheel whose path matches, and returns the folder."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if re.search(wanted, member):
                archive.extract(member, into)
    return into


def find(folder, name):
    for where, _, files in os.walk(folder):
        if name in files:
            return os.path.join(where, name)
    sys.exit(f"no {name} under {folder}")


def nm(path, *options):
    command = ["nm", "-D", *options, path]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[-1] for line in lines]


class Headers:
    """The reference headers, parsed."""

    def __init__(self, include, clang):
        library = find(clang, "libclang.so")
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(library))))
        from clang import cindex

        self.cindex = cindex
        self.kind = cindex.CursorKind
        if not cindex.Config.loaded:
            cindex.Config.set_library_file(library)
        self.include = include
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-print-file-name=include"]
        self.builtin = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def cursors(self, header):
        """Top-level declarations and macros of one header."""
        source = f'#include <stdbool.h>\n#include "unified-runtime/{header}"\n'
        unit = self.cindex.Index.create().parse(
            "facts.c",
            args=["-x", "c", "-std=c11", "-I", self.include, "-isystem", self.builtin],
            unsaved_files=[("facts.c", source)],
            options=self.cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD,
        )
        errors = [str(found) for found in unit.diagnostics if found.severity >= 3]
        if errors:
            sys.exit("\n".join(errors))
        for cursor in unit.cursor.get_children():
            where = cursor.location.file
            if where and os.path.basename(where.name) == header:
                yield cursor

    def layout(self, cursor):
        fields = []
        for member in cursor.get_children():
            if member.kind == self.kind.FIELD_DECL:
                offset = cursor.type.get_offset(member.spelling)
                fields.append([member.spelling, spell(member.type), offset // 8])
        return {"size": cursor.type.get_size(), "align": cursor.type.get_align(), "fields": fields}

    def signature(self, cursor, params):
        return {"returns": spell(cursor), "params": [[p.spelling, spell(p.type)] for p in params]}

    def macro(self, cursor):
        """A macro's parameters and replacement, from its tokens."""
        tokens = list(cursor.get_tokens())
        args = None
        body = tokens[1:]
        if body and body[0].spelling == "(" and body[0].extent.start.offset == tokens[0].extent.end.offset:
            close = [token.spelling for token in body].index(")")
            args = [token.spelling for token in body[1:close] if token.spelling != ","]
            body = body[close + 1 :]
        return args, " ".join(token.spelling for token in body)


def spell(kind):
    """A type as C with stdbool.h writes it."""
    return re.sub(r"\b_Bool\b", "bool", kind.spelling)


# Macros that depend on the platform, or are no interface.
SKIPPED_MACROS = {"UR_API_H_INCLUDED", "UR_APICALL", "UR_APIEXPORT", "UR_DLLEXPORT"}


def api_facts(headers):
    kind = headers.kind
    facts = {name: {} for name in ("macros", "enums", "handles", "typedefs", "callbacks", "structs", "unions", "functions")}
    for cursor in headers.cursors("ur_api.h"):
        name = cursor.spelling
        if cursor.kind == kind.MACRO_DEFINITION and name not in SKIPPED_MACROS:
            args, body = headers.macro(cursor)
            facts["macros"][name] = {"args": args, "body": body} if args is not None else body
        elif cursor.kind == kind.ENUM_DECL:
            values = [v for v in cursor.get_children() if v.kind == kind.ENUM_CONSTANT_DECL]
            facts["enums"][name] = {v.spelling: v.enum_value for v in values}
        elif cursor.kind in (kind.STRUCT_DECL, kind.UNION_DECL) and cursor.is_definition():
            where = "structs" if cursor.kind == kind.STRUCT_DECL else "unions"
            facts[where][name] = headers.layout(cursor)
        elif cursor.kind == kind.FUNCTION_DECL:
            facts["functions"][name] = headers.signature(cursor.result_type, cursor.get_arguments())
        elif cursor.kind == kind.TYPEDEF_DECL:
            typedef(headers, facts, cursor)
    return facts


def typedef(headers, facts, cursor):
    name, under = cursor.spelling, cursor.underlying_typedef_type
    text = spell(under)
    if text in (f"enum {name}", f"struct {name}", f"union {name}"):
        return  # the tag has the typedef's own name
    if text == f"struct {name}_ *":
        facts["handles"][name] = f"{name}_"
    elif "(*)" in text:
        params = [p for p in cursor.get_children() if p.kind == headers.kind.PARM_DECL]
        facts["callbacks"][name] = headers.signature(under.get_pointee().get_result(), params)
    else:
        facts["typedefs"][name] = text


def pointer_to(signature):
    params = ", ".join(kind for _, kind in signature["params"]) or "void"
    return f"{signature['returns']} (*)({params})"


def ddi_facts(headers, functions):
    kind = headers.kind
    facts = {"pointers": {}, "tables": {}, "getters": {}}
    for cursor in headers.cursors("ur_ddi.h"):
        name = cursor.spelling
        if cursor.kind == kind.STRUCT_DECL and cursor.is_definition():
            facts["tables"][name] = headers.layout(cursor)
        elif cursor.kind == kind.FUNCTION_DECL:
            facts["getters"][name] = headers.signature(cursor.result_type, cursor.get_arguments())
        elif cursor.kind == kind.TYPEDEF_DECL and "(*)" in spell(cursor.underlying_typedef_type):
            target = re.sub(r"^ur_pfn(\w+)_t$", r"ur\1", name)
            declared = functions.get(target) or facts["getters"].get(target)
            if declared:
                facts["pointers"][name] = target
                actual = spell(cursor.underlying_typedef_type)
                if actual != pointer_to(declared):
                    sys.exit(f"{name} is {actual}, not a pointer to {target}")
            else:
                facts["pointers"][name] = spell(cursor.underlying_typedef_type)
    return facts


def print_facts(headers):
    functions = (c for c in headers.cursors("ur_print.h") if c.kind == headers.kind.FUNCTION_DECL)
    return {"printers": {c.spelling: headers.signature(c.result_type, c.get_arguments()) for c in functions}}


def symbol_facts(loader, client):
    """What the loader exports, under which version, and what a client built before imports."""
    exported = nm(loader, "--defined-only", "--with-symbol-versions")
    versions = {symbol.partition("@@")[2] for symbol in exported}
    imports = {symbol.partition("@")[0] for symbol in nm(client, "--undefined-only")}
    return {
        "symbol_version": sorted(versions),
        "symbols": sorted(symbol.partition("@@")[0] for symbol in exported),
        "imports_of_libsycl_2026_1_2": sorted(name for name in imports if re.match(r"ur[A-Z]", name)),
    }


def extract(wheels, scratch):
    include = unpack(wheel(HEADERS, wheels), os.path.join(scratch, "headers"), r"/include/unified-runtime/")
    loader = unpack(wheel(LOADER, wheels), os.path.join(scratch, "loader"), r"/libur_loader\.so\.0$")
    client = unpack(wheel(OLD_CLIENT, wheels), os.path.join(scratch, "client"), r"/libsycl\.so\.9$")
    clang = unpack(wheel(CLANG, wheels), os.path.join(scratch, "clang"), r"/clang/")
    api = find(include, "ur_api.h")
    headers = Headers(os.path.dirname(os.path.dirname(api)), clang)
    facts = {"source": [f"{name} {version}" for name, version in (HEADERS, LOADER, OLD_CLIENT)]}
    facts.update(api_facts(headers))
    facts.update(ddi_facts(headers, facts["functions"]))
    facts.update(print_facts(headers))
    with open(find(include, "ur_api_funcs.def"), encoding="utf-8") as text:
        facts["function_list"] = re.findall(r"^_UR_API\((\w+)\)", text.read(), re.MULTILINE)
    facts.update(symbol_facts(find(loader, "libur_loader.so.0"), find(client, "libsycl.so.9")))
    return facts


def render(facts):
    """JSON of one fact a line, so that a difference shows as a few lines."""
    sections = []
    for section, content in facts.items():
        lines = []
        if isinstance(content, list):
            lines = [json.dumps(entry) for entry in content]
            opening, closing = "[", "]"
        else:
            for name, entry in content.items():
                lines.append(f"{json.dumps(name)}: {render_entry(section, entry)}")
            opening, closing = "{", "}"
        body = ",\n".join(lines)
        sections.append(f"{json.dumps(section)}: {opening}\n{body}\n{closing}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def render_entry(section, entry):
    if section != "enums":
        return json.dumps(entry)
    values = [f"  {json.dumps(name)}: {value}" for name, value in entry.items()]
    return "{\n" + ",\n".join(values) + "}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with reference.json and change nothing")
    parser.add_argument("--wheels", metavar="DIR", help="folder of wheels; missing ones are downloaded to it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheels = options.wheels or os.path.join(scratch, "wheels")
        os.makedirs(wheels, exist_ok=True)
        facts = extract(wheels, scratch)
    text = render(facts)
    assert json.loads(text) == facts
    if options.check:
        with open(REFERENCE, encoding="utf-8") as committed:
            old = committed.read()
        if old != text:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "committed", "wheels"))
            sys.exit("reference.json differs from the wheels")
        print("reference.json agrees with the wheels:")
    else:
        with open(REFERENCE, "w", encoding="utf-8") as out:
            out.write(text)
        print("wrote reference.json:")
    enumerators = sum(len(values) for values in facts["enums"].values())
    counts = {name: len(content) for name, content in facts.items()}
    counts["enumerators"] = enumerators
    print("  " + ", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
