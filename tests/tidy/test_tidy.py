# SPDX-License-Identifier: Apache-2.0
"""Every rule of tools/tidy.py finds a break that is planted in an otherwise clean tree."""
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, os.path.join(os.environ["TRZ_SOURCE_DIR"], "tools"))
import tidy  # noqa: E402

HEAD = "/* SPDX-License-Identifier: Apache-2.0\n *\n * A file of the test.\n */\n"
CLEAN = {
    "include/terrazzo.h": HEAD + "TRZ_API int trz_open(int device);\n",
    "cmake/terrazzo.map": HEAD + "TERRAZZO_0.1 {\n\tglobal:\n\t\ttrz_open;\n\tlocal:\n\t\t*;\n};\n",
    "base/bits.h": HEAD + "int bits(void);\n",
    "base/bits.c": HEAD + '#include "bits.h"\n\nint bits(void)\n{\n\treturn 1;\n}\n',
    "alloc/README.md": "| floor | folder |\n|---|---|\n| 1 | `ground/` |\n| 2 | `memory/` |\n",
    "alloc/ground/types.h": HEAD + '#include "terrazzo.h"\n',
    "alloc/ground/meta.h": HEAD + '#include "ground/types.h"\n',
    "alloc/ground/meta.c": HEAD + '#include "ground/meta.h"\n#include "bits.h"\n\n'
                           'void meta(void *p)\n{\n\tfree(p);\n}\n',
    "alloc/memory/tile.h": HEAD + '#include "ground/meta.h"\n',
    "alloc/memory/tile.c": HEAD + '#include "memory/tile.h"\n\nint tile(void)\n{\n\treturn trz_open(0);\n}\n',
    "sim/sim.h": HEAD + "int sim;\n",
    "sim/sim_run.c": HEAD + '#include "sim.h"\n',
    "tests/unit/test_tile.c": HEAD + '#include "tile.h"\n#include "sim.h"\n\nint x = trz_open(0);\n'
                              '/* calls */\nint y = bits() + tile() + meta(0) + long_one();\n',
    "cmake/plug.cmake": "# SPDX-License-Identifier: Apache-2.0\ntrz_sources(plug_sources plug/torch/plug*.cpp)\n"
                        "trz_sources(shipped plug/torch/shim*.cpp)\n",
    "plug/torch/plug.cpp": HEAD + '#include "shim_part.hpp"\n',
    "plug/torch/shim.cpp": HEAD + '#include "shim_part.cpp"\n',
    "plug/torch/shim_part.cpp": HEAD + '#include "shim_part.hpp"\n',
    "plug/torch/shim_part.hpp": HEAD + "namespace shim {\n\nclass Part {\npublic:\n\tint get() const\n\t{\n"
                                "\t\treturn 1;\n\t}\n};\n\n} // namespace shim\n",
    "python/build.py": "# SPDX-License-Identifier: Apache-2.0\nSHIM = 'plug/torch/shim.cpp'\n",
    "tools/tidy_ratchet.txt": "# none\n",
}


def function(lines):
    """C text of a function `long_one` of so many lines."""
    return "int long_one(void)\n{\n" + "\tbits();\n" * (lines - 3) + "}\n"


def member(lines):
    """C++ text of a member of so many lines, in its class, between others."""
    short = "\tvoid short_one()\n\t{\n\t}\n"
    long = ("\ttemplate <typename T>\n\tint long_one(T a,\n\t             T b) const\n\t{\n" +
            "\t\tif (a) {\n\t\t}\n\t\t{\n\t\t}\n" + "\t\tbits();\n" * (lines - 9) + "\t}\n")
    return (f"namespace shim {{\n\nclass One : public Other {{\npublic:\n{short}{long}{short}\n\tint x;\n}};\n\n"
            "} // namespace shim\n")


class Tidy(unittest.TestCase):
    def problems(self, changes):
        """Tidy's output for the clean tree with these files added or replaced; None removes one."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**CLEAN, **changes}.items():
                if text is not None:
                    file = Path(folder, path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text)
            return tidy.check_tree(folder)

    def finds(self, rule, path, text):
        """The rule, and no other, complains once about the changed file."""
        problems = self.problems({path: text})
        self.assertEqual([p.split(": ")[1] for p in problems], [rule], problems)

    def finds_line(self, rule, line, path="base/bits.c"):
        self.finds(rule, path, CLEAN[path] + line + "\n")

    def accepts_line(self, line, path="base/bits.c"):
        self.assertEqual(self.problems({path: CLEAN[path] + line + "\n"}), [], line)

    def test_clean_tree(self):
        self.assertEqual(self.problems({}), [])

    def test_what_is_built_is_not_even_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "build", "of_a_test").mkdir(parents=True)
            Path(folder, "base").mkdir()
            with mock.patch("os.scandir", wraps=os.scandir) as listed:
                tidy.Tree(folder)
            root = Path(folder).resolve()
            self.assertEqual({Path(call.args[0]) for call in listed.call_args_list}, {root, root / "base"})

    def test_layers(self):
        self.finds_line("layer", '#include "types.h"')
        self.finds_line("layer", '#include "sim.h"', "alloc/memory/tile.c")
        self.finds_line("layer", '#include "types.h"', "sim/sim_run.c")
        self.finds_line("layer", '#include "alloc/ground/types.h"', "sim/sim_run.c")
        self.finds_line("layer", '#include "../alloc/ground/types.h"', "sim/sim_run.c")
        self.accepts_line("#include <sys/types.h>")

    def test_nothing_includes_tests(self):
        problems = self.problems({"tests/common/harness.h": HEAD,
                                  "cli/main.c": HEAD + '#include "harness.h"\n'})
        self.assertEqual([p.split(": ")[1] for p in problems], ["layer"])

    def test_floors(self):
        self.finds_line("floor", '#include "memory/tile.h"', "alloc/ground/meta.c")
        self.finds("floor", "alloc/orphan/orphan.c", HEAD)
        self.finds("floor", "alloc/README.md", CLEAN["alloc/README.md"] + "| 3 | `ghost/` |\n")

    def test_functions_that_nothing_calls(self):
        self.finds_line("dead function", "\nint unused(void)\n{\n\treturn 2;\n}")
        used = CLEAN["base/bits.h"] + "static inline int two(void)\n{\n\treturn bits();\n}\n"
        self.finds("dead function", "base/bits.h", used)
        self.accepts_line("\nstatic int lonely(void)\n{\n\treturn 2;\n}")

    def test_no_circle(self):
        self.finds_line("circle", '#include "ground/meta.h"', "alloc/ground/types.h")

    def test_unique_names(self):
        self.finds("unique name", "sim/bits.c", HEAD)

    def test_function_length(self):
        self.assertEqual(self.problems({"base/long.c": HEAD + function(70)}), [])
        self.finds("function length", "base/long.c", HEAD + function(71))
        body = "def long_one():\n" + "    pass\n" * 70
        problems = self.problems({"tools/x.py": "# SPDX-License-Identifier: Apache-2.0\n" + body,
                                  "Makefile": "# SPDX-License-Identifier: Apache-2.0\nx: tools/x.py\n"})
        self.assertEqual([p.split(": ")[1] for p in problems], ["function length"])

    def test_member_length(self):
        path = "plug/torch/shim_part.cpp"
        self.assertEqual(self.problems({path: CLEAN[path] + member(70)}), [])
        self.finds("function length", path, CLEAN[path] + member(71))
        out = "\nnamespace shim {\n\n#if 1\nPart::Part(int a)\n\t: Other(a), x_{a}\n{\n" + "\tbits();\n" * 66 + "}\n"
        self.assertEqual(self.problems({path: CLEAN[path] + out}), [])
        self.finds("function length", path, CLEAN[path] + out.replace("{\n\tbits", "{\n\tbits();\n\tbits"))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = Path(folder.name, "some.cpp")
        file.write_text(HEAD + member(70) + out + "int Part::operator[](int)\n{\n}\n")
        found = list(tidy.functions(tidy.File(Path(folder.name), file)))
        self.assertEqual([(name, length) for name, _, length in found],
                         [("short_one", 3), ("long_one", 70), ("short_one", 3), ("Part", 70), ("operator[]", 3)])

    def test_ratchet(self):
        row = "base/long.c long_one 90\n"
        for lines, rule in ((90, []), (91, ["function length"]), (89, ["ratchet"]), (60, ["ratchet"])):
            problems = self.problems({"base/long.c": HEAD + function(lines), "tools/tidy_ratchet.txt": row})
            self.assertEqual([p.split(": ")[1] for p in problems], rule, lines)
        self.finds("ratchet", "tools/tidy_ratchet.txt", row)

    def test_file_length(self):
        self.finds("file length", "alloc/memory/tile.c", CLEAN["alloc/memory/tile.c"] + "\n" * 800)

    def test_text(self):
        self.finds_line("width", "/* " + "x" * 118 + " */")
        self.finds_line("width", "\t" * 30 + "x;")
        self.finds_line("mark", "/* " + "TO" + "DO: later */")
        self.finds_line("machine path", "/* see /" + "home/someone */")
        self.finds_line("space", "int x; ")
        self.finds_line("indent", "int y;\n    int x;")
        self.finds_line("brace", "int f(void) {\n\treturn 1;\n}")

    def test_text_of_cpp(self):
        for path in ("plug/torch/shim_part.cpp", "plug/torch/shim_part.hpp"):
            self.finds_line("width", "\t" * 30 + "x;", path)
            self.finds_line("mark", "/* " + "TO" + "DO: later */", path)
            self.finds_line("dead code", "// x = 1;", path)
            self.finds_line("brace", "int f() {\n\treturn 1;\n}", path)
            self.finds_line("banned call", "int x = sprintf(0, 0);", path)
            self.finds_line("layer", '#include "sim.h"', path)
            self.finds("licence", path, CLEAN[path].replace("SPDX", "", 1))
            self.finds("head", path, CLEAN[path].replace(" *\n * A file of the test.\n", ""))
        self.accepts_line("template <typename A> constexpr bool has = requires(A &a) {\n\ta.x;\n};",
                          "plug/torch/shim_part.hpp")
        self.finds("unique name", "plug/torch/deep/shim_part.hpp", HEAD)

    def test_dead_code(self):
        for line in ("// x = 1;", "/* bits(); */", "/* return 0; */", "/* if (x) { */", "#if 0"):
            self.finds_line("dead code", line)
        for line in ("/* bits() is cheap */", "/* x = 1 here; so y is 2 */"):
            self.accepts_line(line)

    def test_licence_and_head(self):
        self.finds("licence", "base/bits.c", CLEAN["base/bits.c"].replace("SPDX", "", 1))
        self.finds("head", "base/bits.c", "/* SPDX-License-Identifier: Apache-2.0 */\n")

    def test_calls(self):
        self.finds_line("banned call", "int *p = malloc(3);")
        self.finds_line("banned call", "char *p = getenv(0);", "alloc/memory/tile.c")
        self.finds_line("banned call", "int x = sprintf(0, 0);", "sim/sim_run.c")
        self.accepts_line("int *p = malloc(3);", "sim/sim_run.c")
        calls = ["/* malloc(3) */", 'char *s = "malloc(3)";', "int x = my_malloc(3);", "int x = d->free(3);"]
        for line in calls:
            self.accepts_line(line)

    def test_dead_files(self):
        self.finds("dead file", "base/lonely.h", HEAD)
        self.finds("dead file", "base/deep/below.c", HEAD)
        self.finds("dead file", "elsewhere/code.c", HEAD)
        self.finds("dead file", "tools/unused.sh", "# SPDX-License-Identifier: Apache-2.0\n")
        self.finds("dead file", "plug/torch/shim_more.cpp", HEAD)
        self.finds("dead file", "plug/torch/shim_more.hpp", HEAD)
        self.assertEqual(self.problems({"plug/torch/plug_more.cpp": HEAD}), [])
        self.finds("dead file", "python/build.py", CLEAN["python/build.py"].replace("shim.cpp", "my_shim.cpp"))

    def test_exports(self):
        text = CLEAN["tests/unit/test_tile.c"]
        self.finds("export", "tests/unit/test_tile.c", text.replace("trz_open(0)", "0"))
        header = CLEAN["include/terrazzo.h"] + "TRZ_API const char *trz_more(void);\n"
        problems = self.problems({"include/terrazzo.h": header})
        self.assertEqual([p.split(": ")[1] for p in problems], ["export", "export"])
        listed = CLEAN["cmake/terrazzo.map"].replace("local", "\ttrz_x;\n\tlocal")
        self.finds("export", "cmake/terrazzo.map", listed)


if __name__ == "__main__":
    unittest.main()
