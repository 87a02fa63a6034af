# SPDX-License-Identifier: Apache-2.0
"""The symbol map, the public headers and the exports of the two libraries name identical functions."""
import os
import re
import subprocess
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
LIBRARY = Path(os.environ["TERRAZZO_LIB"])


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def symbols(*options):
    """Names of defined symbols, without versions."""
    text = output("nm", "--defined-only", *options)
    return {match.group(1) for match in re.finditer(r"^[0-9a-f]+ [A-Zi] ([\w.]+)", text, re.M)}


def declared():
    text = "\n".join(path.read_text() for path in (SOURCE / "include").glob("*.h"))
    return set(re.findall(r"^TRZ_API\b[^;(]*?\b(trz_\w+)\(", text, re.M))


class Symbols(unittest.TestCase):
    def test_headers_declare_something(self):
        self.assertIn("trz_alloc", declared())

    def test_map_lists_what_the_headers_declare(self):
        listed = re.findall(r"^\s*(\w+);", (SOURCE / "cmake" / "terrazzo.map").read_text(), re.M)
        self.assertEqual(sorted(listed), sorted(set(listed)))
        self.assertEqual(set(listed), declared())

    def test_shared_library_exports_what_the_headers_declare(self):
        exported = symbols("-D", LIBRARY)
        self.assertEqual({name for name in exported if not name.startswith("TERRAZZO_")}, declared())

    def test_every_export_has_a_version(self):
        text = output("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY)
        for name in declared():
            self.assertRegex(text, rf"\b{name}@@TERRAZZO_\d+\.\d+\b")

    def test_library_of_the_cuda_names_exports_what_its_header_declares(self):
        text = (SOURCE / "include" / "terrazzo_cuda.h").read_text()
        names = set(re.findall(r"^TRZ_CUDA_API\b[^;(]*?\b(trz_\w+)\(", text, re.M))
        self.assertIn("trz_cudaMalloc", names)
        self.assertEqual(symbols("-D", LIBRARY.with_name("libterrazzo_cuda.so")), names)

    def test_static_library_defines_what_the_headers_declare(self):
        self.assertEqual(symbols("-g", LIBRARY.with_suffix(".a")), declared())

    def test_shared_library_needs_only_libc(self):
        text = output("readelf", "-d", LIBRARY)
        needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\.so", text))
        self.assertLessEqual({name for name in needed if not name.startswith("ld-")},
                             {"libc", "libm", "libdl", "libpthread"})
        self.assertRegex(text, r"\(SONAME\).*\[libterrazzo\.so\.\d+\.\d+\]")
        self.assertIn("NODELETE", text)
        self.assertNotIn("STATIC_TLS", text)


if __name__ == "__main__":
    unittest.main()
