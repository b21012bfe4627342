"""Runs one Pulumi program on behalf of the language host, in a process of its own.

The request (project, stack, configuration, the engine's addresses) arrives on standard input as a length and a protobuf
message; the end of that pipe means that the host is gone, and ends the program. An error of the program is sent to the
engine once, as its diagnostic; exit code SHOWN tells the host that it needs no second message.
"""

import asyncio
import logging
import os
import runpy
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

SHOWN = 32
"""Exit code: failed, and the user has been told why (the official host's convention)."""
MAX_THREADS = 1024


def main(engine: str) -> int:
    """Run the program whose request is on standard input; its exit code."""
    request = _request()
    from pulumi import log
    from pulumi.runtime import reset_options, set_all_config

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # unobserved failed tasks are reported by the engine
    reset_options(
        project=request.project,
        stack=request.stack,
        organization=request.organization or "organization",
        root_directory=request.info.root_directory or None,
        monitor_address=request.monitor_address,
        engine_address=engine,
        parallel=request.parallel,
        preview=request.dryRun,
    )
    set_all_config(dict(request.config), list(request.configSecretKeys))
    entry = Path(
        request.info.program_directory or request.pwd or os.getcwd(), request.info.entry_point or "."
    ).resolve()
    problem = _run(entry, request.parallel)
    if problem:
        with suppress(Exception):  # the engine may be gone, and then nobody reads this
            log.error(problem)
    sys.stdout.flush()
    sys.stderr.flush()
    return SHOWN if problem is not None else 0


def _run(entry: Path, parallel: int) -> str | None:
    """Run it; None when it succeeded, "" when its failure needs no words (the engine is shutting down), or the words."""
    import grpc
    from pulumi import RunError
    from pulumi.runtime import run_in_stack

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=min(max(parallel, 1) * 4, MAX_THREADS)))
    loop.set_exception_handler(_on_task_error)
    try:
        loop.run_until_complete(run_in_stack(lambda: _program(entry)))
    except RunError as error:
        return str(error)
    except grpc.RpcError as error:
        if not isinstance(error, grpc.Call):
            return f"Program failed: {error}"
        return "" if error.code() == grpc.StatusCode.UNAVAILABLE else f"Program failed: {error.details()}"
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        return f"Program called sys.exit({error.code!r})"
    except KeyboardInterrupt:
        return ""
    except BaseException as error:  # noqa: BLE001 whatever a program raises is shown as its error
        return _described(error, entry)
    finally:
        _close(loop)
    return None


def _program(entry: Path) -> None:
    sys.argv = [str(entry)]
    folder = entry if entry.is_dir() else entry.parent
    sys.path.insert(0, str(folder))
    runpy.run_path(str(folder / "__main__.py" if entry.is_dir() else entry), run_name="__main__")


def _described(error: BaseException, entry: Path) -> str:
    """The traceback from the user's own file on: the frames above it are ours and Pulumi's."""
    folder = str(entry if entry.is_dir() else entry.parent)
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(folder):
        trace = trace.tb_next  # a syntax error in the program has no frame of it at all
    lines = traceback.format_exception(type(error), error, trace)
    return "Program failed with an unhandled exception:\n" + "".join(lines).rstrip()


def _on_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    import grpc

    if isinstance(context.get("exception"), grpc.RpcError):
        loop.stop()  # handled below in the stack; if it comes here nothing more can be done
    else:
        loop.default_exception_handler(context)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what a failed program left waiting, or asyncio prints a line for each."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    with suppress(BaseException):
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def _request() -> Any:
    from pulumi.runtime.proto import language_pb2

    pipe = os.fdopen(os.dup(0), "rb", buffering=0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # a program that reads standard input gets its end, not our pipe
    os.close(null)
    size = int.from_bytes(_read(pipe, 8), "big")
    request = language_pb2.RunRequest.FromString(_read(pipe, size))
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    return request


def _read(pipe: BinaryIO | Any, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = pipe.read(count - len(data))
        if not part:
            os._exit(SHOWN)  # the host died before it had told us anything
        data += part
    return data


def _end_with(pipe: Any) -> None:
    while pipe.read(1):
        pass
    os._exit(SHOWN)


if __name__ == "__main__":
    sys.path[0:1] = []  # the folder of this file; the program's own is added in its place
    sys.exit(main(sys.argv[1]))
