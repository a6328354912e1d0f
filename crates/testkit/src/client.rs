//! A connection that sends given bytes, in given pieces, and reads replies of any type. Knows no commands.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redline_resp::Skipper;
use redline_resp::reply_decoder::ReplyDecoder;
pub use redline_resp::reply_decoder::Value;

/// Time-out of a reply: longer than any takes on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;
/// Size of one read of skipped replies: bytes.
const SKIP_BYTES: usize = 128 << 10;

/// A blocking connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    decoder: ReplyDecoder,
    buffer: Vec<u8>,
    /// Read buffer; kept, since clearing one for each read is slow without optimisation.
    piece: Box<[u8]>,
    /// Read buffer for skipped replies; kept, since clearing it takes longer than skipping.
    skipped: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client {
            stream,
            decoder: ReplyDecoder::new(),
            buffer: Vec::new(),
            piece: vec![0; READ_BYTES].into(),
            skipped: Vec::new(),
        })
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the next reply; `None` once the server has closed the connection.
    pub fn reply(&mut self) -> io::Result<Option<Value>> {
        loop {
            let decoded = self
                .decoder
                .decode(&self.buffer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.buffer.drain(..decoded.consumed);
            if decoded.value.is_some() {
                return Ok(decoded.value);
            }
            match self.stream.read(&mut self.piece) {
                Ok(0) => return Ok(None),
                Ok(read) => self.buffer.extend_from_slice(&self.piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Skips this many replies; returns the first error among them.
    pub fn skip(&mut self, replies: u64) -> io::Result<Option<Vec<u8>>> {
        let mut skipper = Skipper::new();
        self.skipped.resize(SKIP_BYTES, 0);
        let (mut skipped, mut held) = (0, 0);
        while skipped < replies {
            if held == self.skipped.len() {
                self.skipped.resize(2 * held, 0);
            }
            let read = self.stream.read(&mut self.skipped[held..])?;
            if read == 0 {
                let kind = io::ErrorKind::UnexpectedEof;
                return Err(io::Error::new(kind, "connection closed"));
            }
            held += read;
            let over = skipper
                .skip(&self.skipped[..held])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.skipped.copy_within(over.consumed..held, 0);
            held -= over.consumed;
            skipped += over.replies;
        }
        Ok(skipper.take_first_error())
    }

    /// Sends one request and reads one reply; a closed connection is an error.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Value> {
        let mut request = Vec::new();
        encode(words, &mut request);
        self.send(&request)?;
        self.reply()?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed"))
    }
}

/// Appends a request in multibulk form.
pub fn encode<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn replies_are_read_one_by_one_until_the_server_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 14];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(&request, b"*1\r\n$4\r\nPING\r\n");
            stream.write_all(b"+PONG\r\n:1\r\n").unwrap();
        });
        let mut client = Client::connect(address).unwrap();
        assert_eq!(
            client.call(&["PING"]).unwrap(),
            Value::Simple(b"PONG".to_vec())
        );
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(1)));
        server.join().unwrap();
        assert_eq!(client.reply().unwrap(), None);
    }
}
