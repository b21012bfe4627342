"""isthmus serve: the training service over the stacks of this folder."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isthmus.specs.errors import InvalidSpec, IsthmusError

if TYPE_CHECKING:
    from isthmus.service.database import Database
    from isthmus.service.stacks import Stacks
    from isthmus.specs.stack import StackSettings

Flag = Annotated[bool, Parameter(negative="")]


def serve(
    *,
    database: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    stack: Annotated[tuple[str, ...], Parameter(name=["--stack", "-s"], negative="")] = (),
    administrator: str | None = None,
    issuer: str = "",
    audience: str = "isthmus",
    most_active: int = 100,
    requests_per_second: float = 100.0,
    api_only: Flag = False,
    migrate: Flag = False,
) -> None:
    """Run the training service until it is stopped: HTTP API, queue, algorithm registry.

    Parameters
    ----------
    database
        sqlite:///FILE or postgresql://USER@HOST/NAME; by default a file under ISTHMUS_HOME. Also ISTHMUS_DATABASE.
    host
        Address to listen on. Put a proxy that ends TLS before it to serve others than this machine.
    port
        Port to listen on.
    stack
        Stacks that runs may be sent to; by default all that have a settings file here.
    administrator
        Name of the first administrator, with an empty database: their API key is printed once.
    issuer
        URL of an OpenID Connect identity provider whose tokens are taken, besides API keys.
    audience
        What its tokens must be meant for.
    most_active
        Runs that a stack may have at once; the others wait in the queue.
    requests_per_second
        For each user, in the long run.
    api_only
        Leave the queue to other services on the same database.
    migrate
        Bring the database's tables to this version first (those of a new database are always made).
    """
    from isthmus.service import server
    from isthmus.toolchain import home

    opened = open_database(database)
    if migrate or opened.revision() is None:
        opened.migrate()
    opened.check_schema()
    if administrator is not None:
        print(f"API key of {administrator}, shown this once: {server.first_administrator(opened, administrator)}")
    platform = _platform(stack)
    print(
        f"isthmus serve: http://{host}:{port} for {', '.join(platform.names)}; database {opened.shown}; {home.home()}"
    )
    print(f"next: export ISTHMUS_SERVICE=http://{host}:{port} ISTHMUS_KEY=...; isthmus service me", flush=True)
    settings = server.Settings(
        host=host,
        port=port,
        issuer=issuer,
        audience=audience,
        requests_per_second=requests_per_second,
        most_active=most_active,
        works=not api_only,
    )
    server.serve(opened, platform, settings)


def open_database(url: str | None) -> "Database":
    """The service's database: by option, by ISTHMUS_DATABASE, else a file under ISTHMUS_HOME."""
    import os

    from isthmus.service.database import Database
    from isthmus.toolchain import home

    return Database(url or os.environ.get("ISTHMUS_DATABASE") or f"sqlite:///{home.home() / 'service.db'}")


def _platform(chosen: tuple[str, ...]) -> "Stacks":
    from isthmus.cli.migration_world import check_hold
    from isthmus.cli.project import root
    from isthmus.cli.run import cluster_of, growth, open_store
    from isthmus.service.stacks import Stacks
    from isthmus.specs import stack as stacks
    from isthmus.specs.names import unknown

    known = stacks.names(root())
    for name in chosen:
        if name not in known:
            raise unknown("stack", name, known)
    if not known:
        raise InvalidSpec("there is no stack here", subject=str(root()), remedy="run it in a clone of the program")
    return Stacks(
        chosen or tuple(known),
        open_store(),
        _settings,
        cluster_of,
        lambda name, simulated: growth(name, simulated=simulated),
        check_hold,
    )


def _settings(stack: str) -> "StackSettings | None":
    from isthmus.cli import project

    try:
        return project.settings(stack)
    except IsthmusError:
        return None
