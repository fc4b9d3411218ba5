/* Starts a program, as shells do, and is stopped by Ctrl-Z while it does: the child that is to become that program stops. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    puts("it begins");
    fflush(stdout);
    if (vfork() == 0) {
        kill(getpid(), SIGTSTP);
        _exit(0);
    }
    puts("it has gone on");
    return 7;
}
