#!/usr/bin/env python3
"""An executor of host processes: `local.py DIRECTORY`. One request a call; see the README of groundcrew-executor-exec."""
import fcntl, json, os, shutil, signal, subprocess, sys, time

ROOT = os.path.realpath(sys.argv[1])
INSTANCES, LOGS = os.path.join(ROOT, "instances"), os.path.join(ROOT, "logs")


class Failure(Exception):
    def __init__(self, kind, message):
        self.kind, self.message = kind, message


def say(**what):
    print(json.dumps(what), flush=True)


def place(id):
    """Where an instance is, or what is left of one that is being removed; none if neither is."""
    for name in (id, ".trash-" + id):
        if os.path.isdir(os.path.join(INSTANCES, name)):
            return os.path.join(INSTANCES, name)


def identity(directory):
    found = os.stat(directory)
    return f"{found.st_dev}:{found.st_ino}"


def owner(directory):
    try:
        with open(os.path.join(directory, "start.json")) as file:
            return json.load(file)["install"]
    except FileNotFoundError:
        return None  # Cut short while it was made or removed.


def hold():
    """Keeps all others out, then waits for the word to begin: without one, whoever asked is gone."""
    os.makedirs(INSTANCES, mode=0o700, exist_ok=True)
    lock = open(os.path.join(INSTANCES, ".lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    say(holding=True)
    if not sys.stdin.readline():
        sys.exit(1)
    return lock


def describe(ask):
    can = dict(isolation="process", host_paths=True, inherits_environment=True, terminal=True, detached=True)
    return dict(protocol=1, capabilities=can, private_directory=os.path.join(INSTANCES, "{instance}", "private"))


def check(ask):
    for option in ask["spec"]["options"]:
        raise Failure("invalid_input", f"there is no option {option}")


def probe(ask):
    return dict(facts=[["python", sys.version.split()[0]], ["instances", INSTANCES]], warnings=[])


def create(ask):
    check(ask)
    id, start, lock = ask["instance"], ask["start"], hold()
    directory = os.path.join(INSTANCES, id)
    if place(id):
        raise Failure("already_exists", "an instance of this name exists")
    os.mkdir(directory, 0o700)
    start["socket"], start["logs"] = os.path.join(directory, "control.sock"), os.path.join(LOGS, id)
    path = os.path.join(directory, "start.json")
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(start, file)
    os.rename(path + ".new", path)
    say(progress="starting the supervisor")
    with open(os.path.join(directory, "supervisor.log"), "w") as log:
        supervisor = subprocess.Popen(["groundcrew-supervisor", "serve", path], executable=ask["supervisor"], env={},
                                      cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    word = json.loads(supervisor.stdout.readline() or "null")
    if not word or "ready" not in word:
        raise Failure("unavailable", f"the supervisor does not come up: {word}")
    return dict(identity=identity(directory))


def connect(ask):
    id, logs = ask["instance"], os.path.join(LOGS, ask["instance"])
    directory = place(id)
    if directory and owner(directory) not in (None, ask["install"]):
        raise Failure("conflict", "what has the name of the instance is another installation's")
    answer = dict(logs=logs) if os.path.isdir(logs) else {}
    if directory:
        answer["command"] = ["groundcrew-supervisor", "bridge", os.path.join(directory, "control.sock")]
        answer["program"], answer["directory"] = ask["supervisor"], directory
    if not answer:
        raise Failure("not_found", "no such instance")
    return answer


def end(directory):
    """Ends the supervisor, and with it all that it started; the lock on its start file is its sign of life."""
    path = os.path.join(directory, "start.json")
    if not os.path.exists(path):
        return
    file, began, sent = open(path, "r+"), time.monotonic(), []
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        waited = time.monotonic() - began
        wanted = signal.SIGKILL if waited > 25 else signal.SIGTERM
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as words:
                    if words.read().split(b"\0")[1:3] == [b"serve", path.encode()] and (pid, wanted) not in sent:
                        sent.append((pid, wanted))
                        os.kill(int(pid), wanted)
            except (FileNotFoundError, ProcessLookupError):
                pass
        if waited > 35:
            raise Failure("unavailable", "the supervisor cannot be ended; the instance stays")
        time.sleep(0.01)


def delete(ask):
    lock, directory = hold(), place(ask["instance"])
    if not directory:
        return dict(undone="already_gone")
    if owner(directory) not in (None, ask["install"]):
        return dict(undone="not_ours", why="it is another installation's")
    if ask.get("identity", identity(directory)) != identity(directory):
        return dict(undone="not_ours", why=f"it is {identity(directory)}")
    end(directory)
    trash = os.path.join(INSTANCES, ".trash-" + ask["instance"])
    os.rename(directory, trash)
    shutil.rmtree(trash)
    return dict(undone="removed")


def state(ask):
    directory = place(ask["instance"])
    return dict(presence="present", identity=identity(directory)) if directory else dict(presence="absent")


def list_(ask):
    names = [name.removeprefix(".trash-") for name in os.listdir(INSTANCES)] if os.path.isdir(INSTANCES) else []
    there = {name for name in names if name[0] != "."}
    return sorted(id for id in there if place(id) and owner(place(id)) in (None, ask["install"]))


VERBS = dict(describe=describe, check=check, probe=probe, create=create, connect=connect, delete=delete, state=state, list=list_)
try:
    ask = json.loads(sys.stdin.readline())
    say(ok=VERBS[ask["verb"]](ask))
except Failure as failure:
    say(error=dict(kind=failure.kind, message=failure.message))
