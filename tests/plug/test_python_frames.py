# SPDX-License-Identifier: Apache-2.0
"""plug/python/python_frames.c compiles for the Python that runs this, and reads its frames."""
import ctypes
import functools
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
HEADERS = Path(sysconfig.get_path("include"))
HERE = Path(__file__).name


class Frame(ctypes.Structure):
    """trz_frame."""
    _fields_ = [("filename", ctypes.c_char_p), ("name", ctypes.c_char_p), ("line", ctypes.c_uint)]


def load(folder):
    library = Path(folder) / "frames.so"
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
                    f"-I{SOURCE / 'include'}", "-isystem", HEADERS, SOURCE / "plug" / "python" / "python_frames.c",
                    "-pthread", "-o", library], check=True)
    frames = ctypes.CDLL(str(library))
    frames.trz_python_stack.argtypes = [ctypes.c_void_p]
    frames.trz_python_stack.restype = ctypes.c_uint64
    frames.trz_python_text.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Frame), ctypes.c_size_t]
    frames.trz_python_text.restype = ctypes.c_size_t
    assert ctypes.c_bool(frames.trz_python_prepare()).value
    return frames


@unittest.skipIf(sys.version_info < (3, 11), "frames need Python 3.11")
@unittest.skipUnless((HEADERS / "internal" / "pycore_frame.h").exists(), "Python's headers are not installed")
class Frames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.frames = load(folder)

    def names(self):
        """Of the functions of this file that are running, the innermost first; the runner's are left out."""
        found = (Frame * 64)()
        count = self.frames.trz_python_text(None, self.frames.trz_python_stack(None), found, len(found))
        lines = {f.name.decode(): f.line for f in found[:count] if f.filename.decode().endswith(HERE)}
        frame = sys._getframe(1)
        while frame:
            if frame.f_code.co_filename.endswith(HERE) and frame.f_code.co_name in lines:
                self.assertEqual(lines[frame.f_code.co_name], frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return list(lines)

    def test_functions_that_call_each_other(self):
        def inner():
            return self.names()

        def outer():
            return inner()

        self.assertEqual(outer()[:4], ["names", "inner", "outer", "test_functions_that_call_each_other"])

    def test_lines_are_those_that_python_tells(self):
        """names() compares them."""
        def over_several_lines():
            yield self.names()
            yield [
                1,
                self.names(),
            ]
            try:
                raise ValueError(
                    self.names())
            except ValueError:
                yield self.names()
            for turn in range(3):
                yield turn
                if turn != 1:
                    self.names()

        self.assertEqual(len([*over_several_lines()]), 6)

    def test_through_calls_from_c(self):
        """The interpreter is entered anew in each, and notes that among the frames."""
        def in_sorted(_):
            self.result = self.names()
            return 0

        def in_reduce(_, item):
            sorted([item], key=in_sorted)

        def in_generator():
            yield functools.reduce(in_reduce, [1, 2])

        list(in_generator())
        self.assertEqual(self.result[:5],
                         ["names", "in_sorted", "in_reduce", "in_generator", "test_through_calls_from_c"])

    def test_a_thread_has_frames_of_its_own(self):
        def body():
            self.result = self.names()

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        self.assertEqual(self.result, ["names", "body"])

    def test_one_place_is_one_number(self):
        numbers = {self.frames.trz_python_stack(None) for _ in range(100)}
        self.assertEqual(len(numbers), 1)

    def test_names_that_are_not_ascii(self):
        for name, file in (("größe", "/josé/"), ("训练", "/数据/模型/"), ("fun", "/\U0001f600/"), ("fun", "/\udcff/")):
            scope, found = {}, (Frame * 64)()
            exec(compile(f"def {name}(call):\n    return call()", file + HERE, "exec"), scope)
            number = scope[name](lambda: self.frames.trz_python_stack(None))
            self.assertGreater(self.frames.trz_python_text(None, number, found, len(found)), 2)
            self.assertEqual(found[1].name.decode(), name)
            self.assertEqual(found[1].filename.decode(), (file + HERE).replace("\udcff", "?"))

    def test_a_name_too_long_is_cut(self):
        scope, found, name = {}, (Frame * 64)(), "é" * 600
        exec(compile(f"def {name}(call):\n    return call()", HERE, "exec"), scope)
        number = scope[name](lambda: self.frames.trz_python_stack(None))
        self.assertGreater(self.frames.trz_python_text(None, number, found, len(found)), 2)
        self.assertEqual(found[1].name.decode(), "é" * 254)

    def test_at_the_end_no_frames_are_read(self):
        """The interpreter frees those of threads that still run. Some read them all the time, also while a child is
        made, which has only the thread that made it."""
        pid = os.fork()
        if pid == 0:
            for _ in range(4):
                threading.Thread(target=self.read_for_ever, daemon=True).start()
            grandchild = os.fork()
            self.frames.trz_python_end()
            left = self.frames.trz_python_stack(None)
            os._exit(left or (os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) if grandchild else 0))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertNotEqual(self.frames.trz_python_stack(None), 0)

    def read_for_ever(self):
        while True:
            self.frames.trz_python_stack(None)

    def test_code_at_the_address_of_code_that_has_died(self):
        for number in range(20):
            scope = {}
            exec(compile(f"def made_{number}(names):\n    return names()", HERE, "exec"), scope)
            self.assertEqual(scope[f"made_{number}"](self.names)[:2], ["names", f"made_{number}"])
            scope.clear()  # else a cycle keeps the function


if __name__ == "__main__":
    unittest.main()
