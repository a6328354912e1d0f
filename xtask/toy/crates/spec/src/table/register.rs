//! Registers: the rows of a type that only a check of the workspace has. Rows only.

use super::prelude::*;

rows! { Module:
    RegisterGet = "REGISTER.GET" {
        summary: "Get the value of a register.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    RegisterSet = "REGISTER.SET" {
        summary: "Set the value of a register.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("value")],
    }
}
