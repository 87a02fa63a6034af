# SPDX-License-Identifier: Apache-2.0
"""Makes stand-ins for the CUDA libraries that an installed PyTorch asks for.

    standins.py TORCH --libraries DIR --sources DIR [--target DIR] [--cc PROGRAM]

Reads from the dynamic sections of TORCH/lib/*.so* which libraries and which of their functions, with which symbol
versions, are missing, and compiles a library of each name (lookalike/standin/). Extensions that lie beside TORCH may
need further functions of these libraries, and get them. A function that has a body there keeps it; one listed in
functions.txt behaves as listed; one that would have to return anything else is refused, with a line on standard error;
any other returns success, and puts work on a stream unless its name says that it only sets something up.

Needs pyelftools and a C compiler. Look-alikes of the driver, runtime and management library come from --libraries.
"""
import argparse
import collections
import fnmatch
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile


class Failure(Exception):
    """A message for the user."""


# Of a library: the prefix of its functions, body files, and its statuses: of a function that is not supported, of a
# handle that is none, of a wrong argument, and of work that fails.
Family = collections.namedtuple("Family", "prefix bodies refusal uninitialized invalid failed", defaults=(1, 1, 1, 1))
FAMILIES = {
    "libcublasLt": Family("cublasLt", ["standin_cublaslt.c"], 15, 1, 7, 13),
    "libcublas": Family("cublas", ["standin_cublas.c"], 15, 1, 7, 13),
    "libcudnn": Family("cudnn", ["standin_cudnn.c", "standin_cudnn_graph.c", "standin_cudnn_rnn.c"],
                       3000, 1001, 2000, 5000),
    "libcufft": Family("cufft", ["standin_cufft.c"], 16, 1, 4, 6),
    "libcusparseLt": Family("cusparseLt", ["standin_cusparselt.c"], 10, 1, 3, 6),
    "libcusparse": Family("cusparse", ["standin_cusparse.c", "standin_cusparse_objects.c"], 10, 1, 3, 6),
    "libcusolver": Family("cusolver", ["standin_cusolver.c"], 9, 1, 3, 6),
    "libcusolverMg": Family("cusolverMg", [], 9, 1, 3, 6),
    "libcurand": Family("curand", ["standin_curand.c"], 999, 101, 104, 201),
    "libnccl": Family("nccl", ["standin_nccl.c", "nccl_hall.c", "nccl_comm.c", "nccl_call.c", "nccl_meet.c",
                               "nccl_reduce.c", "nccl_wait.c"], 5, 4, 4, 1),
    "libnvshmem_host": Family("nvshmem", [], 5),
    "libcupti": Family("cupti", ["standin_cupti.c"], 27),
    "libnvrtc": Family("nvrtc", ["standin_nvrtc.c"], 11, 4, 3, 11),
    "libnvJitLink": Family("nvJitLink", [], 6),
    "libcufile": Family("cuFile", [], 5003),
    "libnvToolsExt": Family("nvtx", [], 1),
}
# Before version 9, cuDNN's statuses were these.
OLDER = {("libcudnn", 8): FAMILIES["libcudnn"]._replace(refusal=9, uninitialized=1, invalid=3, failed=8)}
LOOKALIKES = ("libcuda.so", "libcudart.so", "libnvidia-ml.so")

# Functions whose results a stand-in cannot know, or must not pretend to know. All others it can count and forget.
REFUSED = [
    (r"cuFile|nvshmem", "its data would have to go past the simulated driver"),
    (r"nccl(DevComm|GetLsa|GetPeer|Win|PutSignal|Signal|WaitSignal)", "it needs memory of other ranks"),
    (r".*([bB]uffer|[wW]ork[sS]pace|Space|[Cc]ompressed)Sizes?(\d|Ext|_v\d+)*$",
     "the size that it would tell is not known"),
    (r"\w+?(Get|Query|Find|Search|workEstimation|Nnz|zeroPivot|InitAll)",
     "the stand-in does not know what it would have to tell"),
    (r"\w+?([cC]reate|Grow|[mM]alloc|Alloc)", "the stand-in does not know what it would have to make"),
]
# Functions that enqueue no work.
SETS_UP = re.compile(r"cupti|nvrtc|nvtx|"
                     r"\w*?(Set[A-Z]|[dD]estroy|Init|[rR]egister|Restore|Plan|Check|Finalize)")
# Programs refuse a library that is older than the one that they were built with.
NEWEST = {("libcudnn", 9): (9, 28, 0), ("libcublas", 12): (12, 9, 1), ("libcublas", 13): (13, 2, 0),
          ("libcublasLt", 12): (12, 9, 1), ("libcublasLt", 13): (13, 2, 0), ("libcufft", 11): (11, 4, 1),
          ("libcufft", 12): (12, 1, 0), ("libcurand", 10): (10, 4, 0), ("libcusparse", 12): (12, 7, 2),
          ("libcusolver", 11): (11, 7, 5), ("libcusolver", 12): (12, 1, 0)}
# What an extension of PyTorch needs.
EXTENDS = re.compile(r"lib(torch|c10|cu|nv|nccl)")
# The names that a file looks up while it runs: words between zeros, as C keeps them.
WORD = re.compile(rb"(?<=\0)[a-z][A-Za-z0-9_]+(?=\0)")
# Functions that return a text.
TEXT = re.compile(r"\w+Get(Error|Status|Result)(String|Name)$")


class Library:
    """A library that PyTorch needs: its functions by symbol version."""

    def __init__(self, soname):
        self.soname = soname
        self.versions = collections.defaultdict(set)  # version or "" -> names
        self.objects = set()  # names that are data

    @property
    def stem(self):
        return self.soname.split(".so")[0]

    @property
    def family(self):
        major = re.search(r"\.so\.(\d+)", self.soname)
        return OLDER.get((self.stem, int(major.group(1)) if major else 0), FAMILIES[self.stem])

    def names(self):
        return sorted(set().union(*self.versions.values()) - self.objects) if self.versions else []


def symbol_versions(elf):
    """{index in the version table: (library, version)}"""
    table = {}
    section = elf.get_section_by_name(".gnu.version_r")
    for need, entries in section.iter_versions() if section else ():
        for entry in entries:
            table[entry["vna_other"]] = (need.name, entry.name)
    return table


def read_undefined(elf):
    """(name, is data, library or None, version or "") of each symbol that the file leaves undefined."""
    symbols, numbers = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version")
    versions = symbol_versions(elf)
    for i, symbol in enumerate(symbols.iter_symbols() if symbols else ()):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
            continue
        number = numbers.get_symbol(i)["ndx"] if numbers else 1
        library, version = versions.get(number & 0x7FFF if isinstance(number, int) else number, (None, ""))
        yield symbol.name, symbol["st_info"]["type"] == "STT_OBJECT", library, version


class Scan:
    """The symbols that the files of a folder, or the named ones, need from elsewhere."""

    def __init__(self, folder, files=None):
        self.folder = folder
        self.needed = collections.defaultdict(set)  # library -> files
        self.paths = {}  # file -> folders of its RPATH or RUNPATH, in order
        self.symbols = []
        files = files or sorted(path for path in folder.glob("*.so*") if path.is_file())
        if not files:
            raise Failure(f"{folder}: has no shared library; is this PyTorch's folder?")
        self.own = {path.name for path in files}
        for path in files:
            if path.resolve().name.startswith(LOOKALIKES) and path.is_symlink():
                continue  # a look-alike, in place of a runtime that the wheel brought along
            with path.open("rb") as stream:
                try:
                    self._read(path, ELFFile(stream))
                except ELFError as error:
                    raise Failure(f"{path}: cannot be read as an ELF file: {error}") from error

    def add_extensions(self, site):
        """Adds the symbols that extensions in `site` need: files that need PyTorch or a CUDA library."""
        for path in sorted(site.rglob("*.so*")):
            apart = path.relative_to(site).parts[0] in (self.folder.parent.name, "nvidia")
            if apart or path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as stream:
                try:
                    elf = ELFFile(stream)
                except ELFError:
                    continue
                dynamic = elf.get_section_by_name(".dynamic")
                needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []
                if any(EXTENDS.match(name) for name in needed):
                    self.symbols += read_undefined(elf)

    def _read(self, path, elf):
        dynamic = elf.get_section_by_name(".dynamic")
        self.paths[path.name] = []
        for tag in dynamic.iter_tags() if dynamic else ():
            if tag.entry.d_tag == "DT_NEEDED":
                self.needed[tag.needed].add(path.name)
            elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                text = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
                self.paths[path.name] += [Path(part.replace("$ORIGIN", str(path.parent)).replace(
                    "${ORIGIN}", str(path.parent))).resolve() for part in text.split(":") if part]
        self.symbols += read_undefined(elf)

    def libraries(self):
        """The libraries to make stand-ins for, and the look-alikes that are needed."""
        made = {name: Library(name) for name in self.needed
                if name.split(".so")[0] in FAMILIES and name not in self.own}
        lookalikes = sorted(name for name in self.needed if name.startswith(LOOKALIKES))
        self._refuse_unknown(set(made) | set(lookalikes))
        # Longest prefix first: cublasLt before cublas.
        by_prefix = sorted(made.values(), key=lambda lib: -len(FAMILIES[lib.stem].prefix))
        for name, is_data, library, version in self.symbols:
            owner = made.get(library) if library else next(
                (lib for lib in by_prefix if name.startswith(FAMILIES[lib.stem].prefix)), None)
            if owner:
                owner.versions[version].add(name)
                if is_data:
                    owner.objects.add(name)
        return list(made.values()), lookalikes

    def opened(self, program, names):
        """Libraries that a program opens by these names, with the functions it may ask for: the words in its data."""
        words = {word.decode() for word in WORD.findall(program.read_bytes())} if names else set()
        for name in names:
            if name.split(".so")[0] not in FAMILIES:
                raise Failure(f"{name}: terrazzo has no stand-in for it")
        made = [Library(name) for name in names if name not in self.needed]
        for library in sorted(made, key=lambda library: -len(FAMILIES[library.stem].prefix)):
            prefix = FAMILIES[library.stem].prefix
            library.versions[""] = {word for word in words if re.match(prefix + "[A-Z]", word)}
            words -= library.versions[""]
        return made

    def _refuse_unknown(self, known):
        for name in sorted(set(self.needed) - known - self.own):
            if re.match(r"lib(cu|nv|nccl)", name):
                user = sorted(self.needed[name])[0]
                raise Failure(f"{name}, which {user} needs, is a CUDA library that terrazzo has no stand-in for")

    def target(self, names):
        """The folder in which every file that needs one of `names` looks: the last one that is not its own."""
        users = [self.paths[user] for name in names for user in self.needed[name]]
        common = [path for path in users[0] if all(path in paths for paths in users)] if users else []
        common = [path for path in common if path != self.folder.resolve()]
        if not common:
            raise Failure(f"{self.folder}: its libraries look in no common folder (RPATH); "
                          "terrazzo knows the layout of PyTorch's wheels for CUDA only")
        return common[-1]


def read_rows(path):
    """[(kind, pattern, arguments, type, value)] of functions.txt; the sizes that an argument needs follow it."""
    rows = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            kind, pattern, arguments, *rest = line.split()
            arguments = [[int(n) for n in argument.split("/")] for argument in arguments.split(",")]
            rows.append((kind, pattern, arguments, *(rest or (None, None))))
    return rows


def number(name, argument):
    """The C text of an argument that is an int, or in the functions of 64 bits a long one."""
    return f"({'int64_t' if name.endswith('_64') else 'int'})(intptr_t)a{argument}"


def address(name, argument, *sizes):
    """The C text of an argument's address; 0 where one of the sizes is 0."""
    return " && ".join(number(name, size) for size in sizes) + f" ? (uintptr_t)a{argument} : 0" \
        if sizes else f"(uintptr_t)a{argument}"


def size_function(name, arguments, kind, value):
    stores = " ".join(f"*({kind} *)a{i} = {value};" for i, in arguments)
    return f"{stores} return 0;"


def work_function(name, arguments):
    """Sizes are not negative."""
    addresses = ", ".join(address(name, *argument) for argument in arguments)
    sizes = sorted({size for _, *sizes in arguments for size in sizes})
    wrong = " || ".join(f"{number(name, size)} < 0" for size in sizes)
    check = f"if (standin_is_handle(a0) && ({wrong})) return STANDIN_INVALID_VALUE; " if sizes else ""
    return check + f"const uint64_t words[] = {{ {addresses} }}; "


def result_function(name, arguments, kind, value):
    (last,) = arguments[-1]
    size = f"-1L - (int)(intptr_t)a{kind[1:]}" if kind.startswith("a") else kind
    size = "sizeof(int64_t)" if kind == "int" and name.endswith("_64") else "sizeof(int)" if kind == "int" else size
    return (work_function(name, arguments) +
            f'return standin_result("{name}", a0, words, {len(arguments)}, a{last}, {size}, {value});')


def listed_function(name, row):
    kind, _, arguments, *rest = row
    most = max(max(argument) for argument in arguments)
    if kind == "result" and rest[0].startswith("a"):
        most = max(most, int(rest[0][1:]))
    words = ", ".join(f"void *a{i}" for i in range(most + 1))
    body = {"size": size_function, "result": result_function}.get(kind)
    text = body(name, arguments, *rest) if body else \
        work_function(name, arguments) + f'return standin_handle_work("{name}", a0, words, {len(arguments)});'
    return f"int {name}({words}) {{ {text} }}"


def function(name, family, rows):
    """The C text of a function that has no body of its own."""
    if TEXT.match(name):
        return f'const char *{name}(void) {{ return "refused by a stand-in of terrazzo"; }}'
    for row in rows:
        if fnmatch.fnmatchcase(name, row[1]):
            return listed_function(name, row)
    for pattern, why in REFUSED:
        if re.match(pattern, name):
            return f'long {name}(void) {{ return standin_refuse("{name}", "{why}", {family.refusal}); }}'
    if SETS_UP.match(name):
        return f"long {name}(void) {{ return 0; }}"
    return f'long {name}(void *a0) {{ return standin_call("{name}", a0); }}'


def defined_functions(path):
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        return {s.name for s in table.iter_symbols()
                if s["st_info"]["bind"] == "STB_GLOBAL" and s["st_shndx"] != "SHN_UNDEF"}


def version_script(library):
    nodes = []
    for version, names in sorted(library.versions.items()):
        if version:
            body = "*" if len(library.versions) == 1 else "; ".join(sorted(names))
            nodes.append(f"{version} {{ global: {body}; }};")
    return "\n".join(nodes)


def read_versions(torch):
    """{stem of the library: (major, minor, patch)}, as this PyTorch requires; "" is CUDA itself."""
    cuda = re.search(r"^cuda\b.*'(\d+)\.(\d+)'", (torch / "version.py").read_text(), re.M)
    if not cuda:
        raise Failure(f"{torch}: this PyTorch is built without CUDA; ask for a version that has it")
    versions = {"": (int(cuda.group(1)), int(cuda.group(2)), 0)}
    for metadata in torch.parent.glob("torch-*.dist-info/METADATA"):
        # Older wheels write "nvidia-cudnn-cu12 (==9.1.0.70)".
        pattern = r"^(?:Requires-Dist|X-Terrazzo-Left-Out): nvidia-(\w+?)(?:-cu\d+)?(?: \()?==(\d+)\.(\d+)\.(\d+)"
        for name, *numbers in re.findall(pattern, metadata.read_text(), re.M):
            versions["lib" + name] = tuple(int(n) for n in numbers)
    return versions


class Compiler:
    def __init__(self, cc, sources, folder, versions):
        self.cc, self.sources, self.folder, self.versions = cc, sources, folder, versions

    def run(self, *args):
        command = [*shlex.split(self.cc), *map(str, args)]
        try:
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        except OSError as error:
            raise Failure(f"{self.cc}: no C compiler: {error.strerror}; install gcc or name one by CC") from error
        if done.returncode:
            raise Failure(f"{self.cc} failed:\n{done.stderr}")

    def compile(self, source, library):
        cuda, own = self.versions[""], self.versions.get(library.stem, self.versions[""])
        target = self.folder / f"{library.stem}-{source.stem}.o"
        family = library.family
        numbers = dict(zip(("MAJOR", "MINOR", "PATCH"), own), CUDA_MAJOR=cuda[0], CUDA_MINOR=cuda[1],
                       NOT_INITIALIZED=family.uninitialized, INVALID_VALUE=family.invalid,
                       EXECUTION_FAILED=family.failed)
        self.run("-std=gnu11", "-O1", "-fPIC", "-w", "-D_GNU_SOURCE", f"-I{self.sources}", "-c", source, "-o", target,
                 *(f"-DSTANDIN_{name}={value}" for name, value in numbers.items()))
        return target

    def link(self, library, objects, driver, target):
        script = self.folder / f"{library.stem}.ver"
        script.write_text(version_script(library))
        more = [f"-Wl,--version-script={script}"] if script.read_text() else []
        part = target.with_name(target.name + ".part")
        # Never unloaded, since the environment and the look-alike driver point to strings of a stand-in.
        self.run("-shared", "-o", part, *objects, f"-Wl,-soname,{library.soname}", "-Wl,-rpath,$ORIGIN",
                 "-Wl,-z,now,-z,nodelete", *more, "-Wl,--no-as-needed", driver, "-Wl,--as-needed", "-lpthread", "-lm")
        part.replace(target)


def bodies_for(library):
    """Those of its family, and of families that its names show it to stand for, too: PyTorch 1.13 finds cublasLt's
    functions by way of libcublas."""
    family, names = library.family, library.names()
    more = [other for other in FAMILIES.values()
            if other.prefix != family.prefix and other.prefix.startswith(family.prefix) and
            any(name.startswith(other.prefix) for name in names)]
    return [body for each in (family, *more) for body in each.bodies]


def make_library(library, compiler, rows, driver, target):
    """Makes one stand-in; returns the number of its functions."""
    family = library.family
    objects = [compiler.compile(compiler.sources / name, library) for name in ("standin.c", *bodies_for(library))]
    bodies = set().union(*map(defined_functions, objects))
    generated = compiler.folder / f"{library.stem}.c"
    lines = ['#include "standin.h"']
    lines += [function(name, family, rows) for name in library.names() if name not in bodies]
    lines += [f"char {name}[64];" for name in sorted(library.objects)]
    generated.write_text("\n".join(lines) + "\n")
    objects.append(compiler.compile(generated, library))
    compiler.link(library, objects, driver, target / library.soname)
    return len(library.names())


def place_lookalikes(names, libraries, target):
    """Links the look-alikes into `target`."""
    for name in {*names, "libcuda.so.1", "libnvidia-ml.so.1"}:
        source = libraries / name
        if not source.exists():
            raise Failure(f"{libraries}: no look-alike {name} here")
        link = target / name
        if link.exists() and not link.is_symlink():
            raise Failure(f"{link}: a real library is here, which is never overwritten; choose another folder")
        link.unlink(missing_ok=True)
        link.symlink_to(source.resolve())


def build(needed, libraries, target, sources, cc, versions, lookalikes):
    """Makes the stand-ins in `target`: {library: functions}."""
    target.mkdir(parents=True, exist_ok=True)
    place_lookalikes(lookalikes, libraries, target)
    rows, made = read_rows(sources / "functions.txt"), {}
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(cc, sources, Path(folder), versions)
        for library in needed:
            made[library.soname] = make_library(library, compiler, rows, target / "libcuda.so.1", target)
    return made


def make_for_program(program, libraries, target, sources, cc="cc", opened=()):
    """Makes the stand-ins that a program, or a library of one, needs or opens by name: {library: functions}."""
    if not program.is_file():
        raise Failure(f"{program}: no such file")
    scan = Scan(program.parent, [program])
    needed, lookalikes = scan.libraries()
    lookalikes += [name for name in opened if name.startswith(LOOKALIKES) and name not in lookalikes]
    needed += scan.opened(program, [name for name in opened if not name.startswith(LOOKALIKES)])
    if not needed:
        raise Failure(f"{program}: it needs no library that terrazzo has a stand-in for")
    majors = {lib.stem: int((re.findall(r"\.so\.(\d+)", lib.soname) or [13])[0]) for lib in needed}
    runtime = [int(number) for name in lookalikes for number in re.findall(r"libcudart\.so\.(\d+)", name)]
    versions = {stem: (major, 0, 0) for stem, major in majors.items()}
    versions.update({stem: NEWEST[stem, major] for stem, major in majors.items() if (stem, major) in NEWEST})
    versions[""] = (runtime[0] if runtime else majors.get("libcublas", 13), 0, 0)
    return build(needed, libraries, target, sources, cc, versions, lookalikes)


def make(torch, libraries, sources, target=None, cc="cc"):
    """Makes all stand-ins for the PyTorch in folder `torch`: (folder, {library: functions})."""
    scan = Scan(torch / "lib")
    scan.add_extensions(torch.parent)
    needed, lookalikes = scan.libraries()
    if not lookalikes:
        raise Failure(f"{torch}: this PyTorch needs no CUDA library; ask for a version that is built with CUDA")
    target = target or scan.target([lib.soname for lib in needed] + lookalikes)
    return target, build(needed, libraries, target, sources, cc, read_versions(torch), lookalikes)


def main():
    parser = argparse.ArgumentParser(description="Makes stand-ins for the CUDA libraries that PyTorch asks for.")
    parser.add_argument("torch", type=Path, help="the folder of the package torch")
    parser.add_argument("--libraries", type=Path, required=True, help="the folder of the look-alikes")
    parser.add_argument("--sources", type=Path, required=True, help="the folder of the bodies")
    parser.add_argument("--target", type=Path, help="where to put them (where PyTorch looks)")
    parser.add_argument("--cc", default="cc")
    args = parser.parse_args()
    try:
        target, made = make(args.torch, args.libraries, args.sources, args.target, args.cc)
    except Failure as failure:
        sys.exit(f"terrazzo: {failure}")
    print(f"{sum(made.values())} functions of {len(made)} libraries in {target}")


if __name__ == "__main__":
    main()
