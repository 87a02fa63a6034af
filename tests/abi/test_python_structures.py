# SPDX-License-Identifier: Apache-2.0
"""The structures that Python hands to the library are laid out as the headers say."""
import ctypes
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])

package = types.ModuleType("terrazzo.torch")  # the real one imports torch
package.__path__ = [str(SOURCE / "python" / "terrazzo" / "torch")]
sys.modules[package.__name__] = package
sys.path.insert(0, str(SOURCE / "python"))
from terrazzo.torch import _native  # noqa: E402

STRUCTURES = {f"trz{re.sub('[A-Z]', lambda capital: '_' + capital.group().lower(), name)}": structure
              for name, structure in vars(_native).items()
              if isinstance(structure, type) and issubclass(structure, ctypes.Structure)}


def in_c():
    """[name, offset or size] of all fields and structures, by the compiler."""
    lines = [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
             for name, structure in STRUCTURES.items() for field, _ in structure._fields_]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTURES]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "print.c"), Path(folder, "print")
        source.write_text("#include <stddef.h>\n#include <stdio.h>\n#include <terrazzo_torch.h>\n"
                          "int main(void)\n{\n" + "\n".join(lines) + "\n}\n")
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-std=c11", f"-I{SOURCE / 'include'}",
                        f"-I{SOURCE / 'plug' / 'torch'}", "-o", program, source], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


class PythonStructures(unittest.TestCase):
    maxDiff = None

    def test_there_are_some(self):
        self.assertIn("trz_oom_info", STRUCTURES)

    def test_layouts_are_the_headers(self):
        lines = [f"{name}.{field} {getattr(structure, field).offset}"
                 for name, structure in STRUCTURES.items() for field, _ in structure._fields_]
        lines += [f"{name} {ctypes.sizeof(structure)}" for name, structure in STRUCTURES.items()]
        self.assertEqual(lines, in_c())

    def test_other_files_declare_none(self):
        declaring = [path.name for path in (SOURCE / "python").rglob("*.py")
                     if "ctypes.Structure" in path.read_text(encoding="utf-8")]
        self.assertEqual(declaring, ["_native.py"])


if __name__ == "__main__":
    unittest.main()
