"""A source that builds in a moment, with a configure script and a Makefile of a few lines."""

import tarfile
from pathlib import Path

TREE = {
    "configure": """\
#!/bin/sh
# PostgreSQL
PACKAGE_VERSION='15.99'
set -e
source=$(dirname "$0")
mkdir -p src/include
cat >Makefile <<END
world-bin:
\tsh $source/build.sh
install-world-bin:
\tsh $source/install.sh "\\$(DESTDIR)"
END
touch src/include/stamp-ext-h
""",
    "build.sh": """\
set -e
here=$(dirname "$0")
$CC -c -o server.o -O1 "$here/server.c"
$CC -o server server.o
# What is to be done comes here.
""",
    "install.sh": """\
set -e
target=$1/usr/local/pgsql
mkdir -p "$target/bin" "$target/lib"
cp server "$target/bin/postgres"
echo library >"$target/lib/libpq.so.5.15"
ln -s libpq.so.5.15 "$target/lib/libpq.so.5"
# What is to be installed besides comes here.
""",
    "server.c": '#include <stdio.h>\nint main(void) { puts("a server"); return 0; }\n',
}

BUILD, INSTALL = "build.sh", "install.sh"


def adding(file: str, lines: str) -> str:
    """A patch that appends lines to a script of the tree."""
    old = TREE[file].splitlines()
    new = lines.splitlines()
    return (
        f"--- a/{file}\n+++ b/{file}\n@@ -{len(old)} +{len(old)},{len(new) + 1} @@\n"
        f" {old[-1]}\n" + "".join(f"+{line}\n" for line in new)
    )


def packed(folder: Path) -> Path:
    """Make the source's tarball in the folder, and return it."""
    file = folder / "small-15.99.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name, text in TREE.items():
            path = folder / name
            path.write_text(text)
            path.chmod(0o755 if name == "configure" else 0o644)
            archive.add(path, f"small-15.99/{name}")
            path.unlink()
    return file
