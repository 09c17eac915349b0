//! Trees of processes: everything that a started process brought into the world, found, signalled and ended.
//!
//! Two ways, and both are always in force; the second alone where the first is missing:
//!
//! | way | what it gives |
//! |---|---|
//! | cgroup v2 leaf | exact: born in it, ended at once with `cgroup.kill`, proof by `populated 0` |
//! | subreaper | every descendant stays below us; a daemon belongs to the process in whose tree or session it was last seen |
//!
//! Without a cgroup, a daemon that cut every tie (new session, its parents gone) before anybody looked belongs to nobody: it
//! is ended with the last process that lives, or by ending everything. A pid is never signalled unless it descends from us.
//!
//! Neither way gets hold of what a privileged process moved below another supervisor.

mod cgroup;
mod limits;
mod memory;
mod pause;
mod seat;
mod sweep;

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    fmt, io,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    time::Duration,
};

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Limits,
    id::{InstanceId, ProcessId},
};
use rustix::process::{Pid, Signal};

use cgroup::{Group, Leaf};
pub(crate) use limits::each_process;
pub(crate) use pause::Pause;
pub(crate) use seat::Seat;
use sweep::{Known, Seen};

/// Whether processes get a cgroup of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CgroupPolicy {
    /// Where the machine and the user have one.
    #[default]
    Automatic,
    /// Where there is one, and processes move into it instead of being born there, as on a kernel that cannot do that.
    Entered,
    /// Never; the subreaper alone.
    Never,
}

/// Who belongs to a tree, or to nobody.
#[derive(Debug, Default)]
struct Share {
    tree: Option<Rc<Tree>>,
    /// Who is in its leaf.
    inside: HashSet<Pid>,
    /// Those that are children of ours, dead ones too.
    heads: HashSet<Pid>,
    /// All that live.
    all: Vec<Seen>,
}

/// All trees of one instance.
#[derive(Debug)]
pub(crate) struct Grove {
    group: RefCell<Option<Group>>,
    births: bool,
    /// Whether its processes must be in it: limits hold there alone.
    needed: bool,
    trees: RefCell<Vec<Weak<Tree>>>,
}

/// The tree of one process.
#[derive(Debug)]
pub(crate) struct Tree {
    grove: Rc<Grove>,
    leaf: Option<Leaf>,
    leader: Pid,
    reaped: Cell<bool>,
    /// Once nothing of it was left; then it owns nothing any more, whoever gets its numbers.
    felled: Cell<bool>,
    known: RefCell<Known>,
}

/// Processes that would not end.
#[derive(Debug)]
pub(crate) struct Survivors(Vec<(Pid, Option<rustix::io::Errno>)>);

impl fmt::Display for Survivors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (pid, refused)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match refused {
                Some(e) => write!(f, "{} ({e})", pid.as_raw_nonzero())?,
                None => write!(f, "{} (does not react)", pid.as_raw_nonzero())?,
            }
        }
        Ok(())
    }
}

impl Survivors {
    pub(crate) fn error(&self) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            "some processes could not be ended and stay owned; stop again",
        )
        .with("survivors", self)
    }
}

impl Share {
    fn of(tree: Rc<Tree>) -> Self {
        let inside = tree.leaf.as_ref().map(Leaf::pids).unwrap_or_default();
        Self {
            inside: inside.into_iter().collect(),
            tree: Some(tree),
            ..Self::default()
        }
    }

    /// Returns whether a child of ours, which `leads` a tree or not, belongs here.
    fn owns(&self, head: &Seen, leads: bool) -> bool {
        let Some(tree) = &self.tree else {
            return false;
        };
        if leads {
            return tree.leader == head.pid && !tree.reaped.get();
        }
        self.inside.contains(&head.pid) || tree.known.borrow().holds(head)
    }

    /// Adds who is in the leaf and was not seen below us, and remembers all.
    fn complete(&mut self, own_session: i32) {
        let had: HashSet<Pid> = self.all.iter().map(|seen| seen.pid).collect();
        self.all.extend(
            self.inside
                .difference(&had)
                .filter_map(|pid| Seen::read(*pid)),
        );
        if let Some(tree) = &self.tree {
            let leader = (!tree.reaped.get()).then_some(tree.leader);
            tree.known
                .borrow_mut()
                .replace(&self.all, leader, own_session);
        }
    }

    /// Kills all that live, whole process groups first: no fork slips through there.
    fn kill(&self, leader: Option<Pid>) -> Vec<(Pid, Option<rustix::io::Errno>)> {
        let groups: HashSet<Pid> = self
            .all
            .iter()
            .filter_map(Seen::pinned_group)
            .chain(leader)
            .collect();
        for group in groups {
            // Those that refuse are named below.
            let _refused = rustix::process::kill_process_group(group, Signal::KILL);
        }
        signal_all(&self.all, Signal::KILL)
    }
}

impl Grove {
    /// Makes the calling process the subreaper of all its descendants, and finds a cgroup.
    ///
    /// # Errors
    ///
    /// Those of the system; `Unsupported` for limits that need a cgroup or a controller which is missing.
    pub(crate) fn plant(
        instance: &InstanceId,
        policy: CgroupPolicy,
        limits: &Limits,
    ) -> Result<Rc<Self>, Error> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| Error::io("failed to become the subreaper", e.into()))?;
        let group = match policy {
            CgroupPolicy::Automatic | CgroupPolicy::Entered => Group::make(instance),
            CgroupPolicy::Never => None,
        };
        limits::apply(group.as_ref().map(Group::directory), limits).inspect_err(|_| {
            if let Some(group) = &group {
                group.remove();
            }
        })?;
        Ok(Rc::new(Self {
            group: RefCell::new(group),
            births: policy == CgroupPolicy::Automatic,
            needed: limits.memory.is_some()
                || limits.milli_cpus.is_some()
                || limits.processes.is_some(),
            trees: RefCell::default(),
        }))
    }

    /// Returns the cgroup of the instance.
    pub(crate) fn cgroup(&self) -> Option<PathBuf> {
        self.group
            .borrow()
            .as_ref()
            .map(|group| group.directory().to_owned())
    }

    /// Makes a leaf for a process that is about to start; `None` where there is no cgroup.
    pub(crate) fn seat(&self, id: &ProcessId) -> Option<Seat> {
        let (leaf, directory) = self.group.borrow().as_ref()?.leaf(id).ok()?;
        Some(Seat::new(leaf, directory, self.births))
    }

    /// Returns whether processes may be started outside of the cgroup.
    pub(crate) fn may_do_without(&self) -> bool {
        !self.needed
    }

    /// Gives the cgroup up: the first process could not enter it.
    pub(crate) fn give_up_cgroup(&self) {
        if let Some(group) = self.group.take() {
            group.remove();
        }
    }

    /// Takes on a process that was just started, before anything else runs.
    pub(crate) fn tree(self: &Rc<Self>, leader: Pid, seat: Option<Seat>) -> Rc<Tree> {
        let tree = Rc::new(Tree {
            grove: Rc::clone(self),
            leaf: seat.and_then(Seat::taken),
            leader,
            reaped: Cell::new(false),
            felled: Cell::new(false),
            known: RefCell::new(Known::of(leader)),
        });
        let mut trees = self.trees.borrow_mut();
        // What has ended is known to whoever asks for it, and is looked through by nobody.
        trees.retain(|tree| tree.upgrade().is_some_and(|tree| !tree.felled.get()));
        trees.push(Rc::downgrade(&tree));
        tree
    }

    fn standing(&self) -> Vec<Rc<Tree>> {
        let trees = self.trees.borrow();
        trees
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|tree| !tree.felled.get())
            .collect()
    }

    fn is_leader(&self, pid: Pid) -> bool {
        let trees = self.trees.borrow();
        trees
            .iter()
            .filter_map(Weak::upgrade)
            .any(|tree| tree.leader == pid && !tree.felled.get() && !tree.reaped.get())
    }

    /// Reaps adopted orphans; tells whether we had no child but leaders.
    pub(crate) fn reap(&self) -> bool {
        sweep::reap(&|pid| self.is_leader(pid))
    }

    fn only_leaders(&self) -> bool {
        sweep::children().iter().all(|pid| self.is_leader(*pid))
    }

    /// Looks at every descendant of ours and shares them out; the last share is who belongs to nobody.
    ///
    /// * A tree that forks can slip through a look at `/proc`; only our own list of children proves that nothing is there.
    fn share_out(&self) -> Vec<Share> {
        let mut shares: Vec<Share> = self.standing().into_iter().map(Share::of).collect();
        let mut strays = Share::default();
        for (head, family) in sweep::families() {
            let leads = self.is_leader(head.pid);
            let owner = shares.iter().position(|share| share.owns(&head, leads));
            // With one tree alone, there is no doubt whose it is.
            let only = (shares.len() == 1).then_some(0);
            let share = match owner.or(only) {
                Some(index) => &mut shares[index],
                None => &mut strays,
            };
            share.heads.insert(head.pid);
            share.all.extend(family);
        }
        let own_session = sweep::own_session();
        for share in &mut shares {
            share.complete(own_session);
        }
        shares.push(strays);
        shares
    }

    /// Kills whatever still descends from us and belongs to nobody, then removes the cgroup.
    #[expect(clippy::future_not_send, reason = "the supervisor has one thread")]
    pub(crate) async fn clear(&self, patience: Duration) -> Result<(), Survivors> {
        let mut pause = Pause::until(patience);
        loop {
            self.reap();
            if self.only_leaders() {
                break;
            }
            let strays = self.share_out().pop().unwrap_or_default();
            let refused = strays.kill(None);
            if !pause.next().await {
                return Err(Survivors(refused));
            }
        }
        if self.standing().is_empty()
            && let Some(group) = self.group.borrow().as_ref()
        {
            group.remove();
        }
        Ok(())
    }
}

fn signal_all(all: &[Seen], signal: Signal) -> Vec<(Pid, Option<rustix::io::Errno>)> {
    all.iter()
        .map(|seen| (seen.pid, seen.signal(signal).err()))
        .collect()
}

impl Tree {
    /// Tells that the leader was reaped, so its number means nothing any more.
    pub(crate) fn leader_reaped(&self) {
        self.reaped.set(true);
    }

    /// Returns who belongs to it, and our children that certainly do not.
    fn members(&self) -> (Share, HashSet<Pid>) {
        let mut mine = Share::default();
        let mut others = HashSet::new();
        for share in self.grove.share_out() {
            match &share.tree {
                Some(tree) if std::ptr::eq(Rc::as_ptr(tree), self) => mine = share,
                _ => others.extend(share.heads),
            }
        }
        (mine, others)
    }

    /// Sends a signal to every process of the tree; gone already is success.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let refused = signal_all(&self.members().0.all, signal)
            .into_iter()
            .filter(|(_, refused)| refused.is_some())
            .collect::<Vec<_>>();
        if refused.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::PermissionDenied,
            "some processes could not be signalled",
        )
        .with("processes", Survivors(refused)))
    }

    /// Returns whether nothing of the tree lives any more.
    pub(crate) fn is_empty(&self) -> bool {
        if self.felled.get() {
            return true;
        }
        // What cannot be told is not empty.
        if !self.reaped.get()
            || self
                .leaf
                .as_ref()
                .is_some_and(|leaf| leaf.populated().unwrap_or(true))
        {
            return false;
        }
        if self.grove.reap() || self.nothing_below() {
            self.felled.set(true);
            if let Some(leaf) = &self.leaf {
                leaf.remove();
            }
            return true;
        }
        false
    }

    /// Returns whether no child of ours, dead or alive, can belong to it.
    fn nothing_below(&self) -> bool {
        if self.grove.only_leaders() {
            return true;
        }
        let (_, others) = self.members();
        sweep::children().iter().all(|pid| others.contains(pid))
    }

    /// Returns how often the kernel ended something for want of memory where it lives; none where nobody counts.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        memory::kills(self.leaf.as_ref().map(Leaf::directory))
    }

    /// Kills everything in the tree that lives now; those born meanwhile outside a cgroup need another call.
    pub(crate) fn kill(&self) -> Survivors {
        if let Some(leaf) = &self.leaf
            && leaf.populated().unwrap_or(true)
        {
            leaf.kill();
        }
        let leader = (!self.reaped.get()).then_some(self.leader);
        Survivors(self.members().0.kill(leader))
    }
}

/// Ends what a supervisor that was killed left behind in its cgroup, and removes the cgroup.
///
/// * The cgroup carries the instance's id in its name, which nobody else uses; without that, it is refused.
/// * Gone already is success.
///
/// # Errors
///
/// `InvalidInput` for a cgroup that is not this instance's; `Unavailable`, naming them, when processes do not end.
pub async fn end_remains(
    cgroup: &Path,
    instance: &InstanceId,
    patience: Duration,
) -> Result<(), Error> {
    if cgroup.file_name().and_then(|name| name.to_str()) != Some(&format!("groundcrew-{instance}"))
    {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "the cgroup is not one of this instance",
        )
        .with("cgroup", cgroup.display())
        .with("instance", instance));
    }
    let group = Group::at(cgroup.to_owned());
    let whole = group.whole();
    let failed =
        |e: io::Error| Error::io("failed to read the cgroup", e).with("cgroup", cgroup.display());
    let mut pause = Pause::until(patience);
    while whole.populated().map_err(failed)? {
        let all: Vec<Seen> = if whole.kill() {
            Vec::new()
        } else {
            whole.pids().into_iter().filter_map(Seen::read).collect()
        };
        let _killed = signal_all(&all, Signal::KILL);
        if !pause.next().await {
            return Err(
                Survivors(whole.pids().into_iter().map(|pid| (pid, None)).collect()).error(),
            );
        }
    }
    group.remove();
    Ok(())
}

/// Finds out whether instances that this process starts can be held to limits; touches nothing.
///
/// # Errors
///
/// `InvalidInput` for a limit under which nothing lives; `Unsupported`, naming what this machine or this user lacks.
pub fn check_limits(limits: &Limits) -> Result<(), Error> {
    limits::check(Group::own().as_deref(), limits)
}

/// Returns where the cgroup of an instance would be made, to be written down before it is; none where there is no hierarchy.
pub fn place(instance: &InstanceId) -> Option<PathBuf> {
    Group::place(instance)
}

/// Finds where the cgroups of instances that this process starts are made; none where the subreaper must do alone.
///
/// It makes one for a moment, since nothing else tells.
///
/// # Errors
///
/// `Unavailable` when the system gives no random numbers.
pub fn probe() -> Result<Option<PathBuf>, Error> {
    let id = groundcrew_core::id::AttemptId::generate()?.instance();
    Ok(Group::make(&id).map(|group| {
        group.remove();
        group.directory().to_owned()
    }))
}
