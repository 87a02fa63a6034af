# SPDX-License-Identifier: Apache-2.0
"""`terrazzo explain` on out-of-memory texts of PyTorch's versions and of logs: texts/NAME.txt; texts/expected.json
says what each must give. Sizes are in MiB."""
import json
import os
import subprocess
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
TEXTS = Path(__file__).parent / "texts"
EXPECTED = json.loads((TEXTS / "expected.json").read_text())
MIB = 1 << 20


def explain(*arguments, **options):
    return subprocess.run([CLI, "explain", *arguments], capture_output=True, text=True, timeout=60, **options)


class Texts(unittest.TestCase):
    def check(self, name, want):
        run = explain(str(TEXTS / f"{name}.txt"), "--json", "-")
        if "error" in want:
            self.assertEqual(run.returncode, 2, run.stdout)
            self.assertIn(want["error"], run.stderr)
            self.assertIn(name, run.stderr)
            return
        self.assertEqual(run.returncode, 0, run.stderr)
        got = json.loads(run.stdout)
        self.assertEqual(got["verdict"], want["verdict"])
        for key, field in (("requested", "requested_bytes"), ("short", "short_bytes")):
            if key in want:
                self.assertAlmostEqual(got[field] / MIB, want[key], delta=max(0.006, want[key] * 0.001), msg=key)
        for key in ("device", "rank", "process", "site", "category", "short_at_most", "likely", "asker"):
            if key in want:
                self.assertEqual(got.get(key), want[key])
        if "ranks" in want:
            self.assertEqual([one["rank"] for one in got["ranks"]], want["ranks"])
        if "writers" in want:
            self.assertEqual([one["writer"] for one in got["ranks"]], want["writers"])
        if "remedy" in want:
            self.assertEqual(got["remedies"][0]["name"], want["remedy"])
        self.assertEqual(got["source"]["kind"], "text")

    def test_every_text(self):
        for name, want in EXPECTED.items():
            with self.subTest(name):
                self.check(name, want)

    def test_every_file_is_expected(self):
        self.assertEqual({path.stem for path in TEXTS.glob("*.txt")}, set(EXPECTED))

    def test_standard_input_among_other_lines(self):
        text = "epoch 1\n" * 2000 + (TEXTS / "torch-1.5-worked-case.txt").read_text() + "bye\n" * 2000
        run = explain("-", input=text)
        self.assertEqual(run.returncode, 0, run.stderr)
        first, second, third = run.stdout.splitlines()[:3]
        self.assertIn("2.50 GiB asked for", first)
        self.assertIn("verdict: full", second)
        self.assertIn("573.44 MiB short", second)
        self.assertTrue(third.startswith("remedy: a batch"), third)

    def test_errors_that_a_loop_has_caught(self):
        text = (TEXTS / "torch-1.5-worked-case.txt").read_text()
        run = explain("-", input=f"step 1 loss 2.345\n{text}" * 20000)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("573.44 MiB short", run.stdout)

    def test_errors_that_a_logger_wrote_in_one_line(self):
        """JSON on one line, as of a service that has run for days: its parts are not searched for their end again."""
        error = (TEXTS / "log-traceback.txt").read_text()
        others = os.environ.get("ASAN_OPTIONS", "")
        quick = {**os.environ, "ASAN_OPTIONS": f"{others}:intercept_strstr=0"}  # its strstr reads all that follows
        run = explain("-", "--json", "-", input=json.dumps([{"error": error}] * 40000), env=quick)
        self.assertEqual(run.returncode, 0, run.stderr)
        got, alone = json.loads(run.stdout), json.loads(explain("-", "--json", "-", input=error).stdout)
        self.assertEqual((got["requested_bytes"], got["verdict"]), (alone["requested_bytes"], alone["verdict"]))

    def test_one_of_many_writers(self):
        """However many wrote before it, and between its lines."""
        error = (TEXTS / "log-traceback.txt").read_text().splitlines()
        step = "".join(f"[rank{rank}]: step 1 loss 2.345\n" for rank in range(1000))
        run = explain("-", "--json", "-", input="".join(f"{step}[rank999]: {line}\n" for line in error))
        self.assertEqual(run.returncode, 0, run.stderr)
        got, alone = json.loads(run.stdout), json.loads(explain("-", "--json", "-", input="\n".join(error)).stdout)
        self.assertEqual((got["rank"], got["site"], got["verdict"]), (999, alone["site"], alone["verdict"]))

    def test_an_input_without_an_end(self):
        """Nor is a damaged snapshot of any length taken for a log."""
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as endless:
            run = explain("-", stdin=endless.stdout)
            endless.stdout.close()
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, "standard input: .*no more than 1 GiB is read; pass the end of the log")
        run = explain("/dev/zero")
        self.assertEqual(run.returncode, 2)
        self.assertIn("/dev/zero: not a memory snapshot", run.stderr)

    def test_a_log_without_an_error(self):
        """It may begin as a list in JSON does."""
        for line in ("step 1", "[rank0]: step 1", "[2026-11-26 10:20:30] step 1", "{rank 0} step 1"):
            run = explain("-", input=f"{line}\n")
            self.assertEqual(run.returncode, 2)
            self.assertIn("neither a memory snapshot nor a text", run.stderr)

    def test_all_of_many_ranks(self):
        error = (TEXTS / "torch-1.5-worked-case.txt").read_text()
        run = explain("-", "--json", "-", input="".join(f"[rank{rank}]: {error}\n" for rank in range(1000)))
        self.assertEqual(len(json.loads(run.stdout)["ranks"]), 1000)

    def test_an_error_that_a_launcher_tells_again(self):
        """Ray's driver raises its worker's; a logger without names tells a rank's before or after. With other figures
        it is another process's."""
        error = (TEXTS / "log-traceback.txt").read_text()
        other = error.replace("GiB is free", "MiB is free")
        worker, rank = ("".join(f"{name} {line}\n" for line in error.splitlines())
                        for name in ("(train pid=3011, ip=10.1.2.3)", "[rank3]:"))
        for log, writer, rank, count in ((worker + error, "train pid=3011, ip=10.1.2.3", None, 0),
                                         (error + worker, "train pid=3011, ip=10.1.2.3", None, 0),
                                         (error + rank, None, 3, 0), (rank + other, None, None, 2)):
            got = json.loads(explain("-", "--json", "-", input=log).stdout)
            self.assertEqual(len(got.get("ranks", [])), count, log)
            self.assertEqual((got.get("writer"), got.get("rank")), (writer, rank), log)

    def test_a_text_does_not_tell_the_pool_of_the_request(self):
        report = explain(str(TEXTS / "torch-2.3-pools.txt")).stdout
        self.assertRegex(report, "pool: private pools keep .* free, which requests outside of them may not use: ")

    def test_reports_are_short(self):
        for name, want in EXPECTED.items():
            if "error" not in want and "ranks" not in want:
                self.assertLess(len(explain(str(TEXTS / f"{name}.txt")).stdout.splitlines()), 60)


if __name__ == "__main__":
    unittest.main()
