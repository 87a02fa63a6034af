# SPDX-License-Identifier: Apache-2.0
"""terrazzo run --limit: no way to allocate gets past it, in one process or several."""
import contextlib
import fcntl
import json
import re
import shlex
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from native_process import BUILD, PRELOAD, PROGRAMS, environment, run

MIB = 1 << 20
OUT_OF_MEMORY = 2
TERRAZZO = BUILD / "bin" / "terrazzo"


def ways():
    source = Path(__file__).parent / "programs" / "limited.c"
    return re.findall(r'^\t\{"([^"]+)", get_', source.read_text(), re.M)


class Limit(unittest.TestCase):
    def start(self, option, *command, **simulated):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TERRAZZO, "run", option, "--", *command], capture_output=True, text=True,
                                  timeout=300, check=False, stdin=subprocess.DEVNULL,
                                  env=environment({"TERRAZZO_CONF": "oom_report:off"}, report=folder, **simulated))
            devices = [json.loads(path.read_text())["devices"][0] for path in Path(folder).glob("*.json")]
        return done, max((d["peak_bytes"] - d["overhead_bytes"] for d in devices), default=0)

    def test_no_way_gets_past_it(self):
        self.assertGreaterEqual(len(ways()), 40)
        for work in ("now", "late"):
            done, peak = self.start("--limit=1GiB", PROGRAMS / "limited", "all", work=work)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("told: 1024 of 1024 MiB\n", done.stdout)
            self.assertLessEqual(peak, 1024 * MIB)
            self.assertGreater(peak, 900 * MIB)
            for way in ways():
                with self.subTest(way, work=work):
                    tried = re.findall(rf"^{re.escape(way)}: (\d+) MiB, then (\d+)$", done.stdout, re.M)
                    self.assertEqual(len(tried), 2)
                    for got, result in tried:
                        self.assertTrue(700 <= int(got) <= 1024, got)
                        self.assertEqual(int(result), OUT_OF_MEMORY)

    def test_each_process_may_have_a_limit_of_its_own(self):
        done, _ = self.start("--limit-each=96MiB", PROGRAMS / "limited", "child processes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("told: 96 of 96 MiB\nchild processes: 3072 MiB, then 0\n", done.stdout)

    def test_broken_captures_take_nothing_from_it(self):
        done, _ = self.start("--limit=1GiB", PROGRAMS / "limited", "broken captures")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("cudaMalloc after a broken capture: 1008 MiB, then 2\n"), 2, done.stdout)

    def test_threads_that_share_a_pool_are_counted_right(self):
        done, _ = self.start("--limit=1GiB", PROGRAMS / "limited", "threads")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_handles_that_are_used_again_at_once_are_counted(self):
        done, _ = self.start("--limit=1GiB", PROGRAMS / "reused")
        self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)

    def test_memory_that_is_opened_again_counts_once(self):
        done, _ = self.start("--limit=1GiB", TERRAZZO, "sim", "--", PROGRAMS / "limited", "opened")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_process_that_becomes_another_program_holds_nothing(self):
        for option in ("--limit=1GiB", "--limit-each=1GiB"):
            done, _ = self.start(option, PROGRAMS / "limited", "exec")
            told = "told: 1024 of 1024 MiB\n" * 2 + "all right\n"
            self.assertEqual((done.stdout, done.returncode), (told, 0), done.stderr[-1000:])

    def test_forks_while_threads_allocate(self):
        for option in ("--limit=1GiB", "--limit-each=1GiB"):
            done, _ = self.start(option, PROGRAMS / "limited", "forked")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr[-1000:])

    def test_contexts_that_end_give_back_what_was_left_in_them(self):
        for ipc in ("refuse", "classic"):
            done, _ = self.start("--limit=1GiB", "env", f"TERRAZZO_NATIVE=ipc:{ipc}", PROGRAMS / "limited", "ended")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_program_within_it_runs(self):
        done, peak = self.start("--limit=512MiB", PROGRAMS / "runtime_calls", scalars="real")
        self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)
        self.assertLessEqual(peak, 512 * MIB)

    def explained(self, *command, **variables):
        """What a program under a limit says when it runs out of memory, and the same as JSON, of its snapshot."""
        with tempfile.TemporaryDirectory() as folder:
            conf = {"TERRAZZO_CONF": f"oom_snapshot:{folder}"}
            done = subprocess.run([TERRAZZO, "run", "--limit=1GiB", "--", *command], capture_output=True, text=True,
                                  timeout=300, check=False, stdin=subprocess.DEVNULL,
                                  env=environment(conf, **variables))
            self.assertEqual(done.returncode, 0, done.stderr)
            snapshot = sorted(Path(folder).iterdir())[0]
            told = subprocess.run([TERRAZZO, "explain", "--json", "-", snapshot], capture_output=True, text=True,
                                  check=True)
        return done.stderr, json.loads(told.stdout)

    def test_a_failure_names_the_limit(self):
        text, told = self.explained(PROGRAMS / "limited", "cudaMalloc")
        self.assertIn("verdict: limit: 1.00 GiB are allowed and 1008.00 MiB held, though the device has room: "
                      "48.00 MiB asked for - 16.00 MiB left under the limit", text)
        self.assertEqual(told["verdict"], "limit")
        self.assertEqual(told["short_bytes"], 32 * MIB)
        self.assertEqual(told["figures"]["limit"], 1024 * MIB)
        self.assertEqual(told["figures"]["limit_held"], 1008 * MIB)
        self.assertGreater(told["figures"]["device_total"], 1 << 36)

    def test_a_failure_names_who_holds_the_rest(self):
        text, told = self.explained(PROGRAMS / "limited", "beside others")
        sharers = re.findall(r"48\.00 MiB by process (\d+) \(limited\)", text)
        self.assertRegex(text, r"\n    held by others +192\.00 MiB  48\.00 MiB by process .*, \.\.\.\n")
        self.assertEqual(len(set(sharers)), 3)  # of the four, as many as are shown
        self.assertRegex(text, r"verdict: limit: 1\.00 GiB are allowed and 1008\.00 MiB held, 192\.00 MiB by "
                               r"other processes, though the device has room")
        self.assertLess(set(sharers), {str(s["process"]) for s in told["sharers"]})
        self.assertEqual({(s["name"], s["bytes"]) for s in told["sharers"]}, {("limited", 48 * MIB)})

    def test_a_full_device_is_not_the_limits_fault(self):
        text, told = self.explained(PROGRAMS / "limited", "cudaMalloc", memory="900MiB")
        self.assertEqual(told["verdict"], "full", text)

    def test_a_size_that_is_none_is_refused(self):
        done, _ = self.start("--limit=many", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("'many' is not a size", done.stderr)

    def test_a_variable_that_is_no_limit_is_told_and_ignored(self):
        preload = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CONF": "oom_report:off"}
        for text in ("abc", "-1 -", " 1 -", "18446744073709551616 -", "0 -", "10GiB", "1073741824 ", "1073741824-"):
            with self.subTest(text):
                done = run("runtime_calls", variables={**preload, "TERRAZZO_LIMIT": text}, scalars="real")
                self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)
                self.assertEqual(done.stderr.count("TERRAZZO_LIMIT"), 1)
                self.assertIn(f"terrazzo: TERRAZZO_LIMIT: '{text}' is not a limit, and ignored: give a number of ",
                              done.stderr)
        for text in ("1073741824", "1073741824 -"):
            with self.subTest(text):
                done = run("limited", "cudaMalloc", variables={**preload, "TERRAZZO_LIMIT": text})
                self.assertEqual(done.stderr, "")
                self.assertIn("told: 1024 of 1024 MiB\n", done.stdout)

    def test_a_ledger_that_another_process_has_for_a_while(self):
        preload = {"LD_PRELOAD": PRELOAD}
        with tempfile.NamedTemporaryFile() as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)
            given_back = threading.Timer(0.3, fcntl.flock, (ledger, fcntl.LOCK_UN))
            given_back.start()
            done = run("limited", "ticking", variables={**preload, "TERRAZZO_LIMIT": f"1073741824 {ledger.name}"})
            given_back.join()
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_file_of_the_users_is_no_ledger(self):
        for content in (b"what the user keeps here\n", bytes(4096) + b"1" + bytes(1 << 16)):
            with self.subTest(content[:8]), tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                done = run("limited", "cudaMalloc",
                           variables={"LD_PRELOAD": PRELOAD, "TERRAZZO_LIMIT": f"1073741824 {file.name}"})
                self.assertIn(f"the ledger {file.name} cannot be opened (it is another file): the limit is this "
                              "process's own\n", done.stderr)
                self.assertIn("told: 1024 of 1024 MiB\n", done.stdout)
                self.assertEqual(Path(file.name).read_bytes(), content)

    def in_namespace(self, script, **variables):
        """What a script of the shell does with mounts of its own."""
        unshare = ["unshare", "--user", "--map-root-user", "--mount"]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
                              check=False).returncode == 0:
                return subprocess.run([*unshare, "sh", "-ec", script], capture_output=True, text=True, timeout=300,
                                      check=False, env=environment(variables))
        return self.skipTest("this machine grants no mounts")

    def test_a_ledger_without_room(self):
        limited, terrazzo = shlex.quote(str(PROGRAMS / "limited")), shlex.quote(str(TERRAZZO))
        done = self.in_namespace(f"""
mount -t tmpfs -o size=64k none /mnt
touch /mnt/ledger
head -c 65536 /dev/zero > /mnt/fill
LD_PRELOAD={PRELOAD} TERRAZZO_LIMIT="1073741824 /mnt/ledger" {limited} ticking
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the ledger /mnt/ledger cannot be opened (No space left on device): the limit is this process's",
                      done.stderr)
        done = self.in_namespace(f"""
mount -t tmpfs -o size=64k none /dev/shm
head -c 61440 /dev/zero > /dev/shm/fill
{terrazzo} run --limit=1GiB -- {limited} "child processes"
""", TERRAZZO_CONF="oom_report:off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("child processes: 1008 MiB, then 2\n", done.stdout)

    def test_a_system_without_proc(self):
        limited, terrazzo = shlex.quote(str(PROGRAMS / "limited")), shlex.quote(str(TERRAZZO))
        done = self.in_namespace(f"""
mount -t tmpfs none /proc
{terrazzo} run --limit=1GiB -- {limited} cudaMalloc
""", TERRAZZO_CONF="oom_report:off")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("told: 1024 of 1024 MiB\n", done.stdout)

    def test_the_programs_status_is_the_commands(self):
        done, _ = self.start("--limit=1GiB", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)

    def test_a_signal_at_any_moment_leaves_nothing(self):
        """Also while the program is being started."""
        def ledgers():
            return set(Path("/dev/shm").glob("terrazzo-limit-*"))

        before = ledgers()
        for step in range(100):
            with subprocess.Popen([TERRAZZO, "run", "--limit=1GiB", "--", "sleep", "600"], env=environment({}),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
                time.sleep(step / 10000)
                running.terminate()
                running.communicate(timeout=300)  # a program that went on would keep the pipes
                self.assertNotEqual(running.returncode, 0)
        left = ledgers() - before
        while any(path.exists() for path in left):  # those of others go when their programs end
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
