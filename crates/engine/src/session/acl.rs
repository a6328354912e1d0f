//! ACL WHOAMI.
//!
//! Must not know: users' rules.

use redline_resp::Args;

use crate::{
    caller::Caller,
    executor::Halt,
    executor::{Executor, Outlet},
};

pub(crate) fn acl_whoami<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let user = caller.user.clone();
    caller.reply().bulk(user.name());
    Ok(())
}
