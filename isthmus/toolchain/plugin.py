"""Running a Pulumi provider plugin: the process around a ResourceProvider servicer, as the engine starts it.

The engine starts the plugin, reads one line (the port) and talks pulumirpc.ResourceProvider to it. The plugin ends when the
engine closes it and, because a plugin of a killed engine would live for ever, when the engine's process is gone.
"""

import os
import signal
import threading
from concurrent import futures
from typing import NoReturn

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

WORKERS = 32
MESSAGE_BYTES = 64 * 1024 * 1024
PARENT_POLL_SECONDS = 0.5


def serve(servicer: provider_pb2_grpc.ResourceProviderServicer) -> NoReturn:
    """Serve until the engine closes the plugin or dies. Prints the port on a line of its own."""
    parent = os.getppid()
    server = grpc.server(
        futures.ThreadPoolExecutor(WORKERS),
        options=[("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while os.getppid() == parent and not stop.wait(PARENT_POLL_SECONDS):
        continue
    # No grace: what is cut off here is gone on with by the next run, and the engine that asked is gone.
    server.stop(None)
    os._exit(0)


def plain_text(error: Exception) -> str:
    """An error of our own as the engine prints it: the sentence, the object and the next command."""
    parts = [str(error) or type(error).__name__]
    for label, attribute in (("object", "subject"), ("next", "remedy")):
        value = getattr(error, attribute, "")
        if value:
            parts.append(f"  {label}: {value}")
    return "\n".join(parts)
