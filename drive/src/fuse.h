/* Fuse: the drive as one file, DIR/disk, for a loop device to sit on. */
#ifndef DRIVE_FUSE_H
#define DRIVE_FUSE_H

#include "drive.h"

/* Mount at directory; prints why and exits if that cannot be done. */
void fuse_mount(struct drive *d, const char *directory);

/* Serve requests in this thread until fuse_quit or an unmount from outside. */
int fuse_serve(void);

/* From any thread; fuse_serve returns once it has been woken by a signal. */
void fuse_quit(void);

void fuse_unmount(void);

#endif
