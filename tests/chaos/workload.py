"""The program of the work, workload.c, as a file that runs in any image."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "workload.c"


def compile_to(path: Path) -> None:
    """Compile it without libraries.

    Raises:
        RuntimeError: with the compiler's words.
    """
    command = ["cc", "-O1", "-static", "-o", str(path), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
