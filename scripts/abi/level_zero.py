#!/usr/bin/env python3
"""Extracts the ABI of Level Zero from Debian's libze-dev packages into level_zero.json.

Facts only: names, values, layouts, types and the order of table entries; no line of the headers' text.
`cargo xtask gen` writes adapters/level_zero/ze from the committed file offline; this script re-makes it.

    level_zero.py                 write level_zero.json beside this script
    level_zero.py --check         fail unless the packages give exactly the committed file
    level_zero.py --packages DIR  take packages that lie in DIR (SUITE/*.deb) instead of downloading them

The definitions come from sid's package. Those of the older suites tell how long each table was then: a driver
must not fill more of a table than the version that is asked for has. Needs Python 3.9, pip, apt, dpkg-deb and
a C compiler (for its stddef.h).
"""

import argparse
import difflib
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

from extract import CLANG, Headers, spell, unpack, wheel

HERE = os.path.dirname(os.path.abspath(__file__))
FACTS = os.path.join(HERE, "level_zero.json")

# Oldest first. The last one's headers are the definitions.
SUITES = ("bookworm", "trixie", "sid")

# Of the system interface and the loader's own, what the adapter names. The core interface is taken whole.
SYSTEM = {
    "zesInit", "zesDriverGet", "zesDriverGetDeviceByUuidExp", "zesDeviceGet", "zesDeviceGetState",
    "zesDevicePciGetProperties", "zesDeviceEnumFans", "zesDeviceEnumFrequencyDomains",
    "zesDeviceEnumMemoryModules", "zesDeviceEnumPowerDomains", "zesDeviceEnumTemperatureSensors",
    "zesFanGetProperties", "zesFanGetState", "zesFrequencyGetProperties", "zesFrequencyGetRange",
    "zesFrequencyGetState", "zesMemoryGetProperties", "zesMemoryGetState", "zesPowerGetEnergyCounter",
    "zesPowerGetLimits", "zesPowerGetProperties", "zesTemperatureGetProperties", "zesTemperatureGetState",
    "zelCheckIsLoaderInTearDown", "zelLoaderGetVersions", "zelLoaderTranslateHandle", "zelSetDriverTeardown",
}
# The sections that later packages only add to.
SECTIONS = ("macros", "enums", "handles", "typedefs", "callbacks", "structs", "functions", "tables")
# Extensions of the core interface that no adapter uses.
UNUSED = re.compile(r"^zeRTAS|^zeFabric|^zeDeviceGetFabric")


class Unavailable(Exception):
    """A package that cannot be downloaded here."""


def package(suite, folder):
    """Path of a suite's libze-dev, downloaded with lists of its own if it is not in the folder."""
    folder = os.path.abspath(os.path.join(folder, suite))
    for name in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    if not glob.glob(os.path.join(folder, "libze-dev_*.deb")):
        sources = os.path.join(folder, "debian.sources")
        with open(sources, "w", encoding="utf-8") as out:
            out.write(f"Types: deb\nURIs: {os.environ.get('UR_DEBIAN', 'http://deb.debian.org/debian')}\n")
            out.write(f"Suites: {suite}\nComponents: main\n")
            out.write("Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n")
        options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null"]
        options += [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=root"]
        apt = ["apt-get", "-q"] + [word for option in options for word in ("-o", option)]
        for command in (["update"], ["download", "libze-dev"]):
            try:
                subprocess.run(apt + command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Unavailable(f"libze-dev of {suite}: {error}") from error
    found = sorted(glob.glob(os.path.join(folder, "libze-dev_*.deb")))
    return found[-1] if found else sys.exit(f"no libze-dev of {suite}")


class LevelZero(Headers):
    """One package's headers, parsed as one unit."""

    def cursors(self):
        names = ["ze_api.h", "zes_api.h", "zet_api.h", "ze_ddi.h", "zes_ddi.h", "zet_ddi.h"]
        names += [name for name in ("zer_api.h", "zer_ddi.h") if os.path.exists(f"{self.include}/level_zero/{name}")]
        names.append("loader/ze_loader.h")
        source = "#include <stdbool.h>\n" + "".join(f"#include <level_zero/{name}>\n" for name in names)
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
            if where and "/level_zero/" in where.name:
                yield cursor


def plain(text):
    """A type without the tags that the headers write before it: `struct _ze_x_t *` is `ze_x_t *`."""
    return re.sub(r"\b(?:struct|union|enum) _?(?=ze)", "", text)


def parse(headers):
    """Every declaration of the package."""
    kind = headers.kind
    facts = {name: {} for name in ("enums", "handles", "typedefs", "callbacks", "structs", "unions", "functions")}
    facts.update({"tables": {}, "getters": {}, "pointers": {}, "macros": {}})
    for cursor in headers.cursors():
        name = cursor.spelling.removeprefix("_")
        if cursor.kind == kind.ENUM_DECL:
            values = [v for v in cursor.get_children() if v.kind == kind.ENUM_CONSTANT_DECL]
            facts["enums"][name] = {v.spelling: v.enum_value & 0xFFFFFFFF for v in values}
        elif cursor.kind in (kind.STRUCT_DECL, kind.UNION_DECL) and cursor.is_definition():
            layout = headers.layout(cursor)
            fields = [[field, plain(of), offset] for field, of, offset in layout["fields"]]
            entry = [layout["size"], layout["align"], fields]
            table = name.endswith("_dditable_t")
            where = "tables" if table else "structs" if cursor.kind == kind.STRUCT_DECL else "unions"
            facts[where][name] = entry
        elif cursor.kind == kind.FUNCTION_DECL:
            where = "getters" if name.endswith("ProcAddrTable") else "functions"
            params = [[p.spelling, plain(spell(p.type))] for p in cursor.get_arguments()]
            facts[where][name] = [plain(spell(cursor.result_type)), params]
        elif cursor.kind == kind.TYPEDEF_DECL:
            typedef(headers, facts, cursor)
        elif cursor.kind == kind.MACRO_DEFINITION and re.match(r"ZES?_MAX_\w+$|ZE_SUBGROUPSIZE_COUNT$", cursor.spelling):
            args, body = headers.macro(cursor)
            number = re.fullmatch(r"\(?(\d+|0x[0-9a-fA-F]+)[uU]?\)?", body)
            if args is None and number:
                facts["macros"][cursor.spelling] = int(number.group(1), 0)
    return facts


def typedef(headers, facts, cursor):
    name, under = cursor.spelling, cursor.underlying_typedef_type
    text = plain(spell(under))
    if "(*)" in text:
        pointee = under.get_pointee()
        params = [p for p in cursor.get_children() if p.kind == headers.kind.PARM_DECL]
        signature = [plain(spell(pointee.get_result())), [[p.spelling, plain(spell(p.type))] for p in params]]
        facts["pointers" if "_pfn" in name else "callbacks"][name] = signature
    elif re.fullmatch(r"_?ze\w+_handle_t \*", text):
        facts["handles"][name] = text.split()[0]
    elif text != name:
        facts["typedefs"][name] = text


def function_of(pointer):
    """The function of a table's entry: `ze_pfnDeviceGet_t` is `zeDeviceGet`."""
    prefix, _, rest = pointer.partition("_pfn")
    return prefix + rest.removesuffix("_t")


def wanted(name):
    return name in SYSTEM or (re.match(r"ze[A-Z]|zer[A-Z]", name) and not UNUSED.match(name))


def words(types):
    return {word for text in types for word in re.findall(r"\bz\w+", text)}


def reached(facts, functions):
    """The names of all types of the functions, and of the core interface's structures, which chains bring."""
    core = [name for name in facts["structs"] if re.match(r"ze_", name) and not re.search(r"rtas|fabric|dditable|_params_t$|callbacks", name)]
    todo = words(of for result, params in functions.values() for of in [result] + [kind for _, kind in params])
    todo |= set(core)
    todo.add("ze_structure_type_t")
    done = set()
    while todo:
        name = todo.pop()
        done.add(name)
        more = set()
        for section in ("structs", "unions"):
            if name in facts[section]:
                more |= words(of for _, of, _ in facts[section][name][2])
        if name in facts["callbacks"]:
            result, params = facts["callbacks"][name]
            more |= words([result] + [of for _, of in params])
        if name in facts["typedefs"]:
            more |= words([facts["typedefs"][name]])
        # A set of flags is a number in the headers; its bits are the enum of the singular.
        if name.endswith("_flags_t"):
            more.add(name.replace("_flags_t", "_flag_t"))
        todo |= more - done
    return done


def tables(facts, older):
    """The getters' tables: entries by function, and how many each older suite had."""
    out = {}
    for getter, (_, params) in facts["getters"].items():
        table = params[1][1].removesuffix(" *")
        size, _, fields = facts["tables"][table]
        for (field, pointer, offset), slot in zip(fields, range(0, size, 8)):
            function = function_of(pointer)
            declared = facts["functions"].get(function)
            actual = facts["pointers"][pointer]
            if offset != slot:
                sys.exit(f"{table}.{field} is at {offset}")
            if declared and [of for _, of in declared[1]] != [of for _, of in actual[1]]:
                sys.exit(f"{pointer} is not a pointer to {function}")
        lengths = {}
        for suite, old in older.items():
            names = [field for field, _, _ in old["tables"].get(table, [0, 0, []])[2]]
            if names != [field for field, _, _ in fields[: len(names)]]:
                sys.exit(f"{table} did not only grow since {suite}")
            lengths[old["version"]] = len(names)
        entries = [[field, function_of(pointer)] for field, pointer, _ in fields]
        out[getter] = {"table": table, "lengths": lengths, "entries": entries}
    return out


def extract(folder, scratch):
    clang = unpack(wheel(CLANG, os.path.join(scratch)), os.path.join(scratch, "clang"), r"/clang/")
    parsed = {}
    versions = []
    for suite in SUITES:
        path = package(suite, folder)
        root = os.path.join(scratch, suite)
        subprocess.run(["dpkg-deb", "-x", path, root], check=True)
        facts = parse(LevelZero(os.path.join(root, "usr/include"), clang))
        values = facts["enums"]["ze_api_version_t"]
        facts["version"] = max(value for name, value in values.items() if not name.endswith("FORCE_UINT32"))
        parsed[suite] = facts
        versions.append(f"libze-dev {os.path.basename(path).split('_')[1]} of {suite}")
    facts = parsed.pop(SUITES[-1])
    functions = {name: entry for name, entry in facts["functions"].items() if wanted(name)}
    names = reached(facts, functions)
    out = {"source": versions, "version": facts["version"], "macros": facts["macros"]}
    for section in ("enums", "handles", "typedefs", "callbacks", "structs", "unions"):
        out[section] = {name: entry for name, entry in facts[section].items() if name in names}
    out["enums"] = {name: numbers(entry) for name, entry in out["enums"].items()}
    out["functions"] = functions
    out["tables"] = tables(facts, parsed)
    out["since"] = since(functions, parsed)
    return out


def numbers(values):
    return {name: value for name, value in values.items() if not name.endswith("_FORCE_UINT32")}


def since(functions, older):
    """The functions that an older suite's headers lack, by its version."""
    return {
        str(facts["version"]): [name for name in functions if name not in facts["functions"]]
        for facts in older.values()
    }


def render(facts):
    """JSON of one fact a line, so that a difference shows as a few lines."""
    sections = []
    for section, content in facts.items():
        if isinstance(content, dict):
            lines = [f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}" for name, entry in content.items()]
            sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n}")
        else:
            sections.append(f"{json.dumps(section)}: {json.dumps(content)}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def still(old, new, where=""):
    """The places at which a committed fact is no longer true. New enumerators, functions and entries are additions."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}.{name}" for name in old if name not in new]
        return missing + [at for name in old if name in new for at in still(old[name], new[name], f"{where}.{name}")]
    grows = where.startswith(".tables.") and where.endswith(".entries")
    if grows and isinstance(new, list) and new[: len(old)] == old:
        return []
    return [] if old == new else [where]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with level_zero.json and change nothing")
    parser.add_argument("--packages", metavar="DIR", help="folder of packages; missing ones are downloaded to it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            facts = extract(options.packages or os.path.join(scratch, "packages"), scratch)
        except Unavailable as error:
            if not options.check:
                sys.exit(f"no {error}")
            print(f"skipped: level_zero.json is not compared, for want of {error}")
            return
    text = render(facts)
    if options.check:
        with open(FACTS, encoding="utf-8") as committed:
            old = committed.read()
        before = json.loads(old)
        if before["source"] != facts["source"]:
            # sid moves. Its facts may grow; what stands here must stay true.
            changed = still({name: entry for name, entry in before.items() if name in SECTIONS}, facts)
            if changed:
                sys.exit("level_zero.json is no longer true of " + facts["source"][-1] + ":\n  " + "\n  ".join(changed))
            print("level_zero.json is true of newer packages too; run without --check to take their additions:")
        elif old != text:
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), "committed", "packages"))
            sys.exit("level_zero.json differs from the packages")
        print("level_zero.json agrees with the packages:")
    else:
        with open(FACTS, "w", encoding="utf-8") as out:
            out.write(text)
        print("wrote level_zero.json:")
    print("  " + "; ".join(facts["source"]))
    print("  " + ", ".join(f"{name} {len(entry)}" for name, entry in facts.items() if isinstance(entry, dict)))


if __name__ == "__main__":
    main()
