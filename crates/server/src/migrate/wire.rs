//! A connection to a target whose reads and writes wait, with TLS or without.
//!
//! Must not know: what is sent.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use redline_net::{
    Address, Interest, Poller, Read as Received, Stream, connect_blocking,
    tls::{ClientTls, ClientTlsOptions},
};

const SOCKET: usize = 0;

/// See the module's text.
pub(crate) struct Wire {
    stream: Stream,
    poller: Poller,
    /// Longest wait for the other side.
    timeout: Duration,
}

impl Wire {
    /// Connects. The handshake of TLS is made with the first bytes.
    pub(crate) fn connect(
        address: &Address,
        timeout: Duration,
        tls: Option<&ClientTlsOptions>,
    ) -> io::Result<Wire> {
        let mut stream = connect_blocking(address, timeout).map_err(|error| error.error)?;
        // A socket that refuses it works, too.
        let _ = stream.set_nodelay(true);
        let poller = Poller::new(1)?;
        poller.register(&stream, SOCKET, Interest::ReadWrite)?;
        if let Some(options) = tls {
            let tls = ClientTls::new(options).map_err(io::Error::other)?;
            stream.connect_tls(&tls)?;
        }
        Ok(Wire {
            stream,
            poller,
            timeout,
        })
    }

    /// Changes the longest wait.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Waits until the socket is ready for something.
    fn wait(&mut self) -> io::Result<()> {
        self.poller.poll(Some(self.timeout))?;
        match self.poller.event_count() {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.stream.read(buffer)? {
                // A part of the handshake, say.
                Received::Data { bytes: 0, .. } => {}
                Received::Data { bytes, .. } => return Ok(bytes),
                Received::Eof => return Ok(0),
                Received::WouldBlock => self.wait()?,
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        while !self.stream.handshake()? {
            self.wait()?;
        }
        loop {
            match self.stream.write(bytes)? {
                Some(0) | None => self.wait()?,
                Some(bytes) => return Ok(bytes),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.stream.has_unsent() {
            if self.stream.write(&[])?.is_none() {
                self.wait()?;
            }
        }
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stream.close_notify();
    }
}
