//! Where our things are inside a container.

/// All of them are below this.
pub(crate) const ROOT: &str = "/.groundcrew";

/// The supervisor's program.
pub(crate) const PROGRAM: &str = "/.groundcrew/supervisor";

/// The control directory.
pub(crate) const CONTROL: &str = "/.groundcrew/control";

/// What the run is handed in files.
pub(crate) const PRIVATE: &str = "/.groundcrew/control/private";

/// The start file.
pub(crate) const START_FILE: &str = "/.groundcrew/control/start.json";

/// The control socket.
pub(crate) const SOCKET: &str = "/.groundcrew/control/control.sock";

/// The logs of processes.
pub(crate) const LOGS: &str = "/.groundcrew/logs";
