# SPDX-License-Identifier: Apache-2.0
"""Programs that are linked with libterrazzo_cuda."""
import unittest

from native_process import WORKS, run


class Linked(unittest.TestCase):
    def test_calls_give_what_cudas_own_do(self):
        for free in ("wait", "order"):
            for work in WORKS:
                with self.subTest(free=free, **work):
                    variables = {"TERRAZZO_NATIVE": f"free:{free}", "TERRAZZO_CONF": "oom_report:off"}
                    done = run("linked", variables=variables, devices=2, **work)
                    self.assertEqual((done.stdout, done.stderr, done.returncode), ("all right\n", "", 0))

    def test_a_failure_names_the_programs_own_calls(self):
        done = run("linked")
        asked = [line for line in done.stderr.splitlines() if line.startswith("asked for by ")]
        self.assertEqual((done.stdout, done.returncode), ("all right\n", 0))
        self.assertTrue(asked)
        for line in asked:
            self.assertRegex(line, r"/linked \w+\+0x")


if __name__ == "__main__":
    unittest.main()
