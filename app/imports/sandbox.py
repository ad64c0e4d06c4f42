"""Set limits on this process, then exec the program: `python -I -S sandbox.py MEMORY_BYTES CPU_S
FILE_BYTES PROGRAM ARGUMENT…`

The server cannot set them safely between fork and exec, because it has threads.
"""

import os
import resource
import signal
import sys

NICENESS = 10


def main(argv: list[str]) -> None:
    memory_bytes, cpu_s, file_bytes = map(int, argv[:3])
    _, max_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)
    if max_bytes != resource.RLIM_INFINITY:
        file_bytes = min(file_bytes, max_bytes)
    os.umask(0o077)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the import handles it
    os.execv(argv[3], argv[3:])  # noqa: S606 - the server's own command, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
