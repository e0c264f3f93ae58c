"""Holds listening sockets and runs a program with them, as a service manager does.

manager.py HOST:COUNT … -- PROGRAM …   HUP: once more; TERM: no more. Ends as the program last ended.
USR1 holds one of its data-path threads up, USR2 lets it go on.
"""

import ctypes
import os
import signal
import socket
import sys

SIGNALS = {signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2}
# ptrace(2); waitpid(2).
SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


def bound(spec):
    host, count = spec.split(":")
    port, sockets = 0, []
    for _ in range(int(count)):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind((host, port))
        one.listen(1024)
        port = one.getsockname()[1]
        sockets.append(one)
    return sockets


def start(sockets, program):
    pid = os.fork()
    if pid:
        return pid
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # Out of the way first, because a socket may have a number that another one is to get.
    for place, number in enumerate([os.dup2(one.fileno(), 100 + place) for place, one in enumerate(sockets)]):
        os.dup2(number, 3 + place)
        os.close(number)
    own = str(os.getpid())
    os.environ.update(LISTEN_FDS=str(len(sockets)), LISTEN_PID=own, LISTEN_FDNAMES=":".join("x" for _ in sockets))
    if "WATCHDOG_USEC" in os.environ:
        os.environ["WATCHDOG_PID"] = own
    os.execv("/usr/bin/setpriv", ["setpriv", "--pdeathsig", "KILL", "--", *program])


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def thread_of(pid, name):
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm") as comm:
            if comm.read().strip() == name:
                return int(thread)
    raise LookupError(name)


def hold_up(thread):
    ptrace(SEIZE, thread)
    ptrace(INTERRUPT, thread)
    os.waitpid(thread, WALL)


def main():
    at = sys.argv.index("--")
    sockets = [one for spec in sys.argv[1:at] for one in bound(spec)]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child, again = start(sockets, sys.argv[at + 1 :]), False
    while True:
        got = signal.sigwait(SIGNALS)
        if got in (signal.SIGTERM, signal.SIGHUP):
            again = got == signal.SIGHUP
            os.kill(child, signal.SIGTERM)
            continue
        if got == signal.SIGUSR1:
            hold_up(thread_of(child, "edge-0"))
            continue
        if got == signal.SIGUSR2:
            ptrace(DETACH, thread_of(child, "edge-0"))
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended and not again:
            sys.exit(os.waitstatus_to_exitcode(status))
        if ended:
            child, again = start(sockets, sys.argv[at + 1 :]), False


main()
