//! Test support: start a server, compare two servers reply by reply.
