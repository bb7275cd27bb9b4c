"""psql on a cluster that lasts as long as the session: a variant's server to look at."""

import signal
import sys
from pathlib import Path

import click

from wallab.command import outcome
from wallab.machine import ledger, process, serversandbox
from wallab.machine.ledger import Ledger
from wallab.progress import say
from wallab.record import series
from wallab.servers import builder, buildsystem, source
from wallab.servers.cluster import Cluster
from wallab.servers.patches import patches_of

EPILOG = """\b
Examples:
  psql                                  on the variant stock
  psql both -c 'SHOW wal_sync_method'   whatever follows the variant goes to psql
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("variant", default="stock")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(variant: str, arguments: tuple[str, ...]) -> int:
    """Start a server of VARIANT on an empty cluster, and psql on it with the ARGUMENTS."""
    tree = source.resolve(source.default("18"))
    catalog = series.read()
    wanted = {variant: patches_of(catalog, variant, tree)}
    (server,) = builder.Builder(tree, buildsystem.choose("auto", tree)).build(wanted)
    for line in ledger.clear_dead():
        say(f"left behind by an earlier run: {line}")
    confinement = serversandbox.confinement(guest=server.guest)
    owned = Ledger.open()
    try:
        home = owned.folder / "cluster"
        home.mkdir()
        process.own(home)
        cluster = Cluster(home / "data", home / "wal", owned, confinement)
        cluster.create(server.path)
        cluster.start(server.path, {})
        try:
            psql: list[str | Path] = [server.path / "bin" / "psql", "-h", cluster.socket]
            # Ctrl-C is psql's own.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            environment = {"PGDATABASE": "postgres", "PGUSER": "postgres"}
            # The variant's own psql is as much a stranger's as its server.
            places = cluster.clients_places(server.path)
            return confinement.foreground([*psql, *arguments], places, environment)
        finally:
            cluster.stop()
    finally:
        owned.close()


if __name__ == "__main__":
    sys.exit(outcome.run(command, "psql"))
