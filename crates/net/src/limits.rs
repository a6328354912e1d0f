//! The number of files that the process may have open, and how to raise it.
//!
//! It must not know how many connections are wanted, or how their lack is reported.

use std::io;

/// Limits on open descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit that holds now.
    pub soft: u64,
    /// The limit to which it may be raised without privileges.
    pub hard: u64,
}

/// Returns the limits that hold now.
pub fn open_files() -> io::Result<OpenFiles> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to for the time of the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if result == 0 {
        Ok(OpenFiles {
            soft: limit.rlim_cur,
            hard: limit.rlim_max,
        })
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Result of [`raise_open_files`].
#[derive(Debug)]
pub struct Raised {
    /// The limit that holds now.
    pub granted: u64,
    /// Reason why it is not what was wanted.
    pub refused: Option<io::Error>,
}

/// Raises the limit to `wanted`, or as near to it as the system allows. It is never lowered.
pub fn raise_open_files(wanted: u64) -> io::Result<Raised> {
    let now = open_files()?;
    let mut refused = None;
    if wanted > now.hard {
        // Beyond the hard limit only a privileged process gets; others get the hard limit.
        refused = set(OpenFiles {
            soft: wanted,
            hard: wanted,
        })
        .err();
    }
    if wanted > now.soft && (wanted <= now.hard || refused.is_some()) {
        set(OpenFiles {
            soft: wanted.min(now.hard),
            hard: now.hard,
        })?;
    }
    Ok(Raised {
        granted: open_files()?.soft,
        refused,
    })
}

fn set(limits: OpenFiles) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: limits.soft,
        rlim_max: limits.hard,
    };
    // SAFETY: `limit` is a valid rlimit to read from for the time of the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_can_be_raised_to_the_hard_limit_and_is_never_lowered() {
        let before = open_files().unwrap();
        assert_eq!(raise_open_files(1).unwrap().granted, before.soft);
        let raised = raise_open_files(before.hard).unwrap();
        assert_eq!(raised.granted, before.hard);
        assert!(raised.refused.is_none());
        assert_eq!(open_files().unwrap().soft, before.hard);
    }
}
