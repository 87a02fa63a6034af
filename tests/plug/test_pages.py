#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How PyTorch's versions are asked for a history (python/terrazzo/pages.py), by functions that take what theirs do."""
import importlib.util
import os
import unittest
from pathlib import Path
from unittest import mock

FILE = Path(os.environ["TRZ_SOURCE_DIR"], "python", "terrazzo", "pages.py")


def load(**variables):
    with mock.patch.dict(os.environ, variables):
        spec = importlib.util.spec_from_file_location("pages", FILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


class History(unittest.TestCase):
    def asked(self, pages, version):
        got = {}

        def of_1_13(enabled: bool, device=None):
            got.update(enabled=enabled)

        def of_2_0(enabled: bool, record_context=True, trace_alloc_max_entries=1, trace_alloc_record_context=False,
                   device=None, _enable_expensive_cpp=False):
            got.update(enabled=enabled, events=trace_alloc_max_entries, stacks=trace_alloc_record_context)

        def since_2_1(enabled="all", *args, **kwargs):
            got.update(enabled=enabled, events=kwargs["max_entries"], stacks=kwargs["stacks"])

        pages.begin_history({"1.13": of_1_13, "2.0": of_2_0, "2.1": since_2_1}[version])
        return got

    def test_versions(self):
        pages = load()
        self.assertEqual(self.asked(pages, "1.13"), {"enabled": True})
        self.assertEqual(self.asked(pages, "2.0"), {"enabled": True, "events": 1 << 20, "stacks": True})
        self.assertEqual(self.asked(pages, "2.1"), {"enabled": "all", "events": 1 << 20, "stacks": "python"})

    def test_holders_need_more(self):
        asked = self.asked(load(TERRAZZO_SIM_HOLDERS="1"), "2.1")
        self.assertEqual(asked, {"enabled": "all", "events": 4_000_000, "stacks": "all"})


if __name__ == "__main__":
    unittest.main()
