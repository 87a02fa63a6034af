# SPDX-License-Identifier: Apache-2.0
"""The man pages that tools/gen_man.py makes: one for each public function, with what its comment says; the programs
that read them, if installed, give no warning."""
import re
import shutil
import subprocess
import unittest

from outside import BUILD, SOURCE

PAGES = BUILD / "share" / "man" / "man3"
HEADERS = sorted((SOURCE / "include").glob("*.h"))


def functions():
    text = "\n".join(header.read_text() for header in HEADERS)
    return set(re.findall(r"^TRZ_(?:CUDA_)?API\b[^;(]*?\b(trz_\w+)\(", text, re.M))


def section(page, title):
    """The text of one section, as written."""
    text = (PAGES / f"{page}.3").read_text()
    match = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", text, re.M | re.S)
    return " ".join(match.group(1).replace("\\-", "-").split()) if match else ""


class Pages(unittest.TestCase):
    def test_each_function_and_each_header_has_one(self):
        self.assertIn("trz_alloc", functions())
        wanted = functions() | {header.stem for header in HEADERS}
        self.assertEqual({path.stem for path in PAGES.iterdir()}, wanted)

    def test_each_says_what_it_is_and_how_to_call_it(self):
        for name in sorted(functions()):
            with self.subTest(name):
                self.assertRegex(section(name, "NAME"), rf"^(trz_\w+, )*{name}(, trz_\w+)* - [\w\"].{{8,}}$")
                self.assertRegex(section(name, "SYNOPSIS"), rf"#include <terrazzo\w*\.h>.*\b{name}\(.*\);")
                self.assertGreater(len(section(name, "DESCRIPTION")), 20)

    def test_words_of_the_comments_arrive(self):
        self.assertIn("TRZ_ERROR_CAPTURE", section("trz_alloc", "ERRORS"))
        self.assertIn("On an error *out is set to NULL", section("trz_alloc", "ERRORS"))
        self.assertIn("Calls the driver: yes.", section("trz_poll", "DESCRIPTION"))
        self.assertIn("TRZ_ALLOC_RDMA = 8", section("trz_alloc_with", "TYPES"))
        self.assertIn("TRZ_ERROR_NO_ROOM", section("terrazzo", "RETURN VALUES"))
        self.assertEqual((PAGES / "trz_get_limit.3").resolve(), (PAGES / "trz_set_limit.3").resolve())

    def check_by(self, *command):
        done = subprocess.run([*command, *sorted(PAGES.iterdir())], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr[:2000]), (0, ""))
        return done.stdout

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_finds_nothing(self):
        self.assertEqual(self.check_by("mandoc", "-T", "lint", "-W", "style"), "")

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_warns_of_nothing(self):
        self.check_by("groff", "-man", "-ww", "-z", "-Tutf8")

    @unittest.skipUnless(shutil.which("man") and shutil.which("groff"), "man is not installed")
    def test_man_shows_one(self):
        done = subprocess.run(["man", "-l", PAGES / "trz_alloc.3"], capture_output=True, text=True, check=False)
        self.assertIn("trz_status trz_alloc(trz_heap *heap, size_t size, size_t alignment,", done.stdout)


if __name__ == "__main__":
    unittest.main()
