# SPDX-License-Identifier: Apache-2.0
"""What CUDA documents of its allocation calls (conformance/): the simulated driver answers like that, with any timing
of work and either runtime; so does a preloaded program, except for the answers in conformance/differences.txt."""
import os
import re
import subprocess
import unittest
from pathlib import Path

from native_process import BUILD, PRELOAD, WORKS, environment

FOLDER = Path(os.environ["TRZ_SOURCE_DIR"]) / "tests" / "native" / "conformance"
PROGRAMS = BUILD / "tests" / "native" / "programs"
PRELOADED = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": "oom_report:off"}
# The program imports cudaIpcGetMemHandle: so its cudaMalloc is left to the driver, unless that is refused.
IPC = ("auto", "refuse")


def groups():
    done = subprocess.run([PROGRAMS / "conformance"], env=environment({}), capture_output=True, text=True, check=True)
    return done.stdout.split()


def answers(program, variables, **simulated):
    """The lines of all groups, each run by itself; what a process says when it dies is among them."""
    lines = []
    for group in groups():
        done = subprocess.run([PROGRAMS / program, group], capture_output=True, text=True, timeout=300, check=False,
                              env=environment(variables, devices=2, memory="2GiB", scalars="real", **simulated))
        lines += done.stdout.splitlines()
        if done.returncode not in (0, 1):
            lines.append(f"{group}: ended by {done.returncode}: {done.stderr[-500:]}")
    return lines


def not_ok(lines):
    return [line for line in lines if not line.startswith(("ok ", "says "))]


def differences(ipc):
    """{check: the line of a preloaded program}."""
    lines = [line.split(" ", 4) for line in (FOLDER / "differences.txt").read_text().splitlines() if line[0] != "#"]
    return {name: f"{kind} {name}: {answer}" if kind == "NOT" else f"{kind} {name} {answer}"
            for modes, kind, name, answer, _ in lines if ipc in modes.split(",")}


class Conformance(unittest.TestCase):
    maxDiff = None

    def test_there_are_enough_checks_and_each_has_a_name_of_its_own(self):
        names = [line.split()[1] for line in answers("conformance", {})]
        self.assertEqual(sorted(names), sorted(set(names)))
        self.assertGreater(len(names), 400)

    def test_the_simulated_driver_answers_as_documented(self):
        for work in WORKS:
            with self.subTest(**work):
                self.assertEqual(not_ok(answers("conformance", {}, **work)), [])

    def test_the_older_runtime_answers_as_documented(self):
        self.assertEqual(not_ok(answers("conformance12", {})), [])

    def test_a_preloaded_program_gets_the_same_answers(self):
        bare = answers("conformance", {})
        for ipc in IPC:
            known = differences(ipc)
            expected = [known.get(line.split()[1], line) for line in bare]
            for work in WORKS:
                with self.subTest(ipc, **work):
                    variables = dict(PRELOADED, TERRAZZO_NATIVE=f"ipc:{ipc}")
                    got = [re.sub(r", documented -?\d+$", "", line)
                           for line in answers("conformance", variables, **work)]
                    self.assertEqual(got, expected)

    def test_a_preloaded_program_is_served(self):
        variables = dict(PRELOADED, TERRAZZO_NATIVE="ipc:refuse,report:on")
        done = subprocess.run([PROGRAMS / "conformance", "malloc"], env=environment(variables, memory="2GiB"),
                              capture_output=True, text=True, check=False)
        self.assertGreater(int(re.search(r"cuMemAlloc: (\d+) served", done.stderr).group(1)), 300)


if __name__ == "__main__":
    unittest.main()
