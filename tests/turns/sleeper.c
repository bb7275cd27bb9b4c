/*
 * A guest's first program: sleeps for ever other times, answers with the clock's readings in ns,
 * and stops the machine as the lab's agent does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define SLEEPS 400
#define PVPANIC 0x505

int main(void)
{
    static char text[SLEEPS * 24];
    struct termios raw;
    int length = 0;
    int line;

    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    line = open("/dev/ttyS1", O_RDWR | O_NOCTTY);
    tcgetattr(line, &raw);
    cfmakeraw(&raw);
    tcsetattr(line, TCSANOW, &raw);
    /* From here on it counts whether the processor is held up. */
    write(line, " ", 1);
    tcdrain(line);
    for (unsigned int i = 0, number = 1; i < SLEEPS; i++) {
        struct timespec t;

        number = number * 1103515245 + 12345;
        t = (struct timespec){.tv_nsec = 10000 + number / 65536 * 100};
        nanosleep(&t, NULL);
        clock_gettime(CLOCK_MONOTONIC, &t);
        length += sprintf(text + length, "%ld ", t.tv_sec * 1000000000 + t.tv_nsec);
    }
    text[length++] = '\n';
    for (int done = 0; done < length;)
        done += write(line, text + done, length - done);
    tcdrain(line);
    if (ioperm(PVPANIC, 1, 1) == 0)
        outb(1, PVPANIC);
    return 0;
}
