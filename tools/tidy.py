#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/style.md that a script can check. Prints `file:line: rule: what is wrong`, one a line.

    tidy.py [ROOT]      exit status 1 when anything is wrong
"""
import ast
import collections
import os
import re
import sys
from pathlib import Path

import layers

# Folder -> folders whose files it may include. A folder that is not listed may include anything.
LAYERS = {
    "include": {"include"},
    "base": {"base", "include"},
    "stats": {"stats", "base", "include"},
    "explain": {"explain", "base", "include"},
    "alloc": {"alloc", "stats", "explain", "base", "include"},
    "sim": {"sim", "base", "include"},
    "trace": {"trace", "explain", "sim", "base", "include"},
    "cli": {"cli", "trace", "explain", "sim", "base", "include"},
    "bench": {"bench", "lookalike", "trace", "explain", "sim", "base", "include"},
    "plug": {"plug", "base", "include"},
    "lookalike": {"lookalike", "sim", "base", "include"},
    "examples": {"include"},
}

# Call -> files that own it. The first table is for every folder of the library, the second for all C code.
LIBRARY_FOLDERS = {"base", "stats", "explain", "alloc"}
# Folders where a function that nothing names is dead; others define functions that programs look up by name.
NAMED_FOLDERS = LIBRARY_FOLDERS | {"sim", "trace", "cli", "bench"}
OWNED_CALLS = {
    "malloc calloc realloc aligned_alloc posix_memalign free strdup strndup": {"meta.c", "api.c", "native_stack.c"},
    "mmap munmap": {"meta.c", "native_stack.c", "file_symbol.c"},
    "getenv secure_getenv": {"config.c", "rank.h"},
    "printf fprintf vfprintf dprintf puts fputs putchar perror": set(),
    "abort exit _exit": {"assert.c", "assert.h"},
    "clock_gettime gettimeofday time": {"history.c", "ticks.c"},
    "nanosleep usleep": {"lock.c"},
    "dlopen dlsym dlclose": {"driver_cuda.c", "nvtx.c", "nvml.c", "native_stack.c"},
}
BANNED_CALLS = "strcat sprintf vsprintf gets alloca rand srand random setenv strtok"

MAX_COLUMNS = 120
TAB_COLUMNS = 4
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = {"alloc": 800}
RATCHET = "tools/tidy_ratchet.txt"

CPP_SUFFIXES = {".cpp", ".hpp"}
C_SUFFIXES = {".c", ".h", ".def"} | CPP_SUFFIXES
CODE_SUFFIXES = C_SUFFIXES | {".py", ".sh", ".cmake", ".map", ".in"}
CODE_NAMES = {"CMakeLists.txt", "Makefile", "run"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".md", ".json", ".ini", ".txt"}
REPEATED_NAMES = {"CMakeLists.txt", "README.md", "__init__.py", "__main__.py", "sitecustomize.py"}
SKIPPED_FOLDERS = {".git", "build", "__pycache__", "corpus", ".cache"}

MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
MACHINE_PATHS = re.compile("|".join("/" + name + "/" for name in ("work", "root", "home")))
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
# A comment that opens with a statement and ends like one.
DEAD_CODE = re.compile(
    r"^\s*(//|/\*)\s*"
    r"(return\b|(if|for|while|switch) \(|(\w+[ *]+)*[\w>.\[\]-]+ ?(=|\()).*[;{}]\s*(\*/)?\s*$"
    r"|^\s*#\s*if\s+0\b")
# Folders of C programs that other rules compile.
ELSEWHERE = {("tests", "install"), ("tests", "lookalike"), ("tests", "native"), ("examples", "native"),
             ("bench", "harness"), ("bench", "peers"), ("bench", "gpu")}
# What trz_sources() of cmake/ gathers to compile.
SOURCE_GLOBS = re.compile(r"\btrz_sources\(\w*sources ([^)]*)\)")
PROTOTYPE = re.compile(r"^[A-Za-z][^\n;{}=(]*\b(\w+)\([^{};]*\)[^{};]*;", re.M)
DECLARATION = re.compile(r"^TRZ_API\b[^;(]*?\b(trz_\w+)\(", re.M)


class File:
    def __init__(self, root, path):
        self.path = path.relative_to(root)
        self.name = path.name
        self.folder = self.path.parts[0] if len(self.path.parts) > 1 else ""
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()
        self.is_c = path.suffix in C_SUFFIXES
        self.is_code = path.suffix in CODE_SUFFIXES or self.name in CODE_NAMES
        self.includes = [(self.text.count("\n", 0, m.start(1)) + 1, m.group(1))
                         for m in INCLUDE.finditer(self.text)] if self.is_c else []


class Tree:
    """All files of the tree, and the problems found in them."""

    def __init__(self, root):
        self.root = Path(root).resolve()
        self.files = [File(self.root, path) for path in sorted(self._paths())]
        self.c_files = [f for f in self.files if f.is_c]
        self.by_name = {f.name: f for f in self.files}
        self.problems = []

    def _paths(self):
        """Paths of the files to check. Does not even list skipped folders, since files that tests make in build/ vanish
        meanwhile."""
        for folder, folders, names in os.walk(self.root):
            folders[:] = set(folders) - SKIPPED_FOLDERS
            for path in (Path(folder, name) for name in names):
                if (path.suffix in TEXT_SUFFIXES or path.name in CODE_NAMES) and path.is_file():
                    yield path

    def report(self, file, line, rule, text):
        self.problems.append(f"{file.path if isinstance(file, File) else file}:{line}: {rule}: {text}")


def blank_comments_and_strings(text):
    """C text with comments and literals replaced by spaces, line breaks kept."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def c_functions(file):
    """(name, first line, length) of each function: a body starts and ends with a brace in column 1; in C++ it may be
    indented, as in a class."""
    start = opening = None
    lines = blank_comments_and_strings(file.text).splitlines()
    for number, line in enumerate(lines, 1):
        text = line.lstrip("\t") if file.path.suffix in CPP_SUFFIXES else line
        depth = len(line) - len(text)
        if opening:
            if text.startswith("}") and depth == opening[1]:
                name = re.search(r"(\boperator\W{1,2}|~?\w+)\s*\(", " ".join(lines[opening[0] - 1:number]))
                yield name.group(1) if name else "?", opening[0], number - opening[0] + 1
                start = opening = None
        elif text.startswith("{"):
            opening = start and (start, depth)
        elif text.startswith("}"):
            start = None
        elif text and not text[0].isspace() and text[0] != "#":
            before = lines[number - 2].rstrip() if number > 1 else ""
            if start is None or not before or before.startswith("#") or before.endswith((";", "{", "}", ":", "\\")):
                start = number


def functions(file):
    if file.is_c and file.path.suffix != ".def":
        yield from c_functions(file)
    elif file.path.suffix == ".py":
        for node in ast.walk(ast.parse(file.text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def names_file(target, path):
    """Whether an include's target can mean a file: <sys/poll.h> is not heap/poll.h."""
    parts = [part for part in Path(target).parts if part not in (".", "..")]
    return path.parts[-len(parts):] == tuple(parts)


def check_layers(tree):
    for file in tree.c_files:
        for line, target in file.includes:
            found = tree.by_name.get(Path(target).name)
            if found is None or not found.is_c or not names_file(target, found.path):
                continue
            if found.folder == "tests" and file.folder != "tests":
                tree.report(file, line, "layer", f"nothing outside tests/ includes {found.path}")
            elif found.folder not in LAYERS.get(file.folder, {found.folder}):
                tree.report(file, line, "layer", f"{file.folder}/ may not include {found.path}")


def check_floors(tree):
    for path, line, rule, text in layers.Layers(tree.root).problems():
        tree.report(path.relative_to(tree.root), line, rule, text)


def check_names(tree):
    seen = {}
    for file in tree.files:
        if file.is_code and file.name not in REPEATED_NAMES:
            if file.name in seen:
                tree.report(file, 1, "unique name", f"{seen[file.name]} has this name too")
            seen.setdefault(file.name, file.path)


def read_ratchet(tree):
    path = tree.root / RATCHET
    rows = [row.split() for row in path.read_text().splitlines()] if path.exists() else []
    return {(row[0], row[1]): int(row[2]) for row in rows if row and row[0] != "#"}


def check_function_lengths(tree):
    allowed = read_ratchet(tree)
    for file in tree.files:
        for name, line, length in functions(file):
            limit = allowed.pop((str(file.path), name), None)
            if length > (limit or MAX_FUNCTION_LINES):
                text = f"{name} has {length} lines of {limit or MAX_FUNCTION_LINES}"
                tree.report(file, line, "function length", text)
            elif limit and length < limit:
                tree.report(file, line, "ratchet", f"{name} shrank to {length} lines: say so in {RATCHET}")
    for path, name in allowed:
        tree.report(RATCHET, 1, "ratchet", f"{path} has no function {name}")


def check_text(tree):
    for file in tree.files:
        limit = MAX_FILE_LINES.get(file.folder)
        if file.is_c and limit and len(file.lines) > limit:
            tree.report(file, limit + 1, "file length", f"{len(file.lines)} lines of {limit}")
        for number, line in enumerate(file.lines, 1):
            columns = len(line.expandtabs(TAB_COLUMNS))
            if file.is_code and columns > MAX_COLUMNS:
                tree.report(file, number, "width", f"{columns} of {MAX_COLUMNS} columns")
            if MARKS.search(line):
                tree.report(file, number, "mark", "an unfinished thing is finished or an issue, not a mark")
            if MACHINE_PATHS.search(line):
                tree.report(file, number, "machine path", "a path of one machine")
            if file.is_code and line != line.rstrip():
                tree.report(file, number, "space", "blanks at the end of the line")
            if file.is_c:
                check_c_line(tree, file, number, line)


def check_c_line(tree, file, number, line):
    if DEAD_CODE.search(line):
        tree.report(file, number, "dead code", "code in a comment; version control remembers it")
    before = file.lines[number - 2] if number > 1 else ""
    if re.match(r" {2,}\S", line) and before.endswith((";", "{", "}")):
        tree.report(file, number, "indent", "indentation is by tabs")
    if re.match(r"(?!.*\brequires\b)[a-z].*\)\s*\{$", line):
        tree.report(file, number, "brace", "a function's opening brace stands in column 1")


def check_licence(tree):
    for file in tree.files:
        if file.is_code and not any("SPDX-License-Identifier: Apache-2.0" in line for line in file.lines[:3]):
            tree.report(file, 1, "licence", "no SPDX line at the top")
        elif file.path.suffix in {".c", ".h"} | CPP_SUFFIXES and not re.match(
                r"/\* SPDX-License-Identifier: Apache-2\.0\n \*\n \* \S", file.text):
            tree.report(file, 1, "head", "the first comment says what the file owns")


def check_calls(tree):
    library = [(re.compile(rf"(?<![\w.>])({calls.replace(' ', '|')})\s*\("), owners)
               for calls, owners in OWNED_CALLS.items()]
    everywhere = [(re.compile(rf"(?<![\w.>])({BANNED_CALLS.replace(' ', '|')})\s*\("), set())]
    for file in tree.c_files:
        if file.folder not in LAYERS:
            continue
        code = blank_comments_and_strings(file.text)
        for pattern, owners in (library if file.folder in LIBRARY_FOLDERS else []) + everywhere:
            for match in pattern.finditer(code) if file.name not in owners else ():
                where = f"only in {', '.join(sorted(owners))}" if owners else "not here"
                line = code.count("\n", 0, match.start()) + 1
                tree.report(file, line, "banned call", f"{match.group(1)}: {where}")


def is_built(tree, file):
    """Whether a rule of CMake or a script compiles this .cpp."""
    rules = [f for f in tree.files if f.path.suffix in (".cmake", ".py") or f.name == "CMakeLists.txt"]
    globs = " ".join(words for f in rules for words in SOURCE_GLOBS.findall(f.text)).split()
    return (any(file.path.match(glob) for glob in globs) or
            any(re.search(rf"\b{re.escape(file.name)}\b", f.text) for f in rules if f.path.suffix != ".cmake"))


def check_dead_files(tree):
    included = {Path(target).name for file in tree.c_files for _, target in file.includes}
    for file in tree.c_files:
        if file.path.suffix == ".c":
            depth = 3 if file.folder in ("alloc", "tests", "plug", "lookalike") else 2
            if file.folder not in set(LAYERS) | {"tests"} or len(file.path.parts) != depth:
                if file.path.parts[:2] not in ELSEWHERE:
                    tree.report(file, 1, "dead file", "no rule of CMake compiles it")
        elif file.name not in included and file.folder != "include" and file.path.parent.name != "crt" and not (
                file.path.suffix == ".cpp" and is_built(tree, file)):
            tree.report(file, 1, "dead file", "nothing includes it")
    for file in tree.files:
        if file.folder == "tools" and file.is_code:
            if not any(file.name in other.text for other in tree.files if other is not file):
                tree.report(file, 1, "dead file", "nothing mentions it")


def check_dead_functions(tree):
    """Functions of the library and the command that nothing names except their definition and prototypes. The compiler
    reports unused static ones."""
    texts = {f: blank_comments_and_strings(f.text) for f in tree.c_files}
    rest = "\n".join(f.text for f in tree.files if not f.is_c and f.path.suffix != ".md")
    named = collections.Counter(re.findall(r"\w+", "\n".join([*texts.values(), rest])))
    prototypes = collections.Counter(name for text in texts.values() for name in PROTOTYPE.findall(text))
    for file in (f for f in tree.c_files if f.folder in NAMED_FOLDERS):
        for name, line, _ in c_functions(file):
            seen_elsewhere = file.path.suffix == ".h" or not file.lines[line - 1].startswith("static ")
            if seen_elsewhere and name != "main" and named[name] <= 1 + prototypes[name]:
                tree.report(file, line, "dead function", f"nothing calls {name}")


def check_exports(tree):
    map_file = tree.by_name.get("terrazzo.map")
    if map_file is None:
        return
    listed = set(re.findall(r"^\s*(trz_\w+);", map_file.text, re.M))
    declared = {}
    for file in (f for f in tree.c_files if f.folder == "include"):
        declared.update({name: file for name in DECLARATION.findall(file.text)})
    tests = "\n".join(f.text for f in tree.files if f.folder == "tests")
    for name in sorted(listed - declared.keys()):
        tree.report(map_file, 1, "export", f"{name} is in no public header")
    for name, file in sorted(declared.items()):
        if name not in listed:
            tree.report(file, 1, "export", f"{name} is not in {map_file.path}")
        if not re.search(rf"\b{name}\b", tests):
            tree.report(file, 1, "export", f"no test mentions {name}")


CHECKS = [check_layers, check_floors, check_names, check_function_lengths, check_text, check_licence,
          check_calls, check_dead_files, check_dead_functions, check_exports]


def check_tree(root):
    tree = Tree(root)
    for check in CHECKS:
        check(tree)
    return tree.problems


def main():
    problems = check_tree(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    print("\n".join(problems) if problems else "tidy: nothing to say")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
