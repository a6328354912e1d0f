//! The wire codec: RESP2, RESP3 and inline requests and replies over byte slices. Knows no sockets and no commands.
