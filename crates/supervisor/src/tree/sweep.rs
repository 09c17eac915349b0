//! Finds everything that descends from us: we are its subreaper, so no daemon gets away, only its parentage gets lost.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// What `/proc` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pid: Pid,
    parent: i32,
    group: i32,
    pub(super) session: i32,
    /// Its start in clock ticks: with the pid, who it is.
    pub(super) start: u64,
    dead: bool,
}

impl Seen {
    fn parse(text: &[u8]) -> Option<Self> {
        // The name in parentheses may hold anything, parentheses too.
        let open = text.iter().position(|b| *b == b'(')?;
        let close = text.iter().rposition(|b| *b == b')')?;
        let pid = std::str::from_utf8(text.get(..open)?)
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // Both are -1 for a moment while a process is taken away, and 0 if their leader is outside our pid namespace.
        let group = fields.next()?.parse().ok().map(|group: i32| group.max(0))?;
        let session = fields
            .next()?
            .parse()
            .ok()
            .map(|session: i32| session.max(0))?;
        let start = fields.nth(15)?.parse().ok()?;
        Some(Self {
            pid: Pid::from_raw(pid)?,
            parent,
            group,
            session,
            start,
            dead: matches!(state, "Z" | "X"),
        })
    }

    pub(super) fn read(pid: Pid) -> Option<Self> {
        use rustix::fs::{Mode, OFlags, open};
        let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // One read holds all of it: it is at most fifty numbers and a short name. This is asked at each end of a process.
        let mut text = [0; 2048];
        let length = rustix::io::read(&file, &mut text).ok()?;
        Self::parse(&text[..length])
    }

    /// Returns its process group if its number cannot be given away: a member is our child, and only we reap it.
    pub(super) fn pinned_group(&self) -> Option<Pid> {
        let ours = self.parent == getpid().as_raw_nonzero().get();
        let own_group = Self::read(getpid())?.group;
        Pid::from_raw(self.group).filter(|_| ours && self.group != own_group)
    }

    /// Returns whether what has the number now is the same process.
    ///
    /// * The start is not enough: it counts in hundredths of a second, and two that began in one of them may have one number.
    ///   A stranger has neither its parent nor its session; one that lost its parent has us.
    fn is(&self, now: &Self) -> bool {
        let near = now.parent == self.parent
            || now.session == self.session
            || now.parent == getpid().as_raw_nonzero().get();
        now.start == self.start && near
    }

    /// Sends a signal to exactly this process; gone already is success.
    pub(super) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        let handle = match pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(e) => return Err(e),
        };
        // The number may have been given away before the handle was there.
        if Self::read(self.pid).is_none_or(|now| !self.is(&now)) {
            return Ok(());
        }
        match pidfd_send_signal(handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => other,
        }
    }
}

/// What is known to belong to one process: who was seen in its tree, and in which sessions.
#[derive(Debug, Default)]
pub(super) struct Known {
    seen: HashSet<(Pid, u64)>,
    sessions: HashSet<i32>,
}

impl Known {
    pub(super) fn of(leader: Pid) -> Self {
        Self {
            seen: HashSet::new(),
            sessions: HashSet::from([leader.as_raw_nonzero().get()]),
        }
    }

    pub(super) fn holds(&self, seen: &Seen) -> bool {
        self.seen.contains(&(seen.pid, seen.start)) || self.sessions.contains(&seen.session)
    }

    /// Replaces what is known by what lives, so that a number that is used again means nothing.
    pub(super) fn replace(&mut self, alive: &[Seen], leader: Option<Pid>, own_session: i32) {
        self.seen = alive.iter().map(|seen| (seen.pid, seen.start)).collect();
        self.sessions = alive
            .iter()
            .map(|seen| seen.session)
            .chain(leader.map(|pid| pid.as_raw_nonzero().get()))
            .filter(|session| *session != own_session && *session != 0)
            .collect();
    }
}

/// Returns our session, 0 if its leader is outside our pid namespace.
///
/// * Not by `getsid`: rustix takes its answer for a pid, which 0 is not (a program that `docker exec` starts is such a case).
pub(super) fn own_session() -> i32 {
    Seen::read(getpid()).map_or(0, |own| own.session)
}

/// Returns our own children, living or not.
pub(super) fn children() -> Vec<Pid> {
    let own = getpid();
    // A kernel without that file: everybody is asked for his parent.
    children_of(own).unwrap_or_else(|| {
        everybody()
            .into_iter()
            .filter(|seen| seen.parent == own.as_raw_nonzero().get())
            .map(|seen| seen.pid)
            .collect()
    })
}

/// Returns the children of a process, living or not; none where the kernel does not tell, or the process is gone.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    for task in tasks.flatten() {
        let text = std::fs::read_to_string(task.path().join("children"));
        let text = match text {
            Ok(text) => text,
            // A thread that has ended meanwhile handed its children to another.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => continue,
            Err(_) if !task.path().exists() => continue,
            Err(_) => return None,
        };
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .filter_map(Pid::from_raw),
        );
    }
    Some(found)
}

fn everybody() -> Vec<Seen> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter_map(Seen::read)
        .collect()
}

/// Everybody who descends from us, found from parent to child: what else runs on the machine costs nothing.
///
/// * A list of children that is read while one of them ends can lack another, so each is read until it is the same twice;
///   one that never is, because its process forks without end, is looked at again by whoever has to outrun it.
/// * None where the kernel does not tell children.
fn descendants() -> Option<Vec<Seen>> {
    const LOOKS: usize = 4;
    let own = getpid();
    let own_number = own.as_raw_nonzero().get();
    let mut found: HashMap<Pid, Seen> = HashMap::new();
    children_of(own)?;
    // Whoever loses its parent while we look becomes our child, so we ourselves are looked at last as well as first.
    for _ in 0..LOOKS {
        let before = found.len();
        let mut todo = vec![own];
        while let Some(parent) = todo.pop() {
            let mut last: Option<Vec<Pid>> = None;
            for _ in 0..LOOKS {
                let Some(children) = children_of(parent) else {
                    break;
                };
                for pid in &children {
                    if found.contains_key(pid) {
                        continue;
                    }
                    // One that lost its parent meanwhile is ours; anything else has only got the number.
                    let parents = [parent.as_raw_nonzero().get(), own_number];
                    if let Some(seen) =
                        Seen::read(*pid).filter(|seen| parents.contains(&seen.parent))
                    {
                        found.insert(*pid, seen);
                        todo.push(*pid);
                    }
                }
                if last.as_ref() == Some(&children) {
                    break;
                }
                last = Some(children);
            }
        }
        if found.len() == before {
            break;
        }
    }
    Some(found.into_values().collect())
}

/// Our descendants, each below the child of ours that it descends from.
///
/// * Processes that are dead and only wait to be reaped are left out.
/// * Children in our own session are none of the processes that we started, and are left out with what is below them.
pub(super) fn families() -> Vec<(Seen, Vec<Seen>)> {
    let own = getpid().as_raw_nonzero().get();
    let mut below: HashMap<i32, Vec<Seen>> = HashMap::new();
    for seen in descendants().unwrap_or_else(everybody) {
        below.entry(seen.parent).or_default().push(seen);
    }
    let Some(heads) = below.remove(&own) else {
        return Vec::new();
    };
    let own_session = own_session();
    heads
        .into_iter()
        .filter(|head| head.session != own_session)
        .map(|head| {
            let mut family = Vec::new();
            let mut todo = vec![head];
            while let Some(seen) = todo.pop() {
                todo.extend(
                    below
                        .remove(&seen.pid.as_raw_nonzero().get())
                        .unwrap_or_default(),
                );
                if !seen.dead {
                    family.push(seen);
                }
            }
            (head, family)
        })
        .collect()
}

/// Reaps those of our children that are dead, were adopted, and are nobody's leader; tells whether there were leaders only.
pub(super) fn reap(is_leader: &dyn Fn(Pid) -> bool) -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    // Asked for only where somebody is dead who is not a leader, which is seldom.
    let own_session = LazyCell::new(own_session);
    let mut only_leaders = true;
    for pid in children() {
        if is_leader(pid) {
            continue;
        }
        only_leaders = false;
        if Seen::read(pid).is_none_or(|seen| !seen.dead || seen.session == *own_session) {
            continue;
        }
        let _taken = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
    only_leaders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse() {
        let line = b"42 (a) Z (b) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8735 100 1";
        let seen = Seen::parse(line).unwrap();
        assert_eq!(
            (
                seen.pid.as_raw_nonzero().get(),
                seen.parent,
                seen.session,
                seen.start,
                seen.dead
            ),
            (42, 7, 41, 8735, false)
        );
    }

    /// How often a number is given away.
    const ROUNDS: usize = 1000;

    /// How many strangers live at once.
    const BATCH: usize = 100;

    /// Starts a program in a pid namespace of its own, or returns what the one inside said.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test starts itself again, as the test runner would"
    )]
    fn in_own_namespace(name: &str) -> Option<std::process::Output> {
        const INSIDE: &str = "inside-of-a-pid-namespace";
        if std::env::args().any(|argument| argument == INSIDE) {
            return None;
        }
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.arg(std::env::current_exe().unwrap());
        command.args([name, INSIDE, "--exact", "--test-threads=1", "--nocapture"]);
        Some(command.output().unwrap())
    }

    /// Demands that none of these processes has ended, nor ends within moments.
    ///
    /// A signal that was sent is heard within moments; that none was is only known by waiting for it.
    fn unharmed(strangers: &[(Pid, std::os::fd::OwnedFd)]) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut ended: Vec<_> = strangers
            .iter()
            .map(|(_, handle)| PollFd::new(handle, PollFlags::IN))
            .collect();
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let ended = poll(&mut ended, Some(&moment)).unwrap();
        assert_eq!(ended, 0, "strangers got the signal");
    }

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "strangers, and those whose numbers they get"
    )]
    #[expect(clippy::print_stdout, reason = "how hard it was made is worth knowing")]
    fn f137_g16_a_number_that_was_given_away_means_nobody() {
        use std::io::{BufRead as _, Write as _};
        let name = concat!(
            module_path!(),
            "::f137_g16_a_number_that_was_given_away_means_nobody"
        );
        if let Some(output) = in_own_namespace(name.split_once("::").unwrap().1) {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        }
        // Another's child: it starts one whenever it is told a number, and tells which number that one got.
        let script = "while read -r last; do echo $last >/proc/sys/kernel/ns_last_pid; sleep 1000 & echo $!; done";
        let mut other = std::process::Command::new("setsid")
            .args(["sh", "-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut tell = other.stdin.take().unwrap();
        let mut told = std::io::BufReader::new(other.stdout.take().unwrap()).lines();
        let (mut reused, mut same_start, mut strangers) = (0, 0, Vec::new());
        while reused < ROUNDS {
            let mut own = std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&own);
            let seen = Seen::read(pid).unwrap();
            own.kill().unwrap();
            own.wait().unwrap();
            writeln!(tell, "{}", pid.as_raw_nonzero().get() - 1).unwrap();
            let stranger: i32 = told.next().unwrap().unwrap().parse().unwrap();
            let stranger = Pid::from_raw(stranger).unwrap();
            if stranger == pid {
                reused += 1;
                same_start += usize::from(Seen::read(stranger).unwrap().start == seen.start);
                seen.signal(Signal::KILL).unwrap();
            }
            strangers.push((stranger, pidfd_open(stranger, PidfdFlags::empty()).unwrap()));
            if strangers.len() == BATCH || reused == ROUNDS {
                unharmed(&strangers);
                // They are known by what they are now, and so end.
                for (pid, _) in strangers.drain(..) {
                    Seen::read(pid).unwrap().signal(Signal::KILL).unwrap();
                }
            }
        }
        println!("{same_start} of {reused} had the same start as the one before");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn what_lives_replaces_what_was_known() {
        let seen = |pid, session, start| Seen {
            pid: Pid::from_raw(pid).unwrap(),
            parent: 1,
            group: session,
            session,
            start,
            dead: false,
        };
        let mut known = Known::of(Pid::from_raw(10).unwrap());
        assert!(known.holds(&seen(11, 10, 1)));
        known.replace(&[seen(12, 12, 5)], None, 3);
        assert!(known.holds(&seen(12, 99, 5)) && known.holds(&seen(13, 12, 6)));
        assert!(!known.holds(&seen(11, 10, 1)) && !known.holds(&seen(12, 99, 6)));
    }
}
