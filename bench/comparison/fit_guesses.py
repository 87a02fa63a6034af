# SPDX-License-Identifier: Apache-2.0
"""Where a search for the smallest device begins: at what an earlier run has found. A wrong guess only costs time."""
import json
from pathlib import Path

FILE = Path(__file__).with_name("fit_guesses.json")


class Guesses:
    def __init__(self, scale):
        self.scale = scale
        self.bytes = json.loads(FILE.read_text()) if FILE.exists() else {}

    def name(self, workload, allocator, lag):
        return f"{workload} {allocator} {lag} {self.scale}"

    def get(self, workload, allocator, lag):
        return self.bytes.get(self.name(workload, allocator, lag))

    def keep(self, rows):
        """Keeps what was found, for later runs."""
        for row in rows:
            if row.get("fit_bytes") and "planner_bytes" not in row:
                self.bytes[self.name(row["workload"], row["allocator"], row["lag"])] = row["fit_bytes"]
        FILE.write_text(json.dumps(dict(sorted(self.bytes.items())), indent=0) + "\n")
