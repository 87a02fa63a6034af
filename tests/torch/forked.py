# SPDX-License-Identifier: Apache-2.0
"""Runs parts of a program as processes of their own, made by fork before the device is opened: each opens one anew,
with the schedule and the seed that it is given."""
import os
import tempfile


def attempt(schedule, seed, function, *arguments):
    """(how the process ended, what it wrote on standard error)"""
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 2)
            os.environ["TERRAZZO_SIM_SCHEDULE"], os.environ["TERRAZZO_SIM_SEED"] = schedule, str(seed)
            try:
                function(*arguments)
                os._exit(0)
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        output.seek(0)
        return ended, output.read()
