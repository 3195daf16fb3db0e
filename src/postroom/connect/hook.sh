#!/bin/sh
# Postroom: what clients run at their hooks: `sh hook CLIENT EVENT`, and `sh hook CLIENT wait` in the background.
# It passes on what the client says to `postroom connect run`, which it begins where nobody listens, and prints the
# answer. It imports nothing of Postroom. It ends 0 whatever happens; `wait` ends 2 with text for the model.

PYTHON=@PYTHON@

# In a worker, whose sidecar brings its mail; and in a run that nobody watches, unless it is asked for.
[ -z "$POSTROOM_API" ] || exit 0
case "$CLAUDE_CODE_ENTRYPOINT$CLAUDE_CODE_SESSION_ATTENDED" in
sdk-* | *0) [ -n "${POSTROOM_CONNECT}@HEADLESS@" ] && [ "$2" != wait ] || exit 0 ;;
esac

RUN=$PYTHON
[ -x "$RUN" ] || RUN=$(command -v python3) || exit 0
[ "$2" != mcp ] || exec "$RUN" -I -S @RELAY@ "${0%/*}" "$1" "${CLAUDE_PID:-$PPID}"

exec 3>&2 2>/dev/null
"$RUN" -I -S -c '
import os, sys, time
from _socket import socket, AF_UNIX
from fcntl import flock, LOCK_EX, LOCK_NB
python, folder, client, event = sys.argv[1:5]
waits, most = event == "wait", 4 << 20
pid = os.environ.get("CLAUDE_PID") or sys.argv[5]

def told():
    pieces, size = [], 0
    while piece := os.read(0, 65536):
        if size < most:
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)[:most]

def written(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]

def asked(body):
    link = socket(AF_UNIX)
    link.settimeout(2.0)
    link.connect("run.sock")
    head = f"wait {client} {pid}" if waits else f"hook {client} {event} {pid}"
    link.sendall(f"{head} {len(body)}\n".encode() + body)
    # A permission is asked for elsewhere for a minute.
    link.settimeout(None if waits else 70.0 if event == "PermissionRequest" else 2.0)
    answer = b""
    while piece := link.recv(65536):
        answer += piece
    code, end, text = answer.partition(b"\n")
    if not end:
        raise ConnectionError
    if text:
        try:
            written(3 if code == b"2" else 1, text)
        except OSError:
            raise SystemExit
        link.sendall(b".")
    return 75 if code == b"2" and waits else 0

def begin():
    """Begin `run`, or find that another hook does; whether somebody will listen."""
    if not os.access(python, os.X_OK):
        return False
    lock = os.open("run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(lock)
        return True
    try:  # one that cannot start is not begun by each hook
        early = 0 <= time.time() - os.stat("run.begun").st_mtime < 30
    except OSError:
        early = False
    if not early:
        os.close(os.open("run.begun", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    if early or os.fork():
        os.close(lock)
        return not early
    os.setsid()
    os.set_inheritable(lock, True)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(3)
    kept = ("HOME", "PATH", "USER", "LOGNAME", "TMPDIR", "LANG", "CODEX_HOME", "CLAUDE_CONFIG_DIR")
    env = {"POSTROOM_CONNECT_LOCK": str(lock)}
    env |= {k: v for k, v in os.environ.items() if k in kept or k.startswith(("XDG_", "LC_", "POSTROOM_"))}
    os.execve(python, [python, "-m", "postroom.connect"], env)

code = 0
try:
    os.chdir(folder)
    if event == "begin":
        begin()
        raise SystemExit
    body, pause, end = told(), 0.2, time.monotonic() + 2.0
    while True:
        soon = False
        try:
            code = asked(body)
            break
        except (ConnectionRefusedError, FileNotFoundError):
            soon = begin()
        except OSError:
            pass
        if waits:
            time.sleep(pause)
            pause = min(2 * pause, 30)
            os.kill(int(pid), 0)  # ends here when the client has
        elif soon and time.monotonic() < end:
            time.sleep(0.05)
        else:
            break
except BaseException:
    pass
os._exit(code)
' "$PYTHON" "${0%/*}" "$1" "$2" "$PPID"
[ $? = 75 ] && exit 2
exit 0
