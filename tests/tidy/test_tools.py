# SPDX-License-Identifier: Apache-2.0
"""What counts results: no test that did not run passes, and one check's mishap is no other's."""
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["TRZ_SOURCE_DIR"]) / "tools"))
import check_torch  # noqa: E402
import run_tests  # noqa: E402

RESULTS = """<testsuite>
<testcase name="good" status="run"/>
<testcase name="bad" status="fail"><failure message="Failed"/></testcase>
<testcase name="elsewhere" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="lost" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="off" status="disabled"><skipped message="Disabled"/></testcase>
</testsuite>"""


class Tools(unittest.TestCase):
    def test_only_what_ran_and_was_good_passes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.xml"
            path.write_text(RESULTS)
            self.assertEqual(run_tests.read_results(path), (1, ["bad", "lost", "off"], 1))

    def test_a_check_of_pytorch_fails_by_itself(self):
        def unreadable():
            return None.group(1)

        def refused():
            raise check_torch.Failure("not so")

        wrong = check_torch.try_all({"unreadable": unreadable, "refused": refused, "good": lambda: None}, "")
        self.assertEqual(wrong[1:], ["refused: not so"])
        self.assertRegex(wrong[0], "unreadable: AttributeError.*group")


if __name__ == "__main__":
    unittest.main()
