#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the set-up of PyTorch for the simulated device does with a folder that is not empty, and with CUDA's headers."""
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(os.environ["TRZ_SOURCE_DIR"]) / "python"))
from terrazzo.sim import environment  # noqa: E402


class Folders(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def made(self, folder):
        """An environment whose packages lie in the scratch folder."""
        env = environment.Environment(folder, print)
        env.site_packages = lambda: self.folder
        return env

    def test_what_is_no_place_for_an_environment(self):
        file, full = self.folder / "file", self.folder / "full"
        file.write_text("")
        full.mkdir()
        (full / "file").write_text("")
        for folder, words in ((file, "is not a folder"), (full, "is neither empty nor a virtual environment"),
                              (file / "below", "below: cannot be created: Not a directory")):
            with self.assertRaisesRegex(environment.Failure, words):
                self.made(folder).create()

    def warnings(self):
        """What two processes of one run say."""
        said = io.StringIO()
        with mock.patch.dict(os.environ), contextlib.redirect_stderr(said):
            environment.warn_of_old_standins(self.folder)
            environment.warn_of_old_standins(self.folder)
        return said.getvalue().splitlines()

    def test_who_uses_an_environment_of_another_terrazzo_is_told_once(self):
        self.assertEqual(self.warnings(), [])  # not one of ours
        mark = self.folder / environment.MARK
        for standins in {}, {"standins": "others"}:
            mark.write_text(json.dumps(standins))
            said, = self.warnings()
            self.assertIn(f"terrazzo sim --setup {self.folder}", said)
        mark.write_text(json.dumps({"standins": environment.digest_sources()}))
        self.assertEqual(self.warnings(), [])

    def test_headers_are_those_that_pytorch_requires(self):
        (self.folder / "torch-9.dist-info").mkdir()
        metadata = self.folder / "torch-9.dist-info" / "METADATA"
        env, installed = self.made(self.folder), []
        env.install = installed.append
        for requirement, package in (
                ("cuda-toolkit[cublas,cudart,nvtx]==13.2.2", "cuda-toolkit[cudart]==13.2.2"),
                ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-runtime==13.0.96"),
                ("nvidia-cuda-runtime-cu12 (==12.1.105) ", "nvidia-cuda-runtime-cu12==12.1.105")):
            lines = ("nvidia-nccl-cu13==2.30.7", f'{requirement}; platform_system == "Linux"')
            metadata.write_text("".join(f"X-Terrazzo-Left-Out: {line}\n" for line in lines))
            env.install_headers()
            self.assertEqual(installed.pop(), package)
        headers = self.folder / "nvidia/cu13/include"
        headers.mkdir(parents=True)
        (headers / "cuda_runtime_api.h").write_text("")
        env.install_headers()  # they are there
        metadata.write_text("Requires-Dist: sympy\n")
        shutil.rmtree(headers)
        env.install_headers()  # a PyTorch without CUDA
        self.assertEqual(installed, [])

    def test_the_package_of_headers_leaves_its_runtime_out(self):
        library, info = self.folder / "nvidia/cu13/lib", self.folder / "nvidia_cuda_runtime-13.2.0.dist-info"
        library.mkdir(parents=True)
        info.mkdir()
        names = ("libcudart.so.13", "libcudart_static.a", "libcublas.so.13")
        for name in names:
            (library / name).write_text("genuine")
        (info / "RECORD").write_text("".join(f"nvidia/cu13/lib/{name},sha256=x,7\n" for name in names[:2]))
        env = self.made(self.folder)
        env.take_out_runtime()
        self.assertEqual(sorted(p.name for p in library.iterdir()), sorted(names[1:]))
        (library / names[0]).symlink_to(library / names[1])  # where the look-alike goes: it stays
        env.take_out_runtime()
        self.assertTrue((library / names[0]).is_symlink())

    def test_a_runtime_that_a_wheel_brings_along_is_replaced(self):
        libraries, wheel = self.folder / "lookalikes", self.folder / "vision.libs"
        libraries.mkdir()
        wheel.mkdir()
        for name in ("libcudart.so.13", "libcudart.so.11.0", "libcudart.so"):
            (libraries / name).write_text("look-alike")
        names = {"libcudart.faf08d9a.so.13": "libcudart.so.13", "libcudart-d0da41ae.so.11.0": "libcudart.so.11.0",
                 "libcudart-c64a25f3.so.12.3.101": None, "libjpeg.185109e6.so.8": None}
        for name in names:
            (wheel / name).write_text("genuine")
        env = self.made(self.folder)
        for _ in range(2):
            env.replace_runtimes(libraries)
            for name, lookalike in names.items():  # without a look-alike of its version it stays
                self.assertEqual((wheel / name).is_symlink(), bool(lookalike), name)
                self.assertEqual((wheel / name).resolve().name, lookalike or name)


if __name__ == "__main__":
    unittest.main()
