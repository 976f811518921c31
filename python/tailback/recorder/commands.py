"""Output of the commands of other systems: batch system, subnet manager's tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

TIMEOUT_S = 120


def output_of(
    command: Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """What a command prints, and why it could not, "" where it could.

    Args:
        command: Program and arguments.
        timeout_s: Seconds after which it is ended.
        variables: Variables beside those of this process.
    """
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return "", "not installed here"
    except subprocess.TimeoutExpired:
        return "", f"no answer within {timeout_s:g} s"
    except OSError as error:
        return "", str(error)
    if done.returncode == 0:
        return done.stdout, ""
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return "", lines[0][:200]
