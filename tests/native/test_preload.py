# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of terrazzo, with libterrazzo_preload preloaded: they do the same as without it, and
terrazzo serves them."""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from native_process import BUILD, PRELOAD, PROGRAMS, WORKS, environment, run

RUNTIMES = ("runtime_calls", "runtime12", "runtime11", "runtime_static")
WAYS = ("linked", "dlsym", "dlsym_ptsz", "address", "address_ptsz", "address_v1", "entry_point", "entry_point_version")


def served(text):
    """What a report says: {call: (served, passed on, refused)}."""
    lines = re.findall(r"^terrazzo: (cu\w+): (\d+) served, (\d+) passed on, (\d+) refused$", text, re.M)
    return {name: tuple(int(n) for n in numbers) for name, *numbers in lines}


def has_unwinder():
    try:
        return bool(ctypes.CDLL("libunwind.so.8"))
    except OSError:
        return False


CASES = ("plain", "exit", "threads", "fork", "fork beside threads", "exec", "dlclose", "peers", "reset",
         "reset during work", "captures", "reset during a capture", "detach", "fill", "a pool chosen", "a pool shared",
         "small stacks", "freed twice", "green")


class Preloaded(unittest.TestCase):
    def passes(self, program, *arguments, variables=None, **simulated):
        done = run(program, *arguments, variables=variables, scalars="real", **simulated)
        self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)
        return done.stderr

    def preloaded(self, program, *arguments, options="report:on", **simulated):
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": options, "TERRAZZO_CONF": "oom_report:off"}
        return served(self.passes(program, *arguments, variables=variables, **simulated))

    def test_programs_run_without_it(self):
        for program in RUNTIMES:
            with self.subTest(program):
                self.assertEqual(self.passes(program), "")
        for way in WAYS:
            with self.subTest(way):
                self.assertEqual(self.passes("driver_calls", way), "")

    def test_runtime_is_served_shared_and_static(self):
        for program in RUNTIMES:
            for work in WORKS:
                with self.subTest(program, **work):
                    counts = self.preloaded(program, **work)
                    self.assertGreater(counts["cuMemAlloc"][0], 1000)
                    self.assertLess(counts["cuMemAlloc"][1], 10)
                    self.assertGreater(counts["cuMemAllocAsync"][0], 1000)
                    self.assertGreater(counts["cuMemFreeAsync"][0], 1000)
                    self.assertEqual(counts["cuMemAllocPitch"], (2, 0, 0))

    def test_driver_is_served_however_it_is_found(self):
        for way in WAYS:
            for work in WORKS[:2]:
                with self.subTest(way, **work):
                    counts = self.preloaded("driver_calls", way, **work)
                    self.assertEqual(counts["cuMemAlloc"][0], 102)
                    self.assertEqual(counts["cuMemAllocAsync"], (100, 0, 0))
                    self.assertEqual(counts["cuMemFreeAsync"], (100, 0, 0))

    def test_frees_in_order(self):
        for work in WORKS:
            with self.subTest(**work):
                self.preloaded("runtime_calls", options="free:order", **work)

    def test_terrazzo_run_sets_it_for_all_that_it_starts(self):
        command = [BUILD / "bin" / "terrazzo", "run", "--", "sh", "-c", f"'{PROGRAMS}'/driver_calls linked; exit 3"]
        done = subprocess.run(command, env=environment({"TERRAZZO_NATIVE": "report:on", "LD_PRELOAD": "libm.so.6"}),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.stdout, done.returncode), ("all right\n", 3), done.stderr)
        self.assertEqual(served(done.stderr)["cuMemAllocAsync"], (100, 0, 0))

    def test_edges_of_a_programs_life(self):
        for case in CASES:
            for preload in ("", PRELOAD):
                for work in WORKS[:2]:
                    with self.subTest(case, preload=preload, **work):
                        done = run("edges", case, variables={"LD_PRELOAD": preload}, devices=2, scalars="real", **work)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assertEqual(done.stdout, "all right\n" * (2 if case == "exec" else 1))

    def test_streams_of_green_contexts_are_served_by_the_primary_context(self):
        counts = self.preloaded("edges", "green", devices=2)
        self.assertEqual(counts["cuMemAllocAsync"][1], 0)

    def test_plain_memory_that_is_freed_twice_stays_the_heaps(self):
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": "vmm:off"}
        self.passes("edges", "freed twice", variables=variables, devices=2)

    def test_a_reset_leaves_no_heap_behind(self):
        """Each heap has a stream of its own. Only the last heap lives to the end, of the context after the resets."""
        with tempfile.TemporaryDirectory() as folder:
            self.passes("edges", "reset", variables={"LD_PRELOAD": PRELOAD}, report=folder)
            calls = json.loads(next(Path(folder).glob("*.json")).read_text())["calls"]
        self.assertEqual(calls["cuStreamCreate"] - calls["cuStreamDestroy"], 1)

    def test_devices_that_do_not_reach_each_other(self):
        """Or could, but the driver refuses it: more than eight are connected."""
        for peers in ("no", "full"):
            for work in WORKS[:2]:
                with self.subTest(peers, **work):
                    self.passes("edges", "apart", devices=2, peers=peers, **work)
                    variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": "report:on"}
                    said = self.passes("edges", "apart", variables=variables, devices=2, peers=peers, **work)
                    self.assertRegex(said, "(?m)^terrazzo: .* reach each other")

    def test_constructors_use_cuda_while_others_do(self):
        for before in ("nothing", "a context", "a free"):
            with self.subTest(before):
                counts = self.preloaded("constructors", before, str(PROGRAMS / "constructed.so"))
                self.assertGreaterEqual(counts["cuMemAlloc"][0], 2)

    def test_constructors_use_cuda_while_others_do_beside_a_tool(self):
        """NVTX's tool is looked for before the lock of heaps is taken."""
        variables = {"LD_PRELOAD": str(PRELOAD), "TERRAZZO_CONF": "nvtx:on",
                     "NVTX_INJECTION64_PATH": str(BUILD / "tests" / "nvtx" / "libfakenvtx.so")}
        self.passes("constructors", "another device", str(PROGRAMS / "constructed.so"), variables=variables, devices=2)

    def exports(self, program, options):
        done = run(program, variables={"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": options})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, "TERRAZZO_NATIVE=ipc:classic" in done.stderr

    def test_memory_for_other_processes_is_the_drivers(self):
        self.assertEqual(self.exports("exports", "ipc:auto"), ("0 0 all right\n", False))
        self.assertEqual(self.exports("exports", "ipc:refuse"), ("801 801 all right\n", True))
        self.assertEqual(self.exports("exports_static", "ipc:auto"), ("801 0 all right\n", True))
        self.assertEqual(self.exports("exports_static", "ipc:classic"), ("0 0 all right\n", False))

    def test_of_several_words_for_an_option_the_last_counts(self):
        self.assertEqual(self.exports("exports", "ipc:classic , ipc:refuse,"), ("801 801 all right\n", True))
        self.assertEqual(self.exports("exports", "ipc:refuse,ipc:auto"), ("0 0 all right\n", False))
        self.assertEqual(self.exports("exports_static", "ipc:classic,ipc:auto"), ("801 0 all right\n", True))

    def test_a_word_that_is_none_is_told(self):
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": "ipc:never, ,report:on"}
        said = self.passes("runtime_calls", variables=variables)
        self.assertEqual(re.findall("'([^']*)' is unknown, and ignored: there are on:on", said), ["ipc:never"])

    def test_a_report_says_why_nothing_was_served(self):
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": "report:on"}
        said = run("exports", variables=variables).stderr
        self.assertEqual(served(said)["cuMemAlloc"][0], 0)
        self.assertRegex(said, "(?m)^terrazzo: .* imports cudaIpcGetMemHandle; if the program shares no memory, set "
                         "TERRAZZO_NATIVE=ipc:refuse to serve it")
        said = self.passes("runtime_calls", variables=variables)
        self.assertNotIn("ipc:refuse", said)
        for program, told in (("import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)", 1), ("pass", 0)):
            done = subprocess.run([sys.executable, "-c", program], env=environment(variables), capture_output=True,
                                  text=True, timeout=120, check=True)
            self.assertEqual(done.stderr.count("no allocation came through terrazzo"), told, done.stderr)

    def test_every_way_to_begin_a_capture_is_seen(self):
        """Also those that the simulated driver lacks: unseen, a capture would get memory of the heap's."""
        names = Path(os.environ["TRZ_SOURCE_DIR"], "tests", "lookalike", "driver_names.txt").read_text()
        ways = re.findall(r"^(cuStreamBegin(?:C|Rec)apture(?:ToGraph)?(?:_v2)?(?:_ptsz)?)\b", names, re.M)
        self.assertIn("cuStreamBeginRecaptureToGraph_ptsz", ways)
        preload = ctypes.CDLL(BUILD / "lib" / PRELOAD)
        self.assertEqual([way for way in ways if not hasattr(preload, way)], [])

    def test_a_failure_names_the_programs_own_calls(self):
        """Not the runtime's, be it shared or linked into the program; of a stripped program only the file is known."""
        if not has_unwinder():
            self.skipTest("without libunwind holders are calls of the runtime")
        for program, names in (("refused", ("asks_at_once", "asks_in_order", "asks_for_rows")),
                               ("refused_static", ("asks_at_once", "asks_in_order", "asks_for_rows")),
                               ("refused_stripped", ("", "", ""))):
            with self.subTest(program):
                said = self.passes(program, variables={"LD_PRELOAD": PRELOAD})
                asked = re.findall(r"(?m)^asked for by \S*/(\w+) (\w*)\+0x", said)
                self.assertEqual(asked, [(program, name) for name in names], said)
                held = re.findall(r"(?m)^ +(\S+) GiB +\S+ %  \S*/(\w+) (\w+)\+\S+ < \S*/\w+ (\w+)\+\S+ \(1 live",
                                  said)
                self.assertEqual(held[:2], [("2.00", program, "takes", "keeps_cache"),
                                            ("1.00", program, "takes", "keeps_weights")] if names[0] else [], said)

    def test_small_stacks_suffice(self):
        """Threads that have 12 KiB more than the system demands: with what costs most stack, 16."""
        with tempfile.TemporaryDirectory() as folder:
            most = f"oom_snapshot:{folder}/%n.json,history:5000,native_frames:on"
            for more, options in (("12", ""), ("16", most)):
                for work in WORKS:
                    with self.subTest(options, **work):
                        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": options}
                        said = self.passes("small_stack", more, memory="1GiB", variables=variables, **work)
                        self.assertIn("verdict: ", said)
            self.assertLessEqual({"1.json", "4.json"}, set(os.listdir(folder)))

    def test_threads_are_not_cancelled_inside_a_call(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": f"oom_snapshot:{folder}/%n.json"}
            for work in WORKS:
                with self.subTest(**work):
                    self.passes("cancelled", variables=variables, **work)
                    self.assertEqual(sorted(os.listdir(folder)), ["1.json", "2.json"])

    def test_a_program_that_ends_with_its_heaps_leaves_their_snapshots(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": f"exit_snapshot:{folder}/%d.json,history:100"}
            self.passes("loop", "3", "2", "plain", variables=variables)
            with open(f"{folder}/0.json") as file:
                self.assertGreater(len(json.load(file)["device_traces"][0]), 0)

    def test_a_program_that_ends_quickly_leaves_its_report_and_its_snapshot(self):
        with tempfile.TemporaryDirectory() as folder:
            variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": f"exit_snapshot:{folder}/%d.json",
                         "TERRAZZO_NATIVE": "report:on"}
            self.assertGreater(served(self.passes("edges", "quick exit", variables=variables))["cuMemAlloc"][0], 0)
            with open(f"{folder}/0.json") as file:
                self.assertGreater(len(json.load(file)["segments"]), 0)

    def test_an_error_of_the_configuration_is_told_once(self):
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": "limit:much", "TERRAZZO_NATIVE": "report:on"}
        for program in (["runtime_calls"], ["edges", "peers"]):
            with self.subTest(program):
                said = self.passes(*program, variables=variables, devices=2)
                self.assertRegex(said, r"terrazzo: device 0 has no heap, so the driver serves its allocations: "
                                       r'TERRAZZO_CONF: limit does not take "much"; it takes ')
                self.assertEqual(said.count("TERRAZZO_CONF"), 1)
                self.assertEqual({call[0] for call in served(said).values()}, {0})

    def test_off_leaves_all_to_the_driver(self):
        counts = self.preloaded("runtime_calls", options="on:off,report:on")
        self.assertEqual({call[0] for call in counts.values()}, {0})


if __name__ == "__main__":
    unittest.main()
