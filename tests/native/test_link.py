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
                    done = run("linked", variables=variables, **work)
                    self.assertEqual((done.stdout, done.stderr, done.returncode), ("all right\n", "", 0))


if __name__ == "__main__":
    unittest.main()
