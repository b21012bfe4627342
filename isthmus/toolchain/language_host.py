"""Pulumi's Python language host, for engines built here: the official one comes in no package registry.

The engine starts it, reads a port from its first line of output, and asks it over gRPC to run the program. Each run is a
process of its own (isthmus.toolchain.language_program), so a program cannot upset the host, and everything it prints and
its exit code are its own. The host dies when its engine does, and the program when the host does.

It runs programs. It does not install dependencies, generate SDKs, or serve component packages written in Python: the
official host does, and is used wherever it lies beside the pulumi on PATH.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from isthmus.toolchain.language_program import SHOWN

MESSAGE_LIMIT = 400 << 20
"""Bytes of one gRPC message; the engine's own limit."""
KILL_AFTER_SECONDS = 5.0
PARENT_CHECK_SECONDS = 0.5


class Program:
    """One run of a Pulumi program as a child process."""

    def __init__(self, request: Any, engine: str) -> None:
        directory = request.info.program_directory or request.pwd or os.getcwd()
        script = Path(__file__).with_name("language_program.py")
        # A session of its own: Ctrl-C in the terminal is for the engine, which then cancels us in good order.
        self._process = subprocess.Popen(
            [str(_python(request)), "-u", str(script), engine],
            cwd=directory,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._cancelled = threading.Event()
        message = request.SerializeToString()
        assert self._process.stdin is not None
        try:
            # The request goes by pipe, not by argument or environment: configuration holds decrypted secrets. The pipe
            # stays open; its end tells the program that the host is gone.
            self._process.stdin.write(len(message).to_bytes(8, "big") + message)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; its exit code tells

    def wait(self) -> Any:
        """Wait for the end. The result's `bail` means that the error has been shown already."""
        code = self._process.wait()
        if code == 0:
            return language_pb2.RunResponse()
        if code == SHOWN or self._cancelled.is_set():
            return language_pb2.RunResponse(bail=True)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return language_pb2.RunResponse(error=f"the program {how}")

    def cancel(self) -> None:
        """End the program: politely, then by force."""
        self._cancelled.set()
        self._process.terminate()
        try:
            self._process.wait(KILL_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """The language service that an engine talks to."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._programs: set[Program] = set()
        self._lock = threading.Lock()

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi"))

    def GetRequiredPackages(self, request: Any, context: grpc.ServicerContext) -> Any:
        """None: the plugins that the program needs are installed by `isthmus install`, and the engine would download."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(self, request: Any, context: grpc.ServicerContext) -> Any:
        return language_pb2.GetRequiredPluginsResponse()

    def Run(self, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            program = Program(request, self._engine)
        except OSError as error:
            return language_pb2.RunResponse(error=f"the program cannot be started: {error}")
        with self._lock:
            self._programs.add(program)
        if not context.add_callback(program.cancel):  # also called at the normal end, when it does nothing
            program.cancel()
        try:
            return program.wait()
        finally:
            with self._lock:
                self._programs.discard(program)

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.cancel()
        return empty_pb2.Empty()

    def cancel(self) -> None:
        """End every program that runs."""
        with self._lock:
            programs = list(self._programs)
        for program in programs:
            program.cancel()

    def InstallDependencies(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield language_pb2.InstallDependenciesResponse(stdout=b"the program's packages come with `make install`\n")

    def RuntimeOptionsPrompts(self, request: Any, context: grpc.ServicerContext) -> Any:
        return language_pb2.RuntimeOptionsResponse()

    def About(self, request: Any, context: grpc.ServicerContext) -> Any:
        version = ".".join(map(str, sys.version_info[:3]))
        return language_pb2.AboutResponse(executable=sys.executable, version=version)

    def GetProgramDependencies(self, request: Any, context: grpc.ServicerContext) -> Any:
        """The installed Python packages; only those that no other one requires, unless all are asked for."""
        versions = {_normal(item.metadata["Name"]): item.version for item in metadata.distributions()}
        names = set(versions)
        if not request.transitiveDependencies:
            names -= {
                _normal(_requirement_name(line)) for item in metadata.distributions() for line in item.requires or ()
            }
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[language_pb2.DependencyInfo(name=name, version=versions[name]) for name in sorted(names)]
        )


def serve(arguments: list[str]) -> None:
    """Serve until the engine is gone.

    Args:
        arguments: what the engine passes: options with a dash, and its own address.
    """
    parent = os.getppid()
    stopping = threading.Event()
    # The engine runs us in a process group of our own, so a Ctrl-C in the terminal does not come here: an interrupt is the
    # engine saying that it is done with us, and it waits five seconds before it kills.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    addresses = [argument for argument in arguments if not argument.startswith("-")]
    host = Host(addresses[-1] if addresses else "")
    limits = [("grpc.max_receive_message_length", MESSAGE_LIMIT), ("grpc.max_send_message_length", MESSAGE_LIMIT)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=limits)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    while not stopping.wait(PARENT_CHECK_SECONDS):
        if os.getppid() != parent:
            break
    host.cancel()
    server.stop(grace=None)
    os._exit(0)  # threads of a cancelled call must not hold the process


def _python(request: Any) -> Path:
    """The interpreter of the `virtualenv` in Pulumi.yaml when there is one, else our own."""
    options = request.info.options
    if "virtualenv" in options.fields:
        candidate = Path(request.info.root_directory, options.fields["virtualenv"].string_value, "bin", "python")
        if os.access(candidate, os.X_OK):
            return candidate
    return Path(sys.executable)


def _requirement_name(line: str) -> str:
    end = next((index for index, letter in enumerate(line) if not (letter.isalnum() or letter in "-_.")), len(line))
    return line[:end]


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    serve(sys.argv[1:])
